# Every option of the build, with its default and what it is for.

# On when moeway is built for itself, off when another project adds it with add_subdirectory().
if(CMAKE_SOURCE_DIR STREQUAL PROJECT_SOURCE_DIR)
  set(moeway_is_top ON)
else()
  set(moeway_is_top OFF)
endif()

option(BUILD_SHARED_LIBS "Build moeway as a shared library" ON)
option(MOEWAY_BUILD_TESTS "Build the tests (needs GoogleTest)" ${moeway_is_top})
option(MOEWAY_BUILD_CLI "Build the command line `moeway` (needs CLI11 and nlohmann-json)" ${moeway_is_top})
option(MOEWAY_BUILD_EXAMPLES "Build the examples" ${moeway_is_top})
option(MOEWAY_BUILD_BENCH "Build the benchmarks (need MPI or Google Benchmark)" OFF)
option(MOEWAY_FUZZ "Build the fuzz targets (need clang)" OFF)
option(MOEWAY_WERROR "Treat warnings as errors" OFF)

# The kernels' float32 sums are defined with fused multiply-add. Without this option they call fma() of the C library,
# which gives the same bits slowly where the processor has no such instruction.
option(MOEWAY_X86_64_V3 "On x86-64, compile the kernels for processors with AVX2, FMA and F16C" ON)

set(MOEWAY_CUDA OFF CACHE STRING "GPU kernels and NVLink: ON, OFF, or AUTO (if nvcc is found)")
set_property(CACHE MOEWAY_CUDA PROPERTY STRINGS ON OFF AUTO)
if(CMAKE_CUDA_ARCHITECTURES)
  set(architectures ${CMAKE_CUDA_ARCHITECTURES})
else()
  set(architectures 90)
endif()
set(MOEWAY_CUDA_ARCHITECTURES "${architectures}" CACHE STRING
  "GPU architectures from 80 on, as CMake's CUDA_ARCHITECTURES takes them; \"80;90;100\" for A100, H100 and H200, B200")
foreach(architecture IN LISTS MOEWAY_CUDA_ARCHITECTURES)
  if(architecture MATCHES "^([0-9]+)" AND CMAKE_MATCH_1 LESS 80)
    message(FATAL_ERROR "MOEWAY_CUDA_ARCHITECTURES is '${MOEWAY_CUDA_ARCHITECTURES}', expected numbers from 80 on")
  endif()
endforeach()

set(MOEWAY_SANITIZE "" CACHE STRING "Sanitizers for everything in this build: \"\", \"address,undefined\" or \"thread\"")
set(MOEWAY_DEPS_DIR "" CACHE PATH "A folder whose include/ and lib/ hold the libraries that the system lacks")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, RelWithDebInfo or Debug" FORCE)
endif()

if(NOT MOEWAY_SANITIZE MATCHES "^(|address,undefined|thread)$")
  message(FATAL_ERROR "MOEWAY_SANITIZE is '${MOEWAY_SANITIZE}', expected nothing, 'address,undefined' or 'thread'")
endif()

if(NOT MOEWAY_CUDA MATCHES "^(ON|OFF|AUTO)$")
  message(FATAL_ERROR "MOEWAY_CUDA is '${MOEWAY_CUDA}', expected ON, OFF or AUTO")
endif()
set(MOEWAY_WITH_CUDA OFF)
if(NOT MOEWAY_CUDA STREQUAL "OFF")
  # nvcc is often installed outside PATH.
  find_program(CMAKE_CUDA_COMPILER nvcc PATHS ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES bin)
  if(CMAKE_CUDA_COMPILER)
    set(MOEWAY_WITH_CUDA ON)
  elseif(MOEWAY_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MOEWAY_CUDA is ON, but nvcc is neither in PATH nor below CUDA_HOME or /usr/local/cuda")
  endif()
endif()
