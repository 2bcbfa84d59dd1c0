#include "cli/mirror.h"

namespace moeway::cli {

Status Mirror::open(const Buffers& buffers) {
  if (on_host_) return Status();
  for (const GuardedBytes* bytes :
       {&buffers.in_x, &buffers.in_scales, &buffers.in_experts, &buffers.in_weights, &buffers.x, &buffers.scales,
        &buffers.num_rows, &buffers.first_row, &buffers.row_source, &buffers.topk_idx, &buffers.topk_weights,
        &buffers.rows, &buffers.sums}) {
    const Result<std::byte*> memory = place_.allocate(bytes->bytes_with_guard());
    if (!memory.ok()) return memory.status();
    copies_[bytes->data()] = memory.value();
    if (Status s = place_.copy_in(memory.value(), bytes->data(), bytes->bytes_with_guard()); !s.ok()) return s;
  }
  return Status();
}

Tensor Mirror::there(const Tensor& tensor) const {
  if (on_host_ || tensor.ndim == 0) return tensor;
  Tensor moved = place_.here(tensor);
  moved.data = copies_.at(tensor.data);
  return moved;
}

DispatchInput Mirror::there(const DispatchInput& input) const {
  DispatchInput moved = input;
  for (moeway_tensor* tensor : {&moved.x, &moved.scales, &moved.topk_idx, &moved.topk_weights})
    *tensor = there(Tensor(*tensor));
  return moved;
}

DispatchOutput Mirror::there(const DispatchOutput& output) const {
  DispatchOutput moved = output;
  for (moeway_tensor* tensor : {&moved.x, &moved.scales, &moved.num_rows, &moved.first_row, &moved.row_source,
                                &moved.topk_idx, &moved.topk_weights})
    *tensor = there(Tensor(*tensor));
  return moved;
}

Status Mirror::upload(std::initializer_list<const GuardedBytes*> buffers) {
  if (on_host_) return Status();
  for (const GuardedBytes* bytes : buffers)
    if (Status s = place_.copy_in(device_of(*bytes), bytes->data(), bytes->bytes()); !s.ok()) return s;
  return Status();
}

Status Mirror::download(std::initializer_list<const GuardedBytes*> buffers) {
  if (on_host_) return Status();
  for (const GuardedBytes* bytes : buffers)
    if (Status s = place_.copy_out(bytes->data(), device_of(*bytes), bytes->bytes_with_guard()); !s.ok()) return s;
  return Status();
}

Status Mirror::poison(std::initializer_list<const GuardedBytes*> buffers) {
  if (on_host_) return Status();
  for (const GuardedBytes* bytes : buffers)
    if (Status s = place_.fill(device_of(*bytes), std::to_integer<int>(GuardedBytes::kPoison), bytes->bytes()); !s.ok())
      return s;
  return Status();
}

}  // namespace moeway::cli
