# The library, in two forms made of the same objects:
#   moeway           what is installed: the symbols of include/moeway and no others
#   moeway_internal  a static library for tests that look inside
# A program links one of them, never both.

# Globs, not lists: a file that lies in a layer belongs to the library, without exception, and CONFIGURE_DEPENDS makes
# every build look for new ones.
file(GLOB moeway_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*/*.cc ${PROJECT_SOURCE_DIR}/src/*/host/*.cc)

include(device_sources)
moeway_choose_device_sources(moeway_sources)
if(MOEWAY_WITH_CUDA)
  file(GLOB nvlink_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/transport/nvlink/*.cc)
  list(APPEND moeway_sources ${nvlink_sources})
  set(moeway_device_objects $<TARGET_OBJECTS:moeway_cuda_objects>)
  set(moeway_device_libraries CUDA::cudart_static ${CMAKE_DL_LIBS})
else()
  set(moeway_device_objects "")
  set(moeway_device_libraries "")
endif()

# The kernels' host forms are compiled for a newer processor than the rest. They come last: of an inline function that
# several objects define the linker keeps the first, so that the rest never runs their instructions.
set(moeway_kernel_sources ${moeway_sources})
list(FILTER moeway_kernel_sources INCLUDE REGEX "/src/launch/[^/]*_host\\.cc$")
if(moeway_kernel_sources)
  list(REMOVE_ITEM moeway_sources ${moeway_kernel_sources})
  list(APPEND moeway_sources ${moeway_kernel_sources})
endif()

add_library(moeway_objects OBJECT ${moeway_sources})
target_include_directories(moeway_objects PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(moeway_objects PRIVATE moeway_flags moeway_fmt Threads::Threads)
target_compile_definitions(moeway_objects PRIVATE MOEWAY_VERSION_STRING="${PROJECT_VERSION}")
set_target_properties(moeway_objects PROPERTIES
  POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON CXX_EXTENSIONS OFF)
if(moeway_kernel_flags)
  set_source_files_properties(${moeway_kernel_sources} PROPERTIES COMPILE_OPTIONS "${moeway_kernel_flags}")
endif()

if(MOEWAY_WITH_CUDA)
  target_include_directories(moeway_objects SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  # The toolkit has NVTX as a package of its own, which may be left out (src/exec/trace_range.h).
  find_path(MOEWAY_NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h HINTS ${CUDAToolkit_INCLUDE_DIRS} NO_DEFAULT_PATH)
  mark_as_advanced(MOEWAY_NVTX_INCLUDE_DIR)
  if(MOEWAY_NVTX_INCLUDE_DIR)
    target_compile_definitions(moeway_objects PRIVATE MOEWAY_WITH_NVTX)
  else()
    message(STATUS "nvtx3/nvToolsExt.h was not found beside CUDA's headers: profilers will show no ranges of moeway")
  endif()
endif()

add_library(moeway $<TARGET_OBJECTS:moeway_objects> ${moeway_device_objects})
add_library(moeway::moeway ALIAS moeway)
if(MOEWAY_WITH_CUDA)
  add_dependencies(moeway_cuda moeway)
endif()
target_include_directories(moeway PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(moeway PUBLIC cxx_std_20)
target_link_libraries(moeway PRIVATE Threads::Threads $<BUILD_INTERFACE:moeway_flags> $<BUILD_INTERFACE:moeway_fmt>)
foreach(library IN LISTS moeway_device_libraries)
  target_link_libraries(moeway PRIVATE $<BUILD_INTERFACE:${library}>)
endforeach()
set_target_properties(moeway PROPERTIES
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINKER_LANGUAGE CXX)
if(BUILD_SHARED_LIBS)
  target_link_options(moeway PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map)
  if(NOT MOEWAY_SANITIZE)  # A sanitizer's own symbols come with the program.
    target_link_options(moeway PRIVATE LINKER:--no-undefined)
  endif()
endif()

add_library(moeway_internal STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:moeway_objects> ${moeway_device_objects})
target_include_directories(moeway_internal PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(moeway_internal PUBLIC moeway_fmt Threads::Threads ${moeway_device_libraries})
set_target_properties(moeway_internal PROPERTIES LINKER_LANGUAGE CXX)
