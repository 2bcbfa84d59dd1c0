# The libraries that moeway is built from. None of them is needed by those who use an installed moeway.
#
# The header-only ones are found by their headers, so that a plain folder (MOEWAY_DEPS_DIR) serves as well as a package.

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

if(MOEWAY_DEPS_DIR)
  list(PREPEND CMAKE_PREFIX_PATH ${MOEWAY_DEPS_DIR})
endif()

# moeway_find_headers(target header package): an interface target for the folder in which `header` lies.
function(moeway_find_headers target header package)
  find_path(${target}_INCLUDE_DIR ${header})
  mark_as_advanced(${target}_INCLUDE_DIR)
  if(NOT ${target}_INCLUDE_DIR)
    message(FATAL_ERROR "<${header}> was not found. Install ${package} (tools/setup.sh does), or set MOEWAY_DEPS_DIR")
  endif()
  add_library(${target} INTERFACE)
  target_include_directories(${target} SYSTEM INTERFACE ${${target}_INCLUDE_DIR})
endfunction()

moeway_find_headers(moeway_fmt fmt/format.h libfmt-dev)

# Header-only, fmt is compiled again in every file that formats something, which takes longer than the rest of the file
# (8 of 9 s with the sanitizers). So it is compiled once, where its version is the one whose definitions we list. Not in
# a static moeway: there they would meet the ones of a consumer who links fmt too.
file(STRINGS ${moeway_fmt_INCLUDE_DIR}/fmt/core.h fmt_version REGEX "^#define FMT_VERSION 90[0-9]+$")
if(BUILD_SHARED_LIBS AND fmt_version STREQUAL "#define FMT_VERSION 90100")
  add_library(moeway_fmt_code STATIC ${PROJECT_SOURCE_DIR}/cmake/fmt_definitions.cc)
  target_include_directories(moeway_fmt_code SYSTEM PRIVATE ${moeway_fmt_INCLUDE_DIR})
  target_link_libraries(moeway_fmt_code PRIVATE moeway_flags)
  set_target_properties(moeway_fmt_code PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(moeway_fmt INTERFACE moeway_fmt_code)
else()
  target_compile_definitions(moeway_fmt INTERFACE FMT_HEADER_ONLY)
endif()

if(MOEWAY_BUILD_CLI)
  moeway_find_headers(moeway_cli11 CLI/CLI.hpp libcli11-dev)
endif()
if(MOEWAY_BUILD_CLI OR MOEWAY_FUZZ)
  moeway_find_headers(moeway_json nlohmann/json.hpp nlohmann-json3-dev)
endif()

if(MOEWAY_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  # Random tests with shrinking. Optional: cmake/tests.cmake names the tests that are left out without it.
  find_path(MOEWAY_RAPIDCHECK_INCLUDE_DIR rapidcheck.h)
  find_library(MOEWAY_RAPIDCHECK_LIBRARY rapidcheck)
  mark_as_advanced(MOEWAY_RAPIDCHECK_INCLUDE_DIR MOEWAY_RAPIDCHECK_LIBRARY)
endif()
