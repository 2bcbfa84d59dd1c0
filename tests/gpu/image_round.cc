#include "gpu/image_round.h"

#include <cstring>
#include <string>

#include "gpu/stream_work.h"
#include "reference/oracle.h"

namespace moeway::gpu {
namespace {

namespace place = multi_rank::place;

constexpr uint32_t kPoison = 0xffffffff;
constexpr uint32_t kScramble = 0x5a5a5a5a;  // No expert.

// Whole words: what is copied and compared.
size_t rounded(size_t bytes) { return (bytes + 3) / 4 * 4; }

template <class Bytes>
Bytes image_of(const void* from, size_t bytes) {
  Bytes image(rounded(bytes), std::byte{0xff});
  if (bytes > 0) std::memcpy(image.data(), from, bytes);
  return image;
}

template <class Bytes>
void copy_image(cudaStream_t stream, Bytes& to, const Bytes& from) {
  enqueue_copy(stream, to.data(), from.data(), from.size() / 4);
}

}  // namespace

ImageRound::ImageRound(multi_rank::Rank& rank, Communicator& communicator, const ImageCase& given)
    : rank_(rank),
      shape_(given.shape),
      num_tokens_(given.num_tokens[static_cast<size_t>(communicator.rank())]),
      differences_(3, 0) {
  AllToAllConfig config;
  config.num_experts = shape_.num_experts;
  config.topk = shape_.topk;
  config.hidden = shape_.hidden;
  config.max_tokens = shape_.max_tokens;
  config.distinct_experts = shape_.distinct_experts ? 1 : 0;
  config.timeout_ms = 10000;
  const Result<AllToAllSizes> sizes = all_to_all_sizes(config, communicator.rank(), communicator.size());
  if (!rank_.expect_ok(sizes.status(), "sizes")) return;
  sizes_ = sizes.value();
  for (int image = 0; image < given.num_images; ++image) images_.push_back(make_image(given, image));
  live_ = images_[0];
  Result<AllToAll> object = AllToAll::create(communicator, config);
  if (!rank_.expect_ok(object.status(), "create")) return;
  object_ = std::move(object).value();
  rank_.expect_ok(object_.set_stream(place::stream()), "set_stream");
}

ImageRound::Tensors ImageRound::make_image(const ImageCase& given, int image) const {
  constexpr auto kValues = reference::Values::kArbitrary;
  const int rank = rank_.rank();
  const reference::Batch batch =
      make_batch(shape_, kValues, reference::Routes::kMixed, given.num_tokens, given.seed, image);
  const reference::RankInput& input = batch[static_cast<size_t>(rank)];
  const reference::Received received = expected_dispatch(shape_, batch, rank, sizes_.expert_capacity);
  const auto x_bytes = static_cast<size_t>(shape_.row_bytes());
  const auto row_bytes = static_cast<size_t>(shape_.hidden * reference::dtype_bytes(shape_.row_dtype));
  const auto max_rows = static_cast<size_t>(sizes_.max_rows);
  Tensors made;
  made.x = image_of<Bytes>(input.x.data(), input.x.size());
  made.topk_idx = image_of<Bytes>(input.topk_idx.data(), input.topk_idx.size() * sizeof(int64_t));
  made.topk_weights = image_of<Bytes>(input.topk_weights.data(), input.topk_weights.size() * sizeof(float));
  made.num_rows = image_of<Bytes>(received.num_rows.data(), received.num_rows.size() * sizeof(int32_t));
  made.received.assign(rounded(max_rows * x_bytes), std::byte{0xff});
  made.rows.assign(rounded(max_rows * row_bytes), std::byte{0xff});
  for (const reference::Row& row : received.rows) {
    const reference::RankInput& from = batch[static_cast<size_t>(row.source)];
    const std::byte* x = from.x.data() + static_cast<size_t>(row.token) * x_bytes;
    const auto at = static_cast<size_t>(row.position);
    std::memcpy(&made.received[at * x_bytes], x, x_bytes);
    const std::vector<std::byte> result = expert_row(shape_, kValues, row.expert, x, nullptr);
    std::memcpy(&made.rows[at * row_bytes], result.data(), row_bytes);
  }
  const std::vector<std::byte> y = expected_combine(shape_, kValues, input);
  made.y = image_of<Bytes>(y.data(), y.size());
  return made;
}

void ImageRound::stage(cudaStream_t stream, int image) {
  stage_inputs(stream, image);
  stage_rows(stream, image);
  poison_outputs(stream);
}

void ImageRound::stage_inputs(cudaStream_t stream, int image) {
  const Tensors& from = images_[static_cast<size_t>(image)];
  copy_image(stream, live_.x, from.x);
  copy_image(stream, live_.topk_idx, from.topk_idx);
  copy_image(stream, live_.topk_weights, from.topk_weights);
}

void ImageRound::stage_rows(cudaStream_t stream, int image) {
  copy_image(stream, live_.rows, images_[static_cast<size_t>(image)].rows);
}

void ImageRound::spoil_inputs(cudaStream_t stream) {
  for (Bytes* input : {&live_.x, &live_.topk_idx, &live_.topk_weights})
    enqueue_fill(stream, input->data(), kScramble, input->size() / 4);
}

void ImageRound::poison_outputs(cudaStream_t stream) {
  for (Bytes* output : {&live_.received, &live_.num_rows, &live_.y})
    enqueue_fill(stream, output->data(), kPoison, output->size() / 4);
}

bool ImageRound::dispatch() { return rank_.expect_ok(dispatch_status(), "dispatch"); }

Status ImageRound::dispatch_status() {
  const auto dense = [](Bytes& memory, DType dtype, std::initializer_list<int64_t> dims) {
    return place::here(Tensor(memory.data(), dtype, dims));
  };
  DispatchInput in;
  in.x = dense(live_.x, kBf16, {num_tokens_, shape_.hidden});
  in.topk_idx = dense(live_.topk_idx, kI64, {num_tokens_, shape_.topk});
  in.topk_weights = dense(live_.topk_weights, kF32, {num_tokens_, shape_.topk});
  DispatchOutput out;
  out.x = dense(live_.received, kBf16, {sizes_.num_local_experts, sizes_.expert_capacity, shape_.hidden});
  out.num_rows = dense(live_.num_rows, kI32, {sizes_.num_local_experts});
  const Result<Routing> routing = object_.dispatch(in, out);
  if (routing.ok()) routing_ = routing.value();
  return routing.status();
}

bool ImageRound::combine() {
  const Tensor rows(live_.rows.data(), kBf16, {sizes_.num_local_experts, sizes_.expert_capacity, shape_.hidden});
  const Tensor y(live_.y.data(), kBf16, {num_tokens_, shape_.hidden});
  return rank_.expect_ok(object_.combine(routing_, place::here(rows), place::here(y)), "combine");
}

void ImageRound::compare(cudaStream_t stream, int image) {
  const Tensors& want = images_[static_cast<size_t>(image)];
  enqueue_compare(stream, live_.received.data(), want.received.data(), want.received.size() / 4, &differences_[0]);
  enqueue_compare(stream, live_.num_rows.data(), want.num_rows.data(), want.num_rows.size() / 4, &differences_[1]);
  enqueue_compare(stream, live_.y.data(), want.y.data(), want.y.size() / 4, &differences_[2]);
}

bool ImageRound::right(cudaStream_t stream, const std::string& when) {
  const cudaError_t error = cudaStreamSynchronize(stream);
  if (!rank_.expect(error == cudaSuccess, when + ": " + cudaGetErrorString(error))) return false;
  if (!rank_.expect_ok(object_.status(), when)) return false;
  return rank_.expect(differences_[0] == 0 && differences_[1] == 0 && differences_[2] == 0,
                      when + ": words that differ from the reference: x " + std::to_string(differences_[0]) +
                          ", num_rows " + std::to_string(differences_[1]) + ", y " + std::to_string(differences_[2]));
}

}  // namespace moeway::gpu
