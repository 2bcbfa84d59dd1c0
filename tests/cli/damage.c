// Preloaded into the command line by checked_test.py and bench_test.py: calls go on to moeway, and the result of one call is
// damaged, so that the test sees whether the command notices. MOEWAY_DAMAGE says what: row, count, source, stray or sum;
// MOEWAY_DAMAGED_CALL which call of each kind, from 1 (default: the second).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <moeway/c_api.h>
#include <stdlib.h>
#include <string.h>

static int damaged_call(void) {
  const char* asked = getenv("MOEWAY_DAMAGED_CALL");
  return asked == NULL ? 2 : atoi(asked);
}

static int wanted(const char* what) {
  const char* asked = getenv("MOEWAY_DAMAGE");
  return asked != NULL && strcmp(asked, what) == 0;
}

static unsigned char* byte_of(const moeway_tensor* tensor, int64_t offset) {
  return (unsigned char*)tensor->data + offset;
}

static void damage_dispatch(const moeway_dispatch_output* output) {
  static int calls = 0;
  if (++calls != damaged_call()) return;
  if (wanted("row")) *byte_of(&output->x, 0) ^= 1;
  if (wanted("count")) *byte_of(&output->num_rows, 0) ^= 1;
  if (wanted("source")) *byte_of(&output->row_source, 8) ^= 1;
  // The last row of the tensor, which the small jobs of the test never fill.
  if (wanted("stray")) {
    int64_t bytes = moeway_dtype_bytes(output->x.dtype);
    for (int i = 0; i < output->x.ndim; ++i) bytes *= output->x.shape[i];
    *byte_of(&output->x, bytes - 1) ^= 1;
  }
}

static void damage_combine(const moeway_tensor* y) {
  static int calls = 0;
  if (++calls == damaged_call() && wanted("sum")) *byte_of(y, 0) ^= 1;
}

moeway_status moeway_dispatch_recv(moeway_all_to_all* all_to_all, moeway_routing routing,
                                   const moeway_dispatch_output* output) {
  moeway_status (*next)(moeway_all_to_all*, moeway_routing, const moeway_dispatch_output*);
  *(void**)&next = dlsym(RTLD_NEXT, "moeway_dispatch_recv");
  const moeway_status status = next(all_to_all, routing, output);
  if (status == MOEWAY_OK) damage_dispatch(output);
  return status;
}

moeway_status moeway_combine_recv(moeway_all_to_all* all_to_all, moeway_routing routing,
                                  const moeway_tensor* topk_weights, const moeway_tensor* y) {
  moeway_status (*next)(moeway_all_to_all*, moeway_routing, const moeway_tensor*, const moeway_tensor*);
  *(void**)&next = dlsym(RTLD_NEXT, "moeway_combine_recv");
  const moeway_status status = next(all_to_all, routing, topk_weights, y);
  if (status == MOEWAY_OK) damage_combine(y);
  return status;
}
