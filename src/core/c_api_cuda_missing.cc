// A build without CUDA. One with CUDA has c_api_cuda.cc instead.
#include <moeway/c_api.h>

int32_t moeway_has_cuda(void) { return 0; }
