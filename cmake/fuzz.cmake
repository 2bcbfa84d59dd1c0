# libFuzzer programs, one for each tests/fuzz/<name>_target.cc: fuzz_<name>. The targets and how they are run:
# CONTRIBUTING.md. tests/fuzz/replay_test.cc runs the same targets on their corpora in every build with tests.

if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "MOEWAY_FUZZ needs clang, whose libFuzzer makes the inputs; the compiler is ${CMAKE_CXX_COMPILER}")
endif()

# What is fuzzed outside the library: the command's reading of route files.
set(fuzzed_cli_sources line_reader.cc route_file.cc route_record.cc routes.cc)
list(TRANSFORM fuzzed_cli_sources PREPEND ${PROJECT_SOURCE_DIR}/cli/)
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*.cc)
list(FILTER fuzz_sources EXCLUDE REGEX "_(target|test)\\.cc$")
add_library(moeway_fuzz STATIC ${fuzzed_cli_sources} ${fuzz_sources})
target_include_directories(moeway_fuzz PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(moeway_fuzz PUBLIC moeway_internal moeway_flags moeway_json)

add_custom_target(moeway_fuzz_targets)
file(GLOB fuzz_targets CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*_target.cc)
foreach(source IN LISTS fuzz_targets)
  get_filename_component(name ${source} NAME_WE)
  string(REGEX REPLACE "_target$" "" name ${name})
  add_executable(fuzz_${name} ${source})
  target_link_libraries(fuzz_${name} PRIVATE moeway_fuzz)
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(fuzz_${name} PROPERTIES
    CXX_EXTENSIONS OFF RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
  add_dependencies(moeway_fuzz_targets fuzz_${name})
endforeach()
