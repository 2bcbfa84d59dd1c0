# Tests that need GPUs to run, built by the target moeway_cuda and run by tools/gpu_visit.sh. Without GPUs they skip, by
# name.
#
#   kernels_cuda_test    the bodies of tests/kernels on one device                 sees src
#   gpu_test             tests/gpu: ranks as threads, dealt out to the devices      sees include only
#   issues_gpu_test      tests/issues, on devices; MOEWAY_GPU_RANKS_AS=processes   sees include only
#   gpu_processes_test   tests/gpu/processes: a process per rank                   sees include only
#   gpu_input_test       tests/gpu/input: what a device finds out by itself        sees src

if(NOT MOEWAY_WITH_CUDA)
  return()
endif()

set(kernel_sources "")
foreach(body IN LISTS kernel_bodies)
  get_filename_component(name ${body} NAME_WE)
  set(generated ${PROJECT_BINARY_DIR}/tests/kernels/${name}.cuda.cu)
  file(CONFIGURE OUTPUT ${generated}
    CONTENT "#include \"kernels/cuda_backend.h\"\n#include \"kernels/${name}.inc\"\n")
  list(APPEND kernel_sources ${generated})
endforeach()
add_executable(kernels_cuda_test EXCLUDE_FROM_ALL ${kernel_sources})
target_include_directories(kernels_cuda_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_compile_options(kernels_cuda_test PRIVATE -std=c++20 --expt-relaxed-constexpr)
target_link_libraries(kernels_cuda_test PRIVATE moeway_internal moeway_reference GTest::gtest_main)

# Where the ranks are: on devices. What the programs share besides.
file(GLOB gpu_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/gpu/*.cc ${PROJECT_SOURCE_DIR}/tests/gpu/*.cu)
list(FILTER gpu_sources EXCLUDE REGEX "_test\\.cc$")
add_library(moeway_place_cuda OBJECT EXCLUDE_FROM_ALL ${gpu_sources})
target_include_directories(moeway_place_cuda PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_include_directories(moeway_place_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(moeway_place_cuda PRIVATE moeway moeway_flags GTest::gtest)
target_compile_options(moeway_place_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
set_target_properties(moeway_place_cuda PROPERTIES CXX_EXTENSIONS OFF)

function(moeway_gpu_program name)
  add_executable(${name} EXCLUDE_FROM_ALL ${ARGN} $<TARGET_OBJECTS:moeway_place_cuda>)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE
    moeway_ranks moeway_reference GTest::gmock GTest::gtest_main Threads::Threads moeway_flags CUDA::cudart_static)
  set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF LINKER_LANGUAGE CXX)
endfunction()
file(GLOB gpu_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/gpu/*_test.cc)
moeway_gpu_program(gpu_test ${gpu_sources})
# The same objects: where the ranks are is linked in.
moeway_gpu_program(issues_gpu_test $<TARGET_OBJECTS:issues_test>)
file(GLOB gpu_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/gpu/processes/*_test.cc)
moeway_gpu_program(gpu_processes_test ${gpu_sources})

add_executable(gpu_input_test EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/gpu/input/device_input_test.cc)
target_include_directories(gpu_input_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(gpu_input_test PRIVATE
  moeway_internal moeway_reference moeway_flags GTest::gtest_main CUDA::cudart_static)

set(gpu_programs kernels_cuda_test gpu_test issues_gpu_test gpu_processes_test gpu_input_test)
set_target_properties(${gpu_programs} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
add_dependencies(moeway_cuda ${gpu_programs})
