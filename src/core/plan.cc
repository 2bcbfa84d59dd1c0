#include "core/plan.h"

#include <algorithm>
#include <limits>

#include "base/checked.h"
#include "base/format.h"
#include "layout/heap_layout.h"
#include "layout/workspace_layout.h"

namespace moeway::core {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxRowBytes = int64_t{1} << 34;  // A row's units are counted in int32.
constexpr int64_t kMaxUint16 = std::numeric_limits<uint16_t>::max();

Status check_at_least(const char* name, int64_t value, int64_t least) {
  if (value >= least) return {};
  return invalid_argument("{} is {}, expected at least {}", name, value, least);
}

Status check_range(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return {};
  return invalid_argument("{} is {}, expected {} to {}", name, value, least, most);
}

Status check_enum(const char* name, int value, int last) {
  if (value >= 0 && value <= last) return {};
  return invalid_argument("{} is {}, which is no such value (0 to {})", name, value, last);
}

bool is_combine_dtype(moeway_dtype dtype) { return dtype == MOEWAY_BF16 || dtype == MOEWAY_F16 || dtype == MOEWAY_F32; }

launch::Element element_of(moeway_dtype dtype) {
  if (dtype == MOEWAY_BF16) return launch::Element::kBf16;
  return dtype == MOEWAY_F16 ? launch::Element::kF16 : launch::Element::kF32;
}

Status check_numbers(const moeway_all_to_all_config& config) {
  if (config.struct_size != sizeof(config)) {
    return invalid_argument("config.struct_size is {}, expected {}: fill the config with moeway_all_to_all_config_init",
                            config.struct_size, sizeof(config));
  }
  if (Status s = check_at_least("num_experts", config.num_experts, 1); !s.ok()) return s;
  if (config.topk < 1 || config.topk > config.num_experts) {
    return invalid_argument("topk is {}, expected 1 to num_experts = {}", config.topk, config.num_experts);
  }
  // A row's bytes and everything made from them stay far below 64 bits.
  if (Status s = check_range("hidden", config.hidden, 1, kMaxInt32); !s.ok()) return s;
  if (Status s = check_range("max_tokens", config.max_tokens, 1, kMaxInt32); !s.ok()) return s;
  if (Status s = check_range("alignment", config.alignment, 1, kMaxInt32); !s.ok()) return s;
  if (Status s = check_range("num_warps", config.num_warps, 1, 256); !s.ok()) return s;
  if (Status s = check_range("num_sms", config.num_sms, 0, layout::kMaxTeams); !s.ok()) return s;
  if (Status s = check_at_least("timeout_ms", config.timeout_ms, 1); !s.ok()) return s;
  if (Status s = check_at_least("max_recv_tokens", config.max_recv_tokens, 0); !s.ok()) return s;
  return check_range("distinct_experts", config.distinct_experts, 0, 1);
}

Status check_quantise(const moeway_all_to_all_config& config) {
  if (config.quantise == MOEWAY_QUANTISE_NONE) return {};
  if (config.dispatch_dtype != MOEWAY_F8_E4M3) {
    return invalid_argument("quantise is {} with dispatch_dtype {}, expected dispatch_dtype f8_e4m3",
                            quantise_name(config.quantise), moeway_dtype_name(config.dispatch_dtype));
  }
  if (config.scales != MOEWAY_SCALES_F32 && config.scales != MOEWAY_SCALES_UE8M0) {
    return invalid_argument("quantise is {} with scales {}, expected scales f32 or ue8m0: what dispatch makes",
                            quantise_name(config.quantise), scales_name(config.scales));
  }
  if (config.scales == MOEWAY_SCALES_UE8M0 && config.quantise != MOEWAY_QUANTISE_POWER_OF_TWO) {
    return invalid_argument("quantise is {} with scales ue8m0, expected power_of_two: ue8m0 holds nothing else",
                            quantise_name(config.quantise));
  }
  return {};
}

exec::Scaling scaling_of(const moeway_all_to_all_config& config) {
  if (config.quantise == MOEWAY_QUANTISE_NONE) return exec::Scaling::kNone;
  if (config.scales == MOEWAY_SCALES_UE8M0) return exec::Scaling::kUe8m0;
  return config.quantise == MOEWAY_QUANTISE_POWER_OF_TWO ? exec::Scaling::kFloatPowerOfTwo : exec::Scaling::kFloat;
}

Status check_choices(const moeway_all_to_all_config& config) {
  if (Status s = check_enum("scales", config.scales, MOEWAY_SCALES_BYTES); !s.ok()) return s;
  if (Status s = check_enum("layout", config.layout, MOEWAY_TOKEN_MAJOR); !s.ok()) return s;
  if (Status s = check_enum("weights", config.weights, MOEWAY_WEIGHTS_AT_COMBINE); !s.ok()) return s;
  if (Status s = check_enum("quantise", config.quantise, MOEWAY_QUANTISE_POWER_OF_TWO); !s.ok()) return s;
  if (Status s = check_enum("execution", config.execution, MOEWAY_LANES); !s.ok()) return s;
  if (Status s = check_enum("overflow", config.overflow, MOEWAY_OVERFLOW_DROP); !s.ok()) return s;
  if (config.dispatch_dtype != MOEWAY_BYTES && config.dispatch_dtype != MOEWAY_F8_E4M3 &&
      !is_combine_dtype(config.dispatch_dtype)) {
    return invalid_argument("dispatch_dtype is {}, expected bf16, f16, f32, f8_e4m3 or bytes",
                            moeway_dtype_name(config.dispatch_dtype));
  }
  if (!is_combine_dtype(config.row_dtype)) {
    return invalid_argument("row_dtype is {}, expected bf16, f16 or f32", moeway_dtype_name(config.row_dtype));
  }
  if (!is_combine_dtype(config.output_dtype)) {
    return invalid_argument("output_dtype is {}, expected bf16, f16 or f32", moeway_dtype_name(config.output_dtype));
  }
  const bool bytes = config.dispatch_dtype == MOEWAY_BYTES;
  if (Status s = bytes ? check_range("token_bytes", config.token_bytes, 1, kMaxRowBytes)
                       : check_range("token_bytes (dispatch_dtype is not bytes)", config.token_bytes, 0, 0);
      !s.ok()) {
    return s;
  }
  if (Status s = config.scales == MOEWAY_SCALES_BYTES
                     ? check_range("scale_bytes", config.scale_bytes, 1, kMaxRowBytes)
                     : check_range("scale_bytes (scales are not bytes)", config.scale_bytes, 0, 0);
      !s.ok()) {
    return s;
  }
  if (Status s = check_quantise(config); !s.ok()) return s;
  if (config.layout == MOEWAY_TOKEN_MAJOR && config.weights == MOEWAY_WEIGHTS_AT_COMBINE) {
    return invalid_argument(
        "weights is at_combine with layout token_major, expected at_dispatch: token_major rows are weighted by the "
        "caller, who needs the weights with the tokens");
  }
  if (config.layout != MOEWAY_EXPERT_PACKED && config.alignment != 1) {
    return invalid_argument("alignment is {} with layout {}, expected 1: only expert_packed aligns experts",
                            config.alignment, layout_name(config.layout));
  }
  if (config.layout == MOEWAY_EXPERT_PACKED && config.max_recv_tokens % config.alignment != 0) {
    return invalid_argument(
        "max_recv_tokens is {} with layout expert_packed, expected a multiple of alignment = {}: an expert's rows end "
        "at one",
        config.max_recv_tokens, config.alignment);
  }
  return {};
}

layout::Shape make_shape(const moeway_all_to_all_config& config, int32_t num_ranks) {
  layout::Shape shape{};
  shape.experts = {config.num_experts, num_ranks};
  shape.topk = config.topk;
  shape.max_tokens = static_cast<int32_t>(config.max_tokens);
  shape.replicas = config.replicas;
  shape.row_bytes = config.dispatch_dtype == MOEWAY_BYTES ? config.token_bytes
                                                          : config.hidden * moeway_dtype_bytes(config.dispatch_dtype);
  const int64_t num_blocks = (config.hidden + exec::kScaleBlock - 1) / exec::kScaleBlock;
  switch (config.scales) {
    case MOEWAY_SCALES_NONE:
      break;
    case MOEWAY_SCALES_F32:
      shape.scales_bytes = 4 * num_blocks;
      break;
    case MOEWAY_SCALES_UE8M0:
      shape.scales_bytes = num_blocks;
      break;
    case MOEWAY_SCALES_BYTES:
      shape.scales_bytes = config.scale_bytes;
      break;
  }
  shape.scaling = scaling_of(config);
  shape.rows = config.layout == MOEWAY_EXPERT_PADDED   ? layout::Rows::kPadded
               : config.layout == MOEWAY_EXPERT_PACKED ? layout::Rows::kPacked
                                                       : layout::Rows::kTokenMajor;
  shape.results = config.weights == MOEWAY_WEIGHTS_AT_COMBINE ? layout::Results::kPerRoute
                  : config.layout == MOEWAY_TOKEN_MAJOR       ? layout::Results::kPerRank
                                                              : layout::Results::kReduced;
  const bool reduced = shape.results == layout::Results::kReduced;
  shape.result_bytes = config.hidden * moeway_dtype_bytes(reduced ? config.output_dtype : config.row_dtype);
  return shape;
}

// Every offset of the layouts and every row count must fit; what does not is refused with its size.
Status check_sizes(const layout::Shape& shape, const moeway_all_to_all_config& config) {
  const CheckedSize routes = CheckedSize(shape.num_ranks()) * shape.max_tokens * shape.topk;
  if (!routes.ok() || routes.value() > kMaxInt32) {
    return invalid_argument(
        "ranks * max_tokens * topk = {} * {} * {}, expected at most {} (rows are counted in int32): max_tokens at most "
        "{}",
        shape.num_ranks(), shape.max_tokens, shape.topk, kMaxInt32, kMaxInt32 / shape.num_ranks() / shape.topk);
  }
  if (shape.topk > kMaxUint16 || shape.experts.max_local() > kMaxUint16) {
    return invalid_argument("topk is {} and a rank has {} of {} experts, expected at most {} each", shape.topk,
                            shape.experts.max_local(), shape.experts.num_experts, kMaxUint16);
  }
  if (layout::RouteBits::needed(shape) > 48) {
    return invalid_argument(
        "experts of a rank {}, topk {} and max_tokens * topk {} need {} bits in a header, expected at most 48",
        shape.experts.max_local(), shape.topk, int64_t{shape.max_tokens} * shape.topk,
        layout::RouteBits::needed(shape));
  }
  const int64_t num_tokens = int64_t{shape.num_groups()} * shape.max_tokens;
  if (config.layout == MOEWAY_TOKEN_MAJOR && config.max_recv_tokens > 0 && config.max_recv_tokens < num_tokens) {
    return invalid_argument(
        "max_recv_tokens is {} with layout token_major, expected 0 or at least {} * max_tokens = {} * {} = {}: a "
        "token's "
        "row has a fixed place there",
        config.max_recv_tokens, shape.replicated() ? "ranks / replicas" : "ranks", shape.num_groups(), shape.max_tokens,
        num_tokens);
  }
  // More than any region holds for a (rank, token) pair, headers and rounding included. Bytes of the whole are below
  // 2^62, so that no offset can wrap.
  constexpr int64_t kLimit = int64_t{1} << 62;
  const CheckedSize per_token =
      CheckedSize(shape.row_bytes) + shape.scales_bytes + CheckedSize(shape.topk) * (64 + shape.result_bytes) + 512;
  const CheckedSize bound =
      CheckedSize(layout::kEpochs) * shape.num_ranks() * (CheckedSize(shape.max_tokens) + 1) * per_token +
      CheckedSize(shape.experts.num_experts) * 64 * shape.num_ranks();
  if (!bound.ok() || bound.value() > kLimit) {
    return invalid_argument(
        "max_tokens {}, hidden {}, token_bytes {}, scale_bytes {} and topk {} on {} ranks need more than 2^62 bytes",
        config.max_tokens, config.hidden, config.token_bytes, config.scale_bytes, config.topk, shape.num_ranks());
  }
  return {};
}

moeway_all_to_all_sizes make_sizes(const layout::Shape& shape, const moeway_all_to_all_config& config, int32_t rank) {
  moeway_all_to_all_sizes sizes{};
  sizes.struct_size = sizeof(sizes);
  sizes.first_local_expert = shape.experts.first(rank);
  const int64_t num_local = sizes.num_local_experts = shape.experts.count(rank);
  const int64_t num_tokens = int64_t{shape.num_groups()} * shape.max_tokens;
  const bool distinct = config.distinct_experts != 0;
  const int64_t most = config.max_recv_tokens > 0 ? config.max_recv_tokens : std::numeric_limits<int64_t>::max();
  sizes.expert_capacity = std::min(most, num_tokens * (distinct ? 1 : shape.topk));
  switch (config.layout) {
    case MOEWAY_EXPERT_PADDED:
      sizes.max_rows = num_local * sizes.expert_capacity;
      break;
    case MOEWAY_EXPERT_PACKED: {
      const int64_t rows =
          num_local == 0 ? 0 : num_tokens * (distinct ? std::min<int64_t>(shape.topk, num_local) : shape.topk);
      sizes.max_rows = std::min(most, rows + std::min(num_local, rows) * (config.alignment - 1));
      break;
    }
    case MOEWAY_TOKEN_MAJOR:
      sizes.max_rows = num_tokens;
      break;
  }
  sizes.row_bytes = shape.row_bytes;
  sizes.num_scales = config.scales == MOEWAY_SCALES_F32 ? shape.scales_bytes / 4 : shape.scales_bytes;
  sizes.heap_bytes = layout::HeapLayout{shape}.bytes();
  sizes.workspace_bytes = layout::WorkspaceLayout{shape}.bytes();
  return sizes;
}

}  // namespace

moeway_dtype Plan::scales_dtype() const {
  if (config.scales == MOEWAY_SCALES_F32) return MOEWAY_F32;
  return config.scales == MOEWAY_SCALES_UE8M0 ? MOEWAY_UE8M0 : MOEWAY_BYTES;
}

const char* scales_name(moeway_scales scales) {
  switch (scales) {
    case MOEWAY_SCALES_NONE:
      return "none";
    case MOEWAY_SCALES_F32:
      return "f32";
    case MOEWAY_SCALES_UE8M0:
      return "ue8m0";
    case MOEWAY_SCALES_BYTES:
      return "bytes";
  }
  return "unknown";
}

const char* quantise_name(moeway_quantise quantise) {
  switch (quantise) {
    case MOEWAY_QUANTISE_NONE:
      return "none";
    case MOEWAY_QUANTISE_LARGEST:
      return "largest";
    case MOEWAY_QUANTISE_POWER_OF_TWO:
      return "power_of_two";
  }
  return "unknown";
}

const char* layout_name(moeway_layout layout) {
  switch (layout) {
    case MOEWAY_EXPERT_PADDED:
      return "expert_padded";
    case MOEWAY_EXPERT_PACKED:
      return "expert_packed";
    case MOEWAY_TOKEN_MAJOR:
      return "token_major";
  }
  return "unknown";
}

const char* overflow_name(moeway_overflow overflow) { return overflow == MOEWAY_OVERFLOW_ERROR ? "error" : "drop"; }

Result<Plan> make_plan(const moeway_all_to_all_config& config, int32_t rank, int32_t num_ranks, bool self_validating) {
  if (Status s = check_at_least("num_ranks", num_ranks, 1); !s.ok()) return s;
  if (Status s = check_range("rank", rank, 0, num_ranks - 1); !s.ok()) return s;
  if (Status s = check_numbers(config); !s.ok()) return s;
  if (Status s = check_choices(config); !s.ok()) return s;
  if (config.replicas < 1 || num_ranks % config.replicas != 0) {
    return invalid_argument("replicas is {}, expected a divisor of the number of ranks, {}", config.replicas,
                            num_ranks);
  }
  Plan plan{};
  plan.config = config;
  plan.shape = make_shape(config, num_ranks);
  if (self_validating) {
    // A caller's UE8M0 scales may be all ones; those that dispatch makes are not.
    const bool typed =
        plan.shape.quantises() || (config.dispatch_dtype != MOEWAY_BYTES &&
                                   (config.scales == MOEWAY_SCALES_NONE || config.scales == MOEWAY_SCALES_F32));
    // A view must find the tokens where they came.
    if (typed && config.layout != MOEWAY_TOKEN_MAJOR) plan.shape.payload_arrival = layout::Arrival::kSelfValidating;
    plan.shape.result_arrival = layout::Arrival::kSelfValidating;
  }
  if (Status s = check_sizes(plan.shape, config); !s.ok()) return s;
  plan.row_element = element_of(config.row_dtype);
  plan.output_element = element_of(config.output_dtype);
  plan.sizes = make_sizes(plan.shape, config, rank);
  return plan;
}

}  // namespace moeway::core
