// Memory for tensors that say anything of themselves: exactly what they describe, so that AddressSanitizer sees an access
// beside it.
#pragma once

#include <moeway/c_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "fuzz/input.h"

namespace moeway::fuzz {

class TensorMemory {
 public:
  // The tensor `right`, changed as the input says in all but its address, with memory of that form. Where no memory of that
  // form can be had it is one that must be refused (see must_refuse()), or `right`.
  moeway_tensor make(moeway_tensor right, Input& input);
  // Some tensor made so far is none that a call may accept.
  bool must_refuse() const { return must_refuse_; }
  // The same for `value` elements: experts from -1 to below `num_experts`, or any bits.
  void fill_experts(const moeway_tensor& tensor, int32_t num_experts, Input& input);

 private:
  struct Block {
    std::unique_ptr<uint8_t[]> bytes;
    size_t size;
  };
  std::deque<Block> blocks_;
  bool must_refuse_ = false;
};

}  // namespace moeway::fuzz
