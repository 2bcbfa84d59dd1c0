# The kernels as GPU code. They are compiled, so that nothing gets into them that nvcc refuses, and not linked yet.

set(CMAKE_CUDA_ARCHITECTURES ${MOEWAY_CUDA_ARCHITECTURES})
enable_language(CUDA)

file(GLOB moeway_cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/launch/*.cu)
if(moeway_cuda_sources)
  add_library(moeway_cuda_compile OBJECT ${moeway_cuda_sources})
  target_include_directories(moeway_cuda_compile PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(moeway_cuda_compile PRIVATE moeway_flags moeway_fmt)
  set_target_properties(moeway_cuda_compile PROPERTIES
    CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
else()
  message(WARNING "MOEWAY_CUDA: there is no src/launch/*.cu, so nothing is compiled for GPUs")
endif()
