# The tests: one program per folder of tests/, each of its tests known to ctest by name ("unit.Checked.AddsUp").
#
#   unit        parts of src and cli                        sees src
#   kernels     one body per file, run in every host form   sees src
#   multi_rank  whole jobs through the public interface     sees include only
#   issues      faults seen elsewhere, one file each        sees include only
#   cli         the command line                            sees cli
#   fuzz        the fuzz targets on their corpora           sees src and cli
#   headers     each public header compiled alone           sees include only
#   install     a project that uses the installed package
#   tools       the scripts of tools/
#   python      the Python package                          sees the package only
#
# tests/reference, the oracle, sees neither src nor include. tools/run_tests.sh fails if one of the suites in
# moeway_suites ran nothing.

include(GoogleTest)

if(MOEWAY_SANITIZE)
  set(moeway_test_timeout_s 600)
else()
  set(moeway_test_timeout_s 180)
endif()

file(GLOB reference_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/reference/*.cc)
add_library(moeway_reference INTERFACE)
target_include_directories(moeway_reference INTERFACE ${PROJECT_SOURCE_DIR}/tests)
if(reference_sources)
  add_library(moeway_reference_code STATIC ${reference_sources})
  target_include_directories(moeway_reference_code PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(moeway_reference_code PRIVATE moeway_flags)
  set_target_properties(moeway_reference_code PROPERTIES CXX_EXTENSIONS OFF)
  target_link_libraries(moeway_reference INTERFACE moeway_reference_code)
endif()

set(moeway_suites "")

# moeway_suite(name sources... LINK targets...)
function(moeway_suite name)
  cmake_parse_arguments(suite "" "" "LINK" ${ARGN})
  set(sources "")
  foreach(source IN LISTS suite_UNPARSED_ARGUMENTS)
    file(STRINGS ${source} needs_rapidcheck REGEX "^#include <rapidcheck")
    file(STRINGS ${source} needs_cli REGEX "^#include \"cli/")
    if(needs_rapidcheck AND NOT (MOEWAY_RAPIDCHECK_INCLUDE_DIR AND MOEWAY_RAPIDCHECK_LIBRARY))
      message(WARNING "${source} is left out: rapidcheck was not found (librapidcheck-dev)")
    elseif(needs_cli AND NOT TARGET moeway_cli)
      message(WARNING "${source} is left out: the command line is not part of this build (MOEWAY_BUILD_CLI)")
    else()
      list(APPEND sources ${source})
    endif()
  endforeach()
  if(NOT sources)
    return()
  endif()
  set(moeway_suites ${moeway_suites} ${name} PARENT_SCOPE)
  add_executable(${name}_test ${sources})
  target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name}_test PRIVATE
    ${suite_LINK} moeway_reference GTest::gmock GTest::gtest_main Threads::Threads moeway_flags)
  if(MOEWAY_RAPIDCHECK_INCLUDE_DIR AND MOEWAY_RAPIDCHECK_LIBRARY)
    target_include_directories(${name}_test SYSTEM PRIVATE ${MOEWAY_RAPIDCHECK_INCLUDE_DIR})
    target_link_libraries(${name}_test PRIVATE ${MOEWAY_RAPIDCHECK_LIBRARY})
  endif()
  target_compile_definitions(${name}_test PRIVATE MOEWAY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set_target_properties(${name}_test PROPERTIES
    CXX_EXTENSIONS OFF RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  # Files of these suites may give their own things the same names.
  if(name MATCHES "^(multi_rank|issues|fuzz)$")
    set_target_properties(${name}_test PROPERTIES UNITY_BUILD OFF)
  endif()
  # PRE_TEST: ctest asks the program for its tests; a build does not run what it has built.
  gtest_discover_tests(${name}_test TEST_PREFIX "${name}." NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT ${moeway_test_timeout_s} LABELS ${name})
endfunction()

file(GLOB unit_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/unit/*.cc)
file(GLOB multi_rank_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/multi_rank/*_test.cc)
file(GLOB ranks_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/multi_rank/*.cc)
file(GLOB issues_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/issues/*.cc)
set(unit_links moeway_internal)
if(TARGET moeway_cli)
  list(PREPEND unit_links moeway_cli)
endif()
moeway_suite(unit ${unit_sources} LINK ${unit_links})
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*.cc)
list(FILTER fuzz_sources EXCLUDE REGEX "/libfuzzer_entry\\.cc$")
moeway_suite(fuzz ${fuzz_sources} LINK ${unit_links})
# The command line is called as a user calls it; each of these scripts is one test.
if(TARGET moeway_program)
  file(GLOB cli_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/cli/*_test.py)
  foreach(script IN LISTS cli_tests)
    get_filename_component(name ${script} NAME_WE)
    add_test(NAME cli.${name} COMMAND Python3::Interpreter -B ${script})
    set_tests_properties(cli.${name} PROPERTIES TIMEOUT 600 LABELS cli
      ENVIRONMENT MOEWAY_PROGRAM=$<TARGET_FILE:moeway_program>)
  endforeach()
  list(APPEND moeway_suites cli)
endif()

# What runs the ranks of a job is shared by both.
list(FILTER ranks_sources EXCLUDE REGEX "(_test|/place_host)\\.cc$")
set(multi_rank_links moeway)
if(ranks_sources)
  # Without where the ranks are: multi_rank/place.h. A program links one of the two.
  add_library(moeway_ranks STATIC ${ranks_sources})
  target_include_directories(moeway_ranks PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(moeway_ranks PUBLIC moeway moeway_reference Threads::Threads PRIVATE moeway_flags)
  set_target_properties(moeway_ranks PROPERTIES CXX_EXTENSIONS OFF)
  add_library(moeway_place_host OBJECT ${PROJECT_SOURCE_DIR}/tests/multi_rank/place_host.cc)
  target_include_directories(moeway_place_host PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(moeway_place_host PRIVATE moeway moeway_flags)
  set_target_properties(moeway_place_host PROPERTIES CXX_EXTENSIONS OFF)
  set(multi_rank_links moeway_ranks moeway_place_host)
endif()
moeway_suite(multi_rank ${multi_rank_sources} LINK ${multi_rank_links})
moeway_suite(issues ${issues_sources} LINK ${multi_rank_links})

# tests/kernels/x_test.inc holds one body; this makes a host program of all bodies.
file(GLOB kernel_bodies CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/kernels/*_test.inc)
set(kernel_sources "")
foreach(body IN LISTS kernel_bodies)
  get_filename_component(name ${body} NAME_WE)
  set(generated ${PROJECT_BINARY_DIR}/tests/kernels/${name}.host.cc)
  file(CONFIGURE OUTPUT ${generated} CONTENT "#include \"kernels/host_backend.h\"\n#include \"kernels/${name}.inc\"\n")
  list(APPEND kernel_sources ${generated})
endforeach()
moeway_suite(kernels_host ${kernel_sources} LINK moeway_internal)

include(gpu_tests)

include(header_tests)

file(GLOB tool_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/tools/*_test.py)
foreach(script IN LISTS tool_tests)
  get_filename_component(name ${script} NAME_WE)
  add_test(NAME tools.${name} COMMAND Python3::Interpreter -B ${script})
  set_tests_properties(tools.${name} PROPERTIES TIMEOUT 60 LABELS tools)
endforeach()
list(APPEND moeway_suites tools)

if(TARGET example_round)
  add_test(NAME examples.round COMMAND example_round)
  # A line per rank, and each the same sum: this expression decides, not the exit code.
  set(sum "y = 10 20 30 40[^y]*")
  set_tests_properties(examples.round PROPERTIES TIMEOUT ${moeway_test_timeout_s} LABELS examples
    PASS_REGULAR_EXPRESSION "${sum}${sum}${sum}${sum}")
  list(APPEND moeway_suites examples)
endif()

# Who links a sanitized library must be sanitized too; a stranger's project is not.
if(NOT MOEWAY_SANITIZE)
  add_test(NAME install.package COMMAND ${CMAKE_COMMAND} -D build=${PROJECT_BINARY_DIR}
    -D source=${PROJECT_SOURCE_DIR}/tests/install -D work=${PROJECT_BINARY_DIR}/tests/install
    -D version=${PROJECT_VERSION} -D cxx=${CMAKE_CXX_COMPILER} -D c=${CMAKE_C_COMPILER}
    -P ${PROJECT_SOURCE_DIR}/tests/install/check_package.cmake)
  set_tests_properties(install.package PROPERTIES TIMEOUT 180 LABELS install)
  list(APPEND moeway_suites install)
endif()

include(python_tests)

list(JOIN moeway_suites "\n" suites)
file(WRITE ${PROJECT_BINARY_DIR}/suites.txt "${suites}\n")
