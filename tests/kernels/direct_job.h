// Ranks of the direct protocol without the library around it: heaps and workspaces in ordinary memory, arguments filled by hand, kernels
// launched through the backend. What a rank received and summed is compared with the reference.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/plan.h"
#include "kernels/direct/dispatch.h"
#include "reference/inputs.h"
#include "reference/oracle.h"
#include "reference/shape.h"

namespace kernel_tests {

namespace direct = moeway::kernels::direct;
using moeway::launch::Half;

inline moeway_dtype to_dtype(reference::DType dtype) {
  switch (dtype) {
    case reference::DType::kBf16:
      return MOEWAY_BF16;
    case reference::DType::kF16:
      return MOEWAY_F16;
    case reference::DType::kF32:
      return MOEWAY_F32;
    case reference::DType::kF8E4M3:
      return MOEWAY_F8_E4M3;
    case reference::DType::kUe8m0:
      return MOEWAY_UE8M0;
    case reference::DType::kBytes:
      break;
  }
  return MOEWAY_BYTES;
}

inline moeway_all_to_all_config to_config(const reference::Shape& shape) {
  moeway_all_to_all_config config;
  moeway_all_to_all_config_init(&config);
  config.num_experts = shape.num_experts;
  config.topk = shape.topk;
  config.hidden = shape.hidden;
  config.max_tokens = shape.max_tokens;
  config.dispatch_dtype = to_dtype(shape.dispatch_dtype);
  config.token_bytes = shape.token_bytes;
  config.scales = static_cast<moeway_scales>(shape.scales);
  config.scale_bytes = shape.scale_bytes;
  config.quantise = static_cast<moeway_quantise>(shape.quantise);
  config.row_dtype = to_dtype(shape.row_dtype);
  config.output_dtype = to_dtype(shape.output_dtype);
  config.layout = static_cast<moeway_layout>(shape.layout);
  config.alignment = shape.alignment;
  config.weights = static_cast<moeway_weights>(shape.weights);
  config.distinct_experts = shape.distinct_experts;
  config.replicas = shape.replicas;
  config.max_recv_tokens = shape.max_recv_tokens;
  config.overflow = MOEWAY_OVERFLOW_DROP;
  return config;
}

template <class T>
using Vector = std::vector<T, Allocator<T>>;

template <class T, class A>
Vector<T> reachable(const std::vector<T, A>& from) {
  return Vector<T>(from.begin(), from.end());
}
template <class A, class B>
bool same(const A& a, const B& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

inline direct::MatrixView dense(void* data, int64_t columns, int32_t element_bytes) {
  return {static_cast<std::byte*>(data), columns * element_bytes, element_bytes, columns, element_bytes};
}

// One rank, with memory of its own.
class Rank {
 public:
  Rank(const reference::Shape& shape, int rank, const Geometry& geometry, uint64_t perturb_seed, bool self_validating)
      : shape_(shape),
        rank_(rank),
        plan_(moeway::core::make_plan(to_config(shape), rank, shape.num_ranks, self_validating).value()),
        heap_(static_cast<size_t>(plan_.sizes.heap_bytes / 16)),
        workspace_(static_cast<size_t>(plan_.sizes.workspace_bytes / 16)),
        backend_(geometry, plan_.shape, perturb_seed) {
    constexpr float kOne = 1;
    std::memcpy(round().memory + round().workspace.one(), &kOne, sizeof kOne);
    for (const moeway::layout::Range& range : round().heap.self_validating()) {
      std::memset(heap() + range.begin, 0xff, static_cast<size_t>(range.bytes));
    }
  }

  std::byte* heap() { return reinterpret_cast<std::byte*>(heap_.data()); }
  const moeway::core::Plan& plan() const { return plan_; }
  Backend& backend() { return backend_; }
  void set_peers(const std::vector<std::byte*>& heaps) {
    heaps_ = reachable(heaps);
    backend_.set_peer_words(heap() + round().heap.peer_word(0), round().heap.peer_word(1));
  }
  std::vector<int32_t> num_rows() const { return {num_rows_.begin(), num_rows_.end()}; }
  const direct::Mistakes& mistakes() const { return mistakes_[0]; }
  // From now on dispatch reads the number of tokens, and tensors have room for max_tokens.
  void set_num_tokens(int32_t num_tokens) { num_tokens_.assign(1, num_tokens); }

  direct::Round round(uint32_t lag = 0) {
    return {moeway::layout::HeapLayout{plan_.shape}, moeway::layout::WorkspaceLayout{plan_.shape},
            reinterpret_cast<std::byte*>(workspace_.data()), rank_, lag};
  }

  direct::DispatchArgs dispatch_args(reference::RankInput& input) {
    direct::DispatchArgs args{};
    args.round = round();
    x_ = reachable(reference::given_x(shape_, input));
    scales_ = reachable(input.scales);
    ids_ = reachable(input.topk_idx);
    weights_ = reachable(input.topk_weights);
    args.num_tokens = static_cast<int32_t>(input.num_tokens);
    args.num_tokens_at = num_tokens_.empty() ? nullptr : num_tokens_.data();
    const auto element = static_cast<int32_t>(reference::dtype_bytes(shape_.given_dtype()));
    args.x = dense(x_.data(), shape_.row_elements(), element);
    const auto scale = static_cast<int32_t>(reference::dtype_bytes(shape_.scale_dtype()));
    if (shape_.gives_scales()) args.scales = dense(scales_.data(), shape_.num_scales(), scale);
    args.topk_idx = {dense(ids_.data(), shape_.topk, 8)};
    if (shape_.weights == reference::Weights::kAtDispatch) {
      args.topk_weights = dense(weights_.data(), shape_.topk, 4);
    }
    args.distinct_experts = shape_.distinct_experts;
    args.mistakes = mistakes_.data();
    const int64_t rows = plan_.sizes.max_rows, row_bytes = shape_.row_bytes(), capacity = plan_.sizes.expert_capacity;
    const bool padded = shape_.layout == reference::Layout::kExpertPadded;
    out_.assign(static_cast<size_t>(rows * row_bytes), std::byte{0xff});
    out_scales_.assign(static_cast<size_t>(rows * shape_.token_scale_bytes()), std::byte{0xff});
    source_.assign(static_cast<size_t>(rows * 3), -7);
    row_weight_.assign(static_cast<size_t>(rows), -7.0f);
    num_rows_.assign(static_cast<size_t>(plan_.sizes.num_local_experts), -7);
    first_row_.assign(num_rows_.size(), -7);
    const auto rows_of = [&](void* data, int64_t bytes) {
      return direct::RowsView{static_cast<std::byte*>(data), padded ? capacity * bytes : 0, bytes};
    };
    args.out = rows_of(out_.data(), row_bytes);
    args.out_scales = rows_of(out_scales_.data(), shape_.token_scale_bytes());
    args.row_source = rows_of(source_.data(), 12);
    if (shape_.weights == reference::Weights::kAtDispatch) args.row_weight = rows_of(row_weight_.data(), 4);
    args.num_rows = num_rows_.data();
    args.num_rows_stride = 1;
    args.first_row = first_row_.data();
    args.first_row_stride = 1;
    args.expert_capacity = capacity;
    num_dropped_.assign(num_rows_.size(), -7);
    args.num_dropped = num_dropped_.data();
    args.num_dropped_stride = 1;
    args.alignment = shape_.alignment;
    args.max_expert_rows = static_cast<uint32_t>(capacity);
    args.max_rows = plan_.sizes.max_rows;
    args.drops = shape_.max_recv_tokens > 0;
    topk_idx_.assign(static_cast<size_t>(plan_.token_major() ? rows * shape_.topk : 0), -7);
    topk_weights_.assign(topk_idx_.size(), -7.0f);
    args.out_topk_idx = dense(topk_idx_.data(), shape_.topk, 4);
    args.out_topk_weights = dense(topk_weights_.data(), shape_.topk, 4);
    return args;
  }

  std::optional<moeway::exec::Failure> dispatch(Half half, const direct::DispatchArgs& args) {
    return failure_ = backend_.dispatch(half, args, peers());
  }
  std::optional<moeway::exec::Failure> combine(Half half, const direct::CombineArgs& args) {
    return failure_ = backend_.combine(half, plan_.row_element, plan_.output_element, args, peers());
  }
  // That of the latest launch.
  const std::optional<moeway::exec::Failure>& failure() const { return failure_; }

  // Bytes of the output that are neither poison nor where the batch's rows belong.
  int64_t num_foreign_bytes(const reference::Batch& batch) const {
    const reference::Received want = reference::expected_dispatch(shape_, batch, rank_, plan_.sizes.expert_capacity);
    std::vector<bool> row_belongs(static_cast<size_t>(plan_.sizes.max_rows));
    for (const reference::Row& row : want.rows) row_belongs[static_cast<size_t>(row.position)] = true;
    int64_t num_foreign = 0;
    for (size_t i = 0; i < out_.size(); ++i) {
      num_foreign += out_[i] != std::byte{0xff} && !row_belongs[i / static_cast<size_t>(shape_.row_bytes())];
    }
    return num_foreign;
  }

  // The first half of a round; "" or what is wrong with it.
  std::string run_dispatch(reference::Batch& batch, bool fused) {
    return run_dispatch(batch, dispatch_args(batch[static_cast<size_t>(rank_)]), fused);
  }
  // A whole round, with all weights taken as 1 if `unweighted` (not for token_major).
  std::string run(reference::Batch& batch, reference::Values values, bool fused, bool unweighted = false) {
    if (const std::string wrong = run_dispatch(batch, fused); !wrong.empty()) return wrong;
    return run_combine(batch, values, fused, unweighted);
  }
  // The same, the number of tokens told by a word in memory. Behind the tokens there are routes that cannot be.
  std::string run_counted(reference::Batch& batch, reference::Values values, bool fused, bool unweighted = false) {
    reference::RankInput& input = batch[static_cast<size_t>(rank_)];
    set_num_tokens(static_cast<int32_t>(input.num_tokens));
    direct::DispatchArgs args = dispatch_args(input);
    ids_.resize(static_cast<size_t>(shape_.max_tokens * shape_.topk), int64_t{1} << 40);
    x_.resize(static_cast<size_t>(shape_.max_tokens * shape_.row_bytes()), std::byte{0x5a});
    weights_.resize(ids_.size(), -7.0f);
    args.topk_idx.matrix.data = reinterpret_cast<std::byte*>(ids_.data());
    args.x.data = x_.data();
    args.topk_weights.data = reinterpret_cast<std::byte*>(weights_.data());
    args.num_tokens = static_cast<int32_t>(shape_.max_tokens);
    if (const std::string wrong = run_dispatch(batch, args, fused); !wrong.empty()) return wrong;
    return run_combine(batch, values, fused, unweighted);
  }

 private:
  std::string run_dispatch(const reference::Batch& batch, const direct::DispatchArgs& args, bool fused) {
    if (fused) {
      if (dispatch(Half::kBoth, args)) return "dispatch failed";
    } else {
      if (dispatch(Half::kSend, args)) return "dispatch_send failed";
      if (dispatch(Half::kRecv, args)) return "dispatch_recv failed";
    }
    return check_dispatch(batch, reference::expected_dispatch(shape_, batch, rank_, plan_.sizes.expert_capacity));
  }
  std::string run_combine(const reference::Batch& batch, reference::Values values, bool fused, bool unweighted) {
    const reference::RankInput& input = batch[static_cast<size_t>(rank_)];
    const reference::Received want = reference::expected_dispatch(shape_, batch, rank_, plan_.sizes.expert_capacity);
    Vector<std::byte> rows = make_rows(values, want);
    const int64_t row_bytes = shape_.hidden * reference::dtype_bytes(shape_.row_dtype);
    const auto out_bytes = static_cast<int32_t>(reference::dtype_bytes(shape_.output_dtype));
    // Every other call adds onto numbers that are there.
    Vector<std::byte> y(static_cast<size_t>(input.num_tokens * shape_.hidden * out_bytes), std::byte{0xff});
    std::vector<std::byte> before;
    const bool add = num_combines_++ % 2 == 1;
    if (add) {
      for (size_t i = 0; i < y.size(); i += static_cast<size_t>(out_bytes))
        reference::store(shape_.output_dtype, 1.25f, &y[i]);
      before.assign(y.begin(), y.end());
    }
    const bool padded = shape_.layout == reference::Layout::kExpertPadded;
    direct::CombineArgs combine_args{};
    combine_args.round = round();
    combine_args.hidden = static_cast<int32_t>(shape_.hidden);
    combine_args.rows = {rows.data(), padded ? plan_.sizes.expert_capacity * row_bytes : 0, row_bytes};
    combine_args.y = dense(y.data(), shape_.hidden, out_bytes);
    combine_args.adds_to_y = add;
    combine_args.unweighted = unweighted;
    if (shape_.weights == reference::Weights::kAtCombine && !unweighted) {
      combine_args.topk_weights = dense(weights_.data(), shape_.topk, 4);
    }
    if (fused) {
      if (combine(Half::kBoth, combine_args)) return "combine failed";
    } else {
      if (combine(Half::kSend, combine_args)) return "combine_send failed";
      if (combine(Half::kRecv, combine_args)) return "combine_recv failed";
    }
    reference::RankInput kept = reference::without_dropped(shape_, batch, rank_);
    if (unweighted) kept.topk_weights.assign(kept.topk_weights.size(), 1.0f);
    return same(y, reference::expected_combine(shape_, values, kept, before)) ? "" : "wrong sum";
  }

  moeway::peers::LoadStorePeers peers() const { return {heaps_.data(), plan_.shape.num_ranks(), heaps_.data()}; }

  const std::byte* received_row(int64_t position) const { return out_.data() + position * shape_.row_bytes(); }
  const std::byte* received_scales(int64_t position) const {
    return out_scales_.data() + position * shape_.token_scale_bytes();
  }

  std::string check_payload(const reference::Batch& batch, int32_t source, int32_t token, int64_t position) const {
    const reference::RankInput& from = batch[static_cast<size_t>(source)];
    const auto bytes = static_cast<size_t>(shape_.row_bytes()),
               scales = static_cast<size_t>(shape_.token_scale_bytes());
    const auto t = static_cast<size_t>(token);
    if (std::memcmp(received_row(position), from.x.data() + t * bytes, bytes) != 0) return "wrong row";
    if (scales > 0 && std::memcmp(received_scales(position), from.scales.data() + t * scales, scales) != 0)
      return "wrong scales";
    return "";
  }

  std::string check_dispatch(const reference::Batch& batch, const reference::Received& want) const {
    if (!same(num_rows_, want.num_rows)) return "wrong num_rows";
    if (!same(num_dropped_, want.num_dropped)) return "wrong num_dropped";
    if (plan_.token_major()) {
      if (!same(topk_idx_, want.topk_idx) || !same(topk_weights_, want.topk_weights)) return "wrong local routes";
      for (const reference::TokenRow& row : want.tokens) {
        if (const std::string wrong = check_payload(batch, row.source, row.token, row.position); !wrong.empty())
          return wrong;
      }
      return "";
    }
    if (!same(first_row_, want.first_row)) return "wrong first_row";
    for (const reference::Row& row : want.rows) {
      if (const std::string wrong = check_payload(batch, row.source, row.token, row.position); !wrong.empty())
        return wrong;
      const int32_t* source = &source_[static_cast<size_t>(3 * row.position)];
      if (source[0] != row.source || source[1] != row.token || source[2] != row.k) return "wrong source";
      if (shape_.weights == reference::Weights::kAtCombine) continue;
      const float weight = row_weight_[static_cast<size_t>(row.position)];
      const auto route = static_cast<size_t>(int64_t{row.token} * shape_.topk + row.k);
      if (weight != batch[static_cast<size_t>(row.source)].topk_weights[route]) return "wrong weight";
    }
    return "";
  }

  // What the experts of this rank make of the rows it received.
  Vector<std::byte> make_rows(reference::Values values, const reference::Received& want) const {
    const auto bytes = static_cast<size_t>(shape_.hidden * reference::dtype_bytes(shape_.row_dtype));
    Vector<std::byte> rows(static_cast<size_t>(plan_.sizes.max_rows) * bytes, std::byte{0xff});
    const auto put = [&](int64_t position, const std::vector<std::byte>& row) {
      std::memcpy(rows.data() + static_cast<size_t>(position) * bytes, row.data(), bytes);
    };
    for (const reference::Row& row : want.rows) {
      put(row.position,
          reference::expert_row(shape_, values, row.expert, received_row(row.position), received_scales(row.position)));
    }
    for (const reference::TokenRow& row : want.tokens) {
      const auto at = static_cast<size_t>(row.position * shape_.topk);
      put(row.position, reference::token_row(shape_, values, rank_, received_row(row.position),
                                             received_scales(row.position), &topk_idx_[at], &topk_weights_[at]));
    }
    return rows;
  }

  struct alignas(16) Unit {
    std::byte bytes[16];
  };
  reference::Shape shape_;
  int rank_;
  moeway::core::Plan plan_;
  Vector<Unit> heap_, workspace_;
  Backend backend_;
  Vector<std::byte*> heaps_;
  Vector<std::byte> x_, scales_, out_, out_scales_;
  Vector<int64_t> ids_, first_row_;
  Vector<float> weights_, topk_weights_, row_weight_;
  Vector<int32_t> source_, num_rows_, num_dropped_, topk_idx_;
  int num_combines_ = 0;
  Vector<int32_t> num_tokens_;  // Empty: the arguments say.
  Vector<direct::Mistakes> mistakes_{direct::Mistakes{}};
  std::optional<moeway::exec::Failure> failure_;
};

// All ranks of a job, each with a geometry of its own.
// What results must not depend on.
struct Setting {
  Geometry geometry;
  bool self_validating;  // Slots, where the types allow it.
};

inline std::vector<std::unique_ptr<Rank>> make_ranks(const reference::Shape& shape, const Setting& setting,
                                                     uint64_t seed) {
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<std::byte*> heaps;
  for (int r = 0; r < shape.num_ranks; ++r) {
    ranks.push_back(
        std::make_unique<Rank>(shape, r, setting.geometry, seed + static_cast<uint64_t>(r), setting.self_validating));
    heaps.push_back(ranks.back()->heap());
  }
  for (auto& rank : ranks) rank->set_peers(heaps);
  return ranks;
}

// Runs body(rank) for all ranks at the same time.
template <class Body>
void at_once(int num_ranks, Body body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < num_ranks; ++r) threads.emplace_back([&, r] { body(r); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace kernel_tests
