# What a build with CUDA has more: the kernels as GPU code, and the runtime that launches them, linked statically, so that the
# library starts where there is no CUDA. The driver is loaded when it is first asked for; nothing links libcuda.

set(CMAKE_CUDA_ARCHITECTURES ${MOEWAY_CUDA_ARCHITECTURES})
enable_language(CUDA)

# The public headers know nothing of CUDA, but a caller's .cu files include them.
set(generated ${PROJECT_BINARY_DIR}/tests/headers/moeway.cu)
file(CONFIGURE OUTPUT ${generated} CONTENT "#include <moeway/moeway.h>\n")
add_library(moeway_header_in_cuda OBJECT ${generated})
target_include_directories(moeway_header_in_cuda PRIVATE ${PROJECT_SOURCE_DIR}/include)
# The language version by hand: CMake before 3.26 does not know that nvcc has C++20 (CUDA_STANDARD 20).
target_compile_options(moeway_header_in_cuda PRIVATE -std=c++20 --Werror=all-warnings)

file(GLOB moeway_cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/launch/*.cu)
add_library(moeway_cuda_objects OBJECT ${moeway_cuda_sources})
target_include_directories(moeway_cuda_objects PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(moeway_cuda_objects PRIVATE moeway_flags moeway_fmt)
target_compile_options(moeway_cuda_objects PRIVATE -std=c++20 --expt-relaxed-constexpr -Xcompiler=-fvisibility=hidden)
set_target_properties(moeway_cuda_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)
find_package(CUDAToolkit REQUIRED)

# All that needs nvcc or CUDA's headers; the library, the command line and tests add themselves.
add_custom_target(moeway_cuda DEPENDS moeway_header_in_cuda moeway_cuda_objects)
