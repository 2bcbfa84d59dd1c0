// Ranks on CUDA devices through the public interface: a thread per rank, ranks dealt to the devices that there are. A test's tensors lie
// in host memory that every device reaches, so the test needs no copies; the library does not know.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <moeway/moeway.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpu/pool.h"
#include "kernels/cuda_backend.h"
#include "multi_rank/job_types.h"
#include "reference/inputs.h"
#include "reference/oracle.h"

namespace moeway::gpu {

template <class T>
using Vector = std::vector<T, kernel_tests::Allocator<T>>;

inline int num_devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

class Nvlink : public testing::Test {
 protected:
  void SetUp() override {
    if (num_devices() < 1) GTEST_SKIP() << "needs 1 CUDA devices, this machine has 0";
    moeway::gpu::Pool::get();  // Before any kernel runs.
  }
};

// One rank: its communicator, object and stream.
class Rank {
 public:
  Rank(const ThreadGroup& group, int rank, const reference::Shape& shape, int64_t timeout_ms = 10000)
      : rank_(rank), shape_(shape) {
    device_ = rank % num_devices();
    cudaSetDevice(device_);
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    Result<Bootstrap> bootstrap = Bootstrap::threads(group, rank);
    if (!note(bootstrap.status())) return;
    CommunicatorOptions options;
    options.device_type = MOEWAY_CUDA;
    options.device_index = device_;
    Result<Communicator> communicator = Communicator::create(std::move(bootstrap).value(), options);
    if (!note(communicator.status())) return;
    communicator_ = std::make_unique<Communicator>(std::move(communicator).value());
    const AllToAllConfig config = make_config(timeout_ms);
    Result<AllToAllSizes> sizes = all_to_all_sizes(config, rank, shape.num_ranks);
    if (!note(sizes.status())) return;
    sizes_ = sizes.value();
    Result<AllToAll> object = AllToAll::create(*communicator_, config);
    if (!note(object.status())) return;
    object_ = std::make_unique<AllToAll>(std::move(object).value());
    if (!note(object_->set_stream(stream_))) return;
    make_outputs();
  }

  const std::string& wrong() const { return wrong_; }
  AllToAll& object() { return *object_; }
  cudaStream_t stream() const { return stream_; }
  void synchronize() {
    note(cudaStreamSynchronize(stream_) == cudaSuccess ? Status() : Status(MOEWAY_INTERNAL, "stream"));
  }

  bool note(const Status& status) {
    if (!status.ok() && wrong_.empty()) wrong_ = "rank " + std::to_string(rank_) + ": " + status.to_string();
    return status.ok();
  }
  bool expect(bool condition, const std::string& what) {
    if (!condition && wrong_.empty()) wrong_ = "rank " + std::to_string(rank_) + ": " + what;
    return condition;
  }

  void set_input(const reference::RankInput& input) {
    const std::vector<std::byte>& x = reference::given_x(shape_, input);
    x_.assign(x.begin(), x.end());
    scales_.assign(input.scales.begin(), input.scales.end());
    ids_.assign(input.topk_idx.begin(), input.topk_idx.end());
    weights_.assign(input.topk_weights.begin(), input.topk_weights.end());
    num_tokens_ = input.num_tokens;
  }
  // The same, the number of tokens in memory beside tensors of max_tokens rows; routes behind the tokens cannot be.
  void set_counted_input(const reference::RankInput& input) {
    set_input(input);
    count_.assign(1, static_cast<int32_t>(input.num_tokens));
    num_tokens_ = shape_.max_tokens;
    const auto elements = static_cast<size_t>(num_tokens_ * shape_.row_elements());
    x_.resize(elements * static_cast<size_t>(reference::dtype_bytes(shape_.given_dtype())), std::byte{0x5a});
    scales_.resize(static_cast<size_t>(num_tokens_ * shape_.token_scale_bytes()), std::byte{0x5a});
    ids_.resize(static_cast<size_t>(num_tokens_ * shape_.topk), 1 << 20);
    weights_.resize(ids_.size(), -7.0f);
  }
  void set_count(int32_t count) { count_[0] = count; }
  DispatchInput input() {
    DispatchInput in;
    in.x = tensor(x_.data(), multi_rank::to_moeway(shape_.given_dtype()), {num_tokens_, shape_.row_elements()});
    if (!count_.empty()) in.num_tokens = tensor(count_.data(), kI32, {1});
    if (shape_.gives_scales()) {
      in.scales =
          tensor(scales_.data(), multi_rank::to_moeway(shape_.scale_dtype()), {num_tokens_, shape_.num_scales()});
    }
    in.topk_idx = tensor(ids_.data(), kI64, {num_tokens_, shape_.topk});
    if (at_dispatch()) in.topk_weights = weights();
    return in;
  }
  Tensor weights() { return tensor(weights_.data(), kF32, {num_tokens_, shape_.topk}); }
  DispatchOutput output() {
    DispatchOutput out;
    out.x = rows_tensor(out_.data(), multi_rank::to_moeway(shape_.dispatch_dtype), shape_.row_elements());
    if (shape_.num_scales() > 0) {
      out.scales = rows_tensor(out_scales_.data(), multi_rank::to_moeway(shape_.scale_dtype()), shape_.num_scales());
    }
    out.num_rows = tensor(num_rows_.data(), kI32, {sizes_.num_local_experts});
    if (shape_.layout == reference::Layout::kTokenMajor) {
      out.topk_idx = tensor(topk_idx_.data(), kI32, {sizes_.max_rows, shape_.topk});
      out.topk_weights = tensor(topk_weights_.data(), kF32, {sizes_.max_rows, shape_.topk});
    }
    return out;
  }
  Tensor rows() { return rows_tensor(rows_.data(), multi_rank::to_moeway(shape_.row_dtype), shape_.hidden); }
  Tensor y() { return tensor(y_.data(), multi_rank::to_moeway(shape_.output_dtype), {num_tokens_, shape_.hidden}); }
  Status combine(Routing routing) {
    return at_dispatch() ? object_->combine(routing, rows(), y()) : object_->combine(routing, rows(), weights(), y());
  }

  // What dispatch wrote against the reference; then the experts' rows.
  bool check_dispatch(const reference::Batch& batch, reference::Values values) {
    const reference::Received want = reference::expected_dispatch(shape_, batch, rank_, sizes_.expert_capacity);
    if (!expect(std::equal(num_rows_.begin(), num_rows_.end(), want.num_rows.begin(), want.num_rows.end()), "num_rows"))
      return false;
    const auto bytes = static_cast<size_t>(shape_.row_bytes()),
               scale_bytes = static_cast<size_t>(shape_.token_scale_bytes());
    const auto row_bytes = static_cast<size_t>(shape_.hidden * reference::dtype_bytes(shape_.row_dtype));
    const auto check = [&](int source, int token, int64_t position) {
      const reference::RankInput& from = batch[static_cast<size_t>(source)];
      const auto at = static_cast<size_t>(position), t = static_cast<size_t>(token);
      expect(std::memcmp(&out_[at * bytes], &from.x[t * bytes], bytes) == 0, "row");
      if (scale_bytes > 0)
        expect(std::memcmp(&out_scales_[at * scale_bytes], &from.scales[t * scale_bytes], scale_bytes) == 0, "scales");
    };
    const auto put = [&](int64_t position, const std::vector<std::byte>& row) {
      std::memcpy(&rows_[static_cast<size_t>(position) * row_bytes], row.data(), row_bytes);
    };
    for (const reference::Row& row : want.rows) {
      check(row.source, row.token, row.position);
      const auto at = static_cast<size_t>(row.position);
      put(row.position,
          reference::expert_row(shape_, values, row.expert, &out_[at * bytes], out_scales_.data() + at * scale_bytes));
    }
    for (const reference::TokenRow& row : want.tokens) {
      check(row.source, row.token, row.position);
      const auto at = static_cast<size_t>(row.position), k = static_cast<size_t>(shape_.topk);
      put(row.position,
          reference::token_row(shape_, values, rank_, &out_[at * bytes], out_scales_.data() + at * scale_bytes,
                               &topk_idx_[at * k], &topk_weights_[at * k]));
    }
    return wrong_.empty();
  }
  bool check_combine(const reference::RankInput& input, reference::Values values) {
    const std::vector<std::byte> want = reference::expected_combine(shape_, values, input);
    return expect(std::equal(want.begin(), want.end(), y_.begin()), "sum");
  }
  // That y's rows from `token` on are as poison() has left them.
  bool check_untouched(int64_t token) {
    const auto bytes = static_cast<size_t>(shape_.hidden * reference::dtype_bytes(shape_.output_dtype));
    return expect(std::all_of(y_.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(token) * bytes), y_.end(),
                              [](std::byte byte) { return byte == std::byte{0xff}; }),
                  "rows of y behind the tokens");
  }
  void poison() {
    for (auto* memory : {&out_, &out_scales_, &rows_, &y_}) std::fill(memory->begin(), memory->end(), std::byte{0xff});
    std::fill(num_rows_.begin(), num_rows_.end(), -7);
  }
  void poison_results() { std::fill(y_.begin(), y_.end(), std::byte{0xff}); }

 private:
  bool at_dispatch() const { return shape_.weights == reference::Weights::kAtDispatch; }
  AllToAllConfig make_config(int64_t timeout_ms) const {
    AllToAllConfig config;
    config.num_experts = shape_.num_experts;
    config.topk = shape_.topk;
    config.hidden = shape_.hidden;
    config.max_tokens = shape_.max_tokens;
    config.dispatch_dtype = multi_rank::to_moeway(shape_.dispatch_dtype);
    config.scales = multi_rank::to_moeway(shape_.scales);
    config.quantise = multi_rank::to_moeway(shape_.quantise);
    config.row_dtype = multi_rank::to_moeway(shape_.row_dtype);
    config.output_dtype = multi_rank::to_moeway(shape_.output_dtype);
    config.layout = multi_rank::to_moeway(shape_.layout);
    config.weights = multi_rank::to_moeway(shape_.weights);
    config.timeout_ms = timeout_ms;
    return config;
  }
  Tensor tensor(void* data, DType dtype, std::initializer_list<int64_t> dims) const {
    Tensor made(data, dtype, dims);
    made.device_type = MOEWAY_CUDA;
    made.device_index = device_;
    return made;
  }
  Tensor rows_tensor(void* data, DType dtype, int64_t columns) const {
    if (shape_.layout == reference::Layout::kExpertPadded) {
      return tensor(data, dtype, {sizes_.num_local_experts, sizes_.expert_capacity, columns});
    }
    return tensor(data, dtype, {sizes_.max_rows, columns});
  }
  void make_outputs() {
    const auto rows = static_cast<size_t>(sizes_.max_rows), k = static_cast<size_t>(shape_.topk);
    out_.resize(rows * static_cast<size_t>(shape_.row_bytes()));
    out_scales_.resize(rows * static_cast<size_t>(shape_.token_scale_bytes()));
    rows_.resize(rows * static_cast<size_t>(shape_.hidden * reference::dtype_bytes(shape_.row_dtype)));
    y_.resize(static_cast<size_t>(shape_.max_tokens * shape_.hidden * reference::dtype_bytes(shape_.output_dtype)));
    num_rows_.resize(static_cast<size_t>(sizes_.num_local_experts));
    topk_idx_.resize(rows * k);
    topk_weights_.resize(rows * k);
  }

  int rank_, device_ = 0;
  reference::Shape shape_;
  cudaStream_t stream_ = nullptr;
  std::string wrong_;
  std::unique_ptr<Communicator> communicator_;
  AllToAllSizes sizes_{};
  std::unique_ptr<AllToAll> object_;
  int64_t num_tokens_ = 0;
  Vector<std::byte> x_, scales_, out_, out_scales_, rows_, y_;
  Vector<int64_t> ids_;
  Vector<float> weights_, topk_weights_;
  Vector<int32_t> num_rows_, topk_idx_, count_;
};

// body(rank) for every rank at the same time; what went wrong.
inline std::string run(const reference::Shape& shape, const std::function<void(int, Rank&)>& body,
                       int64_t timeout_ms = 10000) {
  const ThreadGroup group(shape.num_ranks);
  std::vector<std::string> wrong(static_cast<size_t>(shape.num_ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < shape.num_ranks; ++r) {
    threads.emplace_back([&, r] {
      Rank rank(group, r, shape, timeout_ms);
      if (rank.wrong().empty()) body(r, rank);
      wrong[static_cast<size_t>(r)] = rank.wrong();
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string all;
  for (const std::string& text : wrong) all += text.empty() ? "" : text + "\n";
  return all;
}

}  // namespace moeway::gpu
