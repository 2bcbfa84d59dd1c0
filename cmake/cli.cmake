# The command line. Everything but main() is a library of its own, so that tests can call it.

file(GLOB moeway_cli_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cli/*.cc ${PROJECT_SOURCE_DIR}/cli/*/*.cc)
list(FILTER moeway_cli_sources EXCLUDE REGEX "/cli/main\\.cc$")
include(device_sources)
moeway_choose_device_sources(moeway_cli_sources)
set(MOEWAY_CLI_TARGETS "")
if(moeway_cli_sources AND EXISTS ${PROJECT_SOURCE_DIR}/cli/main.cc)
  add_library(moeway_cli STATIC ${moeway_cli_sources})
  target_include_directories(moeway_cli PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(moeway_cli PUBLIC moeway_cli11 moeway_json moeway_fmt Threads::Threads PRIVATE moeway_flags)
  set_target_properties(moeway_cli PROPERTIES CXX_EXTENSIONS OFF)
  if(MOEWAY_WITH_CUDA)
    # A runtime of its own: the library keeps its one to itself. Both work in the device's one context, so streams and
    # pointers of one are good for the other.
    target_include_directories(moeway_cli SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
    target_link_libraries(moeway_cli PUBLIC CUDA::cudart_static ${CMAKE_DL_LIBS})
    add_dependencies(moeway_cuda moeway_cli)
  endif()

  add_executable(moeway_program ${PROJECT_SOURCE_DIR}/cli/main.cc)
  target_link_libraries(moeway_program PRIVATE moeway_cli moeway moeway_flags)
  set_target_properties(moeway_program PROPERTIES
    OUTPUT_NAME moeway RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/cli CXX_EXTENSIONS OFF)
  if(MOEWAY_WITH_CUDA)
    add_dependencies(moeway_cuda moeway_program)
  endif()
endif()
