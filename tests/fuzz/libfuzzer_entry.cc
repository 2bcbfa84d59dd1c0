// libFuzzer's way to the one target of a program.
#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  moeway::fuzz::targets().front().run({data, size});
  return 0;
}
