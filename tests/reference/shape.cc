#include "reference/shape.h"

#include <sstream>
#include <vector>

namespace reference {

DType Shape::scale_dtype() const {
  switch (scales) {
    case Scales::kF32:
      return DType::kF32;
    case Scales::kUe8m0:
      return DType::kUe8m0;
    case Scales::kNone:
    case Scales::kBytes:
      break;
  }
  return DType::kBytes;
}

int64_t Shape::num_scales() const {
  switch (scales) {
    case Scales::kNone:
      return 0;
    case Scales::kBytes:
      return scale_bytes;
    case Scales::kF32:
    case Scales::kUe8m0:
      break;
  }
  return (hidden + 127) / 128;
}

int Shape::num_local_experts(int rank) const {
  return num_experts / num_ranks + (rank < num_experts % num_ranks ? 1 : 0);
}

// By counting, not by a formula: the library has the formula.
int Shape::first_expert(int rank) const {
  int first = 0;
  for (int r = 0; r < rank; ++r) first += num_local_experts(r);
  return first;
}

int Shape::owner(int expert) const {
  int rank = 0;
  for (int end = num_local_experts(0); expert >= end; end += num_local_experts(rank)) ++rank;
  return rank;
}

// By dealing out, not by a formula: the library has the formula.
int Shape::sender(int rank, int64_t token, int64_t num_tokens) const {
  std::vector<int64_t> shares(static_cast<size_t>(replicas));
  for (int64_t t = 0; t < num_tokens; ++t) ++shares[static_cast<size_t>(t % replicas)];
  int member = 0;
  for (int64_t end = shares[0]; token >= end; end += shares[static_cast<size_t>(member)]) ++member;
  return group(rank) * replicas + member;
}

std::string describe(const Shape& shape) {
  static const char* const kLayouts[] = {"expert_padded", "expert_packed", "token_major"};
  static const char* const kScales[] = {"none", "f32", "ue8m0", "bytes"};
  static const char* const kWeights[] = {"at dispatch", "at combine"};
  std::ostringstream text;
  text << "W=" << shape.num_ranks << " E=" << shape.num_experts << " K=" << shape.topk << " H=" << shape.hidden
       << " M=" << shape.max_tokens << " x=" << dtype_name(shape.dispatch_dtype);
  if (shape.dispatch_dtype == DType::kBytes) text << "[" << shape.token_bytes << "]";
  text << " scales=" << kScales[static_cast<int>(shape.scales)];
  if (shape.scales == Scales::kBytes) text << "[" << shape.scale_bytes << "]";
  if (shape.quantise != Quantise::kNone)
    text << " quantised" << (shape.quantise == Quantise::kPowerOfTwo ? " to powers of two" : "");
  text << " rows=" << dtype_name(shape.row_dtype) << " y=" << dtype_name(shape.output_dtype)
       << " layout=" << kLayouts[static_cast<int>(shape.layout)] << " alignment=" << shape.alignment << " weights "
       << kWeights[static_cast<int>(shape.weights)] << (shape.distinct_experts ? " distinct" : "");
  if (shape.replicas > 1) text << " R=" << shape.replicas;
  if (shape.max_recv_tokens > 0) text << " at most " << shape.max_recv_tokens << " rows";
  return text.str();
}

}  // namespace reference
