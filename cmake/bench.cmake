# One program per file of bench/. Files that include <mpi.h> need MPI, those that include <benchmark/...> need Google
# Benchmark; what cannot be built here is named.

find_package(MPI COMPONENTS CXX)
find_package(benchmark QUIET)

file(GLOB bench_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/*.cc)
foreach(source IN LISTS bench_sources)
  get_filename_component(name ${source} NAME_WE)
  set(libraries moeway moeway_fmt Threads::Threads)
  file(STRINGS ${source} needs_mpi REGEX "^#include <mpi\\.h>")
  file(STRINGS ${source} needs_benchmark REGEX "^#include <benchmark/")
  if(needs_mpi)
    if(NOT MPI_CXX_FOUND)
      message(WARNING "bench/${name} is left out: MPI was not found (libopenmpi-dev)")
      continue()
    endif()
    list(APPEND libraries MPI::MPI_CXX)
  endif()
  if(needs_benchmark)
    if(NOT benchmark_FOUND)
      message(WARNING "bench/${name} is left out: Google Benchmark was not found (libbenchmark-dev)")
      continue()
    endif()
    list(APPEND libraries benchmark::benchmark)
  endif()
  add_executable(bench_${name} ${source})
  # What moeway is compared with is compiled for the processors that its kernels need.
  target_compile_options(bench_${name} PRIVATE ${moeway_kernel_flags})
  target_link_libraries(bench_${name} PRIVATE ${libraries} moeway_flags)
  set_target_properties(bench_${name} PROPERTIES
    OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench CXX_EXTENSIONS OFF)
endforeach()
