// One rank's rounds, enqueued without a stop: everything that a round takes and must give is worked out beforehand, as
// images of the tensors, and put in place and compared by work on the stream.
#pragma once

#include <cuda_runtime.h>
#include <moeway/moeway.h>

#include <cstdint>
#include <vector>

#include "multi_rank/place.h"
#include "multi_rank/ranks.h"
#include "reference/inputs.h"
#include "reference/shape.h"

namespace moeway::gpu {

// What is the same on all ranks. Tokens of bf16 without scales, an expert layout, weights at dispatch.
struct ImageCase {
  reference::Shape shape;
  std::vector<int64_t> num_tokens;  // Of each rank.
  int num_images = 16;
  uint64_t seed = 1;
};

class ImageRound {
 public:
  // Collective: makes the object. What goes wrong is noted in `rank`, here and later.
  ImageRound(multi_rank::Rank& rank, Communicator& communicator, const ImageCase& given);

  bool made() const { return object_.get() != nullptr; }
  AllToAll& object() { return object_; }

  // Work on a stream. Which image of the inputs the tensors hold from there on; all outputs become poison.
  void stage(cudaStream_t stream, int image);
  void stage_inputs(cudaStream_t stream, int image);
  void stage_rows(cudaStream_t stream, int image);  // What the experts would make of the image.
  void spoil_inputs(cudaStream_t stream);           // As a caller may who reuses the memory.
  void poison_outputs(cudaStream_t stream);
  // The two calls, on the object's stream.
  bool dispatch();
  Status dispatch_status();  // The same; the status is the caller's to judge.
  bool combine();
  // Compares every byte that they wrote with the image's.
  void compare(cudaStream_t stream, int image);

  // Waits for the stream; false, and a note, if anything was wrong up to here.
  bool right(cudaStream_t stream, const std::string& when);

 private:
  using Bytes = multi_rank::Memory<std::byte>;
  struct Tensors {
    Bytes x, topk_idx, topk_weights, rows, received, num_rows, y;
  };
  Tensors make_image(const ImageCase& given, int image) const;

  multi_rank::Rank& rank_;
  reference::Shape shape_;
  int64_t num_tokens_;
  AllToAllSizes sizes_{};
  AllToAll object_;
  Routing routing_{};
  Tensors live_;
  std::vector<Tensors> images_;
  multi_rank::Memory<uint64_t> differences_;
};

}  // namespace moeway::gpu
