// A build with CUDA. One without has c_api_cuda_missing.cc instead.
#include <moeway/c_api.h>

int32_t moeway_has_cuda(void) { return 1; }
