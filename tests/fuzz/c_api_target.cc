// The structs of the C interface with any bytes in them, calls in any order. Tensors have the memory that they describe
// (tensor_memory.h), everything else is the input's.
#include <moeway/c_api.h>

#include <optional>

#include "fuzz/input.h"
#include "fuzz/tensor_memory.h"

namespace moeway::fuzz {
namespace {

constexpr int64_t kMostMemory = int64_t{1} << 20;
constexpr int kMostCalls = 12;

// A struct with a piece of the input somewhere in it.
template <class T>
void change(T& value, Input& input) {
  const Bytes piece = input.piece();
  if (piece.empty()) return;
  const size_t offset = input.byte() % sizeof(T);
  std::copy_n(piece.begin(), std::min(piece.size(), sizeof(T) - offset), reinterpret_cast<uint8_t*>(&value) + offset);
}

// What a call may give for arguments that one rank alone can get wrong.
void require_expected(moeway_status status) {
  if (status == MOEWAY_OK) return;
  require(status == MOEWAY_INVALID_ARGUMENT || status == MOEWAY_WRONG_STATE || status == MOEWAY_UNAVAILABLE ||
              status == MOEWAY_OUT_OF_MEMORY,
          "a caller's mistake is told as one", moeway_last_error());
  require_readable(Status(status, moeway_last_error()));
}

// An expert's owner owns it.
void require_owner(int32_t expert, int32_t num_experts, int32_t num_ranks) {
  const int32_t owner = moeway_expert_owner(expert, num_experts, num_ranks);
  require(owner >= -1 && (owner == -1 || owner < num_ranks), "an owner is a rank, or -1");
  if (owner < 0) return;
  const int64_t first = moeway_first_expert(owner, num_experts, num_ranks);
  require(first <= expert && expert < first + moeway_num_local_experts(owner, num_experts, num_ranks),
          "an expert's owner owns it");
}

moeway_tensor tensor(moeway_dtype dtype, std::initializer_list<int64_t> shape) {
  moeway_tensor made{};
  made.dtype = dtype;
  made.ndim = static_cast<int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), made.shape);
  int64_t stride = 1;
  for (int i = made.ndim - 1; i >= 0; --i) {
    made.strides[i] = stride;
    stride *= made.shape[i];
  }
  return made;
}

// One object of one rank, and a round's arguments made of the input.
class Calls {
 public:
  Calls(const moeway_all_to_all_config& config, const moeway_all_to_all_sizes& sizes, Input& input)
      : config_(config), sizes_(sizes), input_(input) {}
  ~Calls() { moeway_all_to_all_destroy(object_); }

  void run() {
    if (!open()) return;
    for (int i = 0; i < kMostCalls && !input_.empty(); ++i) call(input_.byte() % 13);
  }

 private:
  static int32_t gather_alone(void*, const void* in, size_t bytes, void* out) {
    std::memcpy(out, in, bytes);
    return 0;
  }

  bool open() {
    moeway_bootstrap* bootstrap = nullptr;
    require(moeway_bootstrap_create_callback(0, 1, gather_alone, nullptr, &bootstrap) == MOEWAY_OK, "a lone rank");
    moeway_communicator_options options;
    moeway_communicator_options_init(&options);
    change(options, input_);
    moeway_communicator* communicator = nullptr;
    moeway_status status = moeway_communicator_create(bootstrap, &options, &communicator);
    require_expected(status);
    if (status != MOEWAY_OK) return false;
    status = moeway_all_to_all_create(communicator, &config_, &object_);
    require_expected(status);
    moeway_communicator_destroy(communicator);
    return status == MOEWAY_OK;
  }

  moeway_dtype scales_dtype() const {
    return config_.scales == MOEWAY_SCALES_F32     ? MOEWAY_F32
           : config_.scales == MOEWAY_SCALES_UE8M0 ? MOEWAY_UE8M0
                                                   : MOEWAY_BYTES;
  }
  int64_t columns() const { return sizes_.row_bytes / moeway_dtype_bytes(config_.dispatch_dtype); }

  moeway_dispatch_input make_input(TensorMemory& memory) {
    moeway_dispatch_input made;
    moeway_dispatch_input_init(&made);
    const uint8_t given = input_.byte();
    num_tokens_ = given % (config_.max_tokens + 1);
    const bool quantises = config_.quantise != MOEWAY_QUANTISE_NONE;
    made.x = memory.make(quantises ? tensor(MOEWAY_BF16, {num_tokens_, config_.hidden})
                                   : tensor(config_.dispatch_dtype, {num_tokens_, columns()}),
                         input_);
    if (config_.scales != MOEWAY_SCALES_NONE && !quantises)
      made.scales = memory.make(tensor(scales_dtype(), {num_tokens_, sizes_.num_scales}), input_);
    if (config_.weights == MOEWAY_WEIGHTS_AT_DISPATCH)
      made.topk_weights = memory.make(tensor(MOEWAY_F32, {num_tokens_, config_.topk}), input_);
    made.topk_idx = memory.make(tensor(MOEWAY_I32, {num_tokens_, config_.topk}), input_);
    memory.fill_experts(made.topk_idx, config_.num_experts, input_);
    if (given >= 128) {
      made.num_tokens = memory.make(tensor(MOEWAY_I32, {1}), input_);
      memory.fill_experts(made.num_tokens, static_cast<int32_t>(config_.max_tokens), input_);
    }
    return made;
  }

  // x, or rows of another type, in the object's layout.
  moeway_tensor rows(moeway_dtype dtype, int64_t last) const {
    if (config_.layout == MOEWAY_EXPERT_PADDED)
      return tensor(dtype, {sizes_.num_local_experts, sizes_.expert_capacity, last});
    return tensor(dtype, {sizes_.max_rows, last});
  }

  moeway_dispatch_output make_output(TensorMemory& memory) {
    moeway_dispatch_output made;
    moeway_dispatch_output_init(&made);
    const uint8_t given = input_.byte();
    const bool token_major = config_.layout == MOEWAY_TOKEN_MAJOR;
    const bool in_heap = token_major && given % 2 != 0;
    if (!in_heap) made.x = memory.make(rows(config_.dispatch_dtype, columns()), input_);
    if (!in_heap && config_.scales != MOEWAY_SCALES_NONE)
      made.scales = memory.make(rows(scales_dtype(), sizes_.num_scales), input_);
    made.num_rows = memory.make(tensor(MOEWAY_I32, {sizes_.num_local_experts}), input_);
    if (!token_major && given % 4 < 2)
      made.first_row = memory.make(tensor(MOEWAY_I64, {sizes_.num_local_experts}), input_);
    if (!token_major && given % 8 < 4) made.row_source = memory.make(rows(MOEWAY_I32, 3), input_);
    if (token_major) {
      made.topk_idx = memory.make(tensor(MOEWAY_I32, {sizes_.max_rows, config_.topk}), input_);
      made.topk_weights = memory.make(tensor(MOEWAY_F32, {sizes_.max_rows, config_.topk}), input_);
    }
    if (given % 16 >= 8) made.row_weight = memory.make(rows(MOEWAY_F32, 1), input_);
    if (given % 32 >= 16) made.num_dropped = memory.make(tensor(MOEWAY_I32, {sizes_.num_local_experts}), input_);
    return made;
  }

  // struct_size alone: everything else of these structs is tensors.
  template <class T>
  bool change_size(T& value) {
    if (input_.byte() % 16 != 15) return false;
    value.struct_size = input_.value<uint32_t>();
    return value.struct_size != sizeof(T);
  }

  void call(int which) {
    TensorMemory memory;
    moeway_routing routing = routing_;
    const uint8_t how = input_.byte();
    if (how % 8 == 7) change(routing, input_);
    if (how % 16 == 8) routing.unweighted = 1;
    bool refuse = false;
    moeway_status status = MOEWAY_OK;
    switch (which) {
      case 0:
      case 1: {
        moeway_dispatch_input in = make_input(memory);
        refuse = change_size(in);
        if (which == 0) {
          status = moeway_dispatch_send(object_, &in, &routing);
        } else {
          moeway_dispatch_output out = make_output(memory);
          refuse = change_size(out) || refuse;
          status = moeway_dispatch(object_, &in, &out, &routing);
        }
        if (status == MOEWAY_OK) routing_ = routing;
        break;
      }
      case 2: {
        moeway_dispatch_output out = make_output(memory);
        refuse = change_size(out);
        status = moeway_dispatch_recv(object_, routing, &out);
        break;
      }
      case 3: {
        const moeway_tensor given = memory.make(rows(config_.row_dtype, config_.hidden), input_);
        status = moeway_combine_send(object_, routing, &given);
        break;
      }
      case 4:
      case 5:
      case 10:
      case 11: {
        std::optional<moeway_tensor> given, weights;
        const bool adds = which >= 10;
        if (which % 2 != 0) given = memory.make(rows(config_.row_dtype, config_.hidden), input_);
        if (config_.weights == MOEWAY_WEIGHTS_AT_COMBINE && routing.unweighted == 0)
          weights = memory.make(tensor(MOEWAY_F32, {num_tokens_, config_.topk}), input_);
        const moeway_tensor y = memory.make(tensor(config_.output_dtype, {num_tokens_, config_.hidden}), input_);
        const moeway_tensor* const some_weights = weights ? &*weights : nullptr;
        if (given)
          status = (adds ? moeway_combine_add : moeway_combine)(object_, routing, &*given, some_weights, &y);
        else
          status = (adds ? moeway_combine_recv_add : moeway_combine_recv)(object_, routing, some_weights, &y);
        break;
      }
      case 6: {
        moeway_tensor x{}, scales{};
        status = moeway_dispatch_view(object_, routing, &x, input_.byte() % 2 == 0 ? &scales : nullptr);
        break;
      }
      case 7: {
        moeway_all_to_all_stats stats;
        moeway_all_to_all_stats_init(&stats);
        refuse = change_size(stats);
        status = moeway_all_to_all_get_stats(object_, &stats);
        break;
      }
      case 12: {
        moeway_peer_stats stats[2];
        for (moeway_peer_stats& peer : stats) moeway_peer_stats_init(&peer);
        refuse = change_size(stats[0]);
        const int32_t num_peers = input_.byte() % 3;
        status = moeway_all_to_all_get_peer_stats(object_, num_peers, stats);
        refuse = refuse || num_peers != 1;
        break;
      }
      case 8:
        status = moeway_all_to_all_set_stream(object_, nullptr);
        break;
      default:
        if (input_.byte() % 4 == 3) moeway_all_to_all_close(object_);
        break;
    }
    const bool is_bounded = config_.max_recv_tokens != 0 && config_.overflow == MOEWAY_OVERFLOW_ERROR;
    if (status != MOEWAY_OVERFLOW || !is_bounded) require_expected(status);
    require(status != MOEWAY_OK || (!refuse && !memory.must_refuse()), "what no call may accept is refused");
    if (status == MOEWAY_INVALID_ARGUMENT)
      require(moeway_all_to_all_status(object_) == MOEWAY_OK, "a correct call may follow a wrong one",
              moeway_last_error());
  }

  const moeway_all_to_all_config config_;
  const moeway_all_to_all_sizes sizes_;
  Input& input_;
  moeway_all_to_all* object_ = nullptr;
  moeway_routing routing_{};
  int64_t num_tokens_ = 0;
};

// So small that a program makes many of them.
bool is_small(const moeway_all_to_all_config& config, const moeway_all_to_all_sizes& sizes) {
  if (config.execution == MOEWAY_FIBERS ? config.num_warps > 16 : config.num_warps > 2) return false;
  for (const int64_t bytes : {sizes.heap_bytes, sizes.workspace_bytes, sizes.max_rows, sizes.row_bytes,
                              config.hidden * 4, sizes.num_local_experts})
    if (bytes > kMostMemory) return false;
  const int64_t row = std::max({sizes.row_bytes, config.hidden * 4, int64_t{12}, int64_t{config.topk} * 8});
  return sizes.max_rows * row <= kMostMemory;
}

void run(Bytes bytes) {
  Input input(bytes);
  moeway_all_to_all_config config;
  moeway_all_to_all_config_init(&config);
  config.num_experts = 1 + input.below_or_at(7);
  config.topk = 1 + input.below_or_at(config.num_experts - 1);
  config.hidden = 1 + input.below_or_at(40);
  config.max_tokens = 1 + input.below_or_at(4);
  constexpr moeway_dtype kTypes[] = {MOEWAY_BF16, MOEWAY_F16, MOEWAY_F32, MOEWAY_F8_E4M3, MOEWAY_BYTES};
  config.dispatch_dtype = kTypes[input.below_or_at(4)];
  config.row_dtype = kTypes[input.below_or_at(2)];
  config.output_dtype = kTypes[input.below_or_at(2)];
  if (config.dispatch_dtype == MOEWAY_BYTES) config.token_bytes = 1 + input.below_or_at(40);
  config.scales = static_cast<moeway_scales>(input.below_or_at(3));
  if (config.scales == MOEWAY_SCALES_BYTES) config.scale_bytes = 1 + input.below_or_at(8);
  config.layout = static_cast<moeway_layout>(input.below_or_at(2));
  if (config.layout == MOEWAY_EXPERT_PACKED) config.alignment = 1 + input.below_or_at(8);
  if (config.layout != MOEWAY_TOKEN_MAJOR) config.weights = static_cast<moeway_weights>(input.below_or_at(1));
  const uint8_t more = input.byte();
  config.distinct_experts = more % 2;
  if ((more & 2) != 0) config.quantise = static_cast<moeway_quantise>(1 + more / 128);
  if ((more & 4) != 0) config.max_recv_tokens = config.alignment * (1 + more / 16);
  if ((more & 8) != 0) config.overflow = MOEWAY_OVERFLOW_DROP;
  change(config, input);
  moeway_all_to_all_sizes sizes;
  moeway_all_to_all_sizes_init(&sizes);
  if (input.byte() == 255) sizes.struct_size = input.value<uint32_t>();
  const bool lone = input.byte() % 4 != 3;
  const int32_t num_ranks = lone ? 1 : input.value<int32_t>();
  const int32_t rank = lone ? 0 : input.value<int32_t>();
  require_owner(rank, config.num_experts, num_ranks);
  const moeway_status status = moeway_all_to_all_get_sizes(&config, rank, num_ranks, &sizes);
  require_expected(status);
  if (status != MOEWAY_OK) return;
  require(sizes.heap_bytes > 0 && sizes.workspace_bytes > 0 && sizes.max_rows >= 0 && sizes.row_bytes > 0 &&
              sizes.num_scales >= 0 && sizes.expert_capacity > 0 && sizes.num_local_experts >= 0,
          "sizes are no negative numbers");
  if (lone && is_small(config, sizes)) Calls(config, sizes, input).run();
}

const Registration kTarget("c_api", run);

}  // namespace
}  // namespace moeway::fuzz
