#include "cli/shape_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <nlohmann/json.hpp>

namespace moeway::cli {
namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxRanks = 1024;
constexpr int64_t kManyBytes = int64_t{1} << 40;

const Names<DispatchType> kDispatchTypes = {{"bf16", DispatchType::kBf16},
                                            {"f16", DispatchType::kF16},
                                            {"f32", DispatchType::kF32},
                                            {"fp8", DispatchType::kFp8},
                                            {"fp8-ue8m0", DispatchType::kFp8Ue8m0},
                                            {"bf16-to-fp8", DispatchType::kBf16ToFp8},
                                            {"bf16-to-fp8-ue8m0", DispatchType::kBf16ToFp8Ue8m0},
                                            {"bytes", DispatchType::kBytes}};
const Names<std::optional<DType>> kSumTypes = {{"bf16", kBf16}, {"f16", kF16}, {"f32", kF32}};
const Names<Layout> kLayouts = {{"padded", kExpertPadded}, {"packed", kExpertPacked}, {"token-major", kTokenMajor}};
const Names<std::optional<Overflow>> kOverflows = {{"error", kOverflowError}, {"drop", kOverflowDrop}};
const Names<Weights> kWeights = {{"dispatch", kWeightsAtDispatch}, {"combine", kWeightsAtCombine}};

}  // namespace

void add_shape_options(CLI::App& app, ShapeOptions& options) {
  app.add_option("--ranks", options.ranks, "Number of ranks [8]")->check(whole_number(1, kMaxRanks));
  app.add_option("--experts", options.experts, "Number of experts [64]")->check(whole_number(1, kInt32Max));
  app.add_option("--topk", options.topk, "Experts a token goes to [8]")->check(whole_number(1, kInt32Max));
  app.add_option("--tokens", options.tokens, "Tokens of a rank in a round [128]")->check(whole_number(1, kManyBytes));
  app.add_option("--hidden", options.hidden, "Elements of a token [2048]")->check(whole_number(1, kManyBytes));
  add_choice(app, "--dtype", options.dtype, kDispatchTypes,
             "What dispatch moves [bf16]; fp8 is e4m3 with a float32\n"
             "scale for each 128 elements, fp8-ue8m0 with a power of\n"
             "two as scale; bf16-to-... gives bf16, which dispatch\n"
             "quantises; bytes is opaque");
  add_choice(app, "--layout", options.layout, kLayouts, "How dispatch lays out what arrives [padded]");
  app.add_option("--replicas", options.replicas,
                 "Consecutive ranks that hold the same tokens, and share\nthe sending of them [1]")
      ->check(whole_number(1, kMaxRanks));
  app.add_option("--max-recv-tokens", options.max_recv_tokens,
                 "Most rows that there is room for: padded: of an expert,\n"
                 "packed: of a rank, with padding [as many as can come]")
      ->check(whole_number(1, kInt32Max));
  add_choice(app, "--overflow", options.overflow, kOverflows, "What becomes of rows that there is no room for [error]");
  add_form_options(app, options);
}

void add_form_options(CLI::App& app, ShapeOptions& options) {
  add_choice(app, "--weights", options.weights, kWeights,
             "When the router's weights are given [dispatch]: at\n"
             "dispatch, the experts' side adds up before it sends back");
  add_choice(app, "--rows-dtype", options.rows_dtype, kSumTypes,
             "What experts give back [as --dtype; fp8, bytes: bf16]");
  add_choice(app, "--out-dtype", options.out_dtype, kSumTypes, "What combine writes [as --rows-dtype]");
  app.add_option("--alignment", options.alignment, "packed: each expert's rows start at a multiple of it [1]")
      ->check(whole_number(1, kInt32Max));
  app.add_option("--token-bytes", options.token_bytes, "bytes: size of a token [--hidden]")
      ->check(whole_number(1, kManyBytes));
  app.add_option("--scale-bytes", options.scale_bytes, "bytes: size of a token's scales, 0 for none [16]")
      ->check(whole_number(0, kManyBytes));
}

const Names<DispatchType>& dispatch_type_names() { return kDispatchTypes; }
const Names<Layout>& layout_names() { return kLayouts; }

std::string contradiction(const ShapeOptions& options) {
  if (options.alignment && options.layout != kExpertPacked) return "--alignment: only with --layout packed";
  if (options.token_bytes && options.dtype != DispatchType::kBytes) return "--token-bytes: only with --dtype bytes";
  if (options.scale_bytes && options.dtype != DispatchType::kBytes) return "--scale-bytes: only with --dtype bytes";
  if (options.overflow && options.max_recv_tokens == 0) return "--overflow: only with --max-recv-tokens";
  if (options.layout == kTokenMajor && options.weights == kWeightsAtCombine)
    return "--weights combine: not with --layout token-major, where the experts' side has to add up";
  return "";
}

std::string wrong_replicas(const ShapeOptions& options, int num_ranks) {
  if (num_ranks % options.replicas == 0) return "";
  return fmt::format("--replicas: {}, expected a divisor of the number of ranks, {}", options.replicas, num_ranks);
}

AllToAllConfig config_of(const ShapeOptions& options) {
  AllToAllConfig config;
  config.replicas = options.replicas;
  config.hidden = options.hidden.value_or(kDefaultHidden);
  config.layout = options.layout;
  config.weights = options.weights;
  config.alignment = options.alignment.value_or(1);
  config.max_recv_tokens = options.max_recv_tokens;
  config.overflow = options.overflow.value_or(kOverflowError);
  DType rows = kBf16;
  switch (options.dtype) {
    case DispatchType::kBf16:
      break;
    case DispatchType::kF16:
      config.dispatch_dtype = rows = kF16;
      break;
    case DispatchType::kF32:
      config.dispatch_dtype = rows = kF32;
      break;
    case DispatchType::kFp8:
    case DispatchType::kFp8Ue8m0:
      config.dispatch_dtype = kF8E4M3;
      config.scales = options.dtype == DispatchType::kFp8 ? kScalesF32 : kScalesUe8m0;
      break;
    case DispatchType::kBf16ToFp8:
      config.dispatch_dtype = kF8E4M3;
      config.scales = kScalesF32;
      config.quantise = kQuantiseLargest;
      break;
    case DispatchType::kBf16ToFp8Ue8m0:
      config.dispatch_dtype = kF8E4M3;
      config.scales = kScalesUe8m0;
      config.quantise = kQuantisePowerOfTwo;
      break;
    case DispatchType::kBytes:
      config.dispatch_dtype = kBytes;
      config.token_bytes = options.token_bytes.value_or(config.hidden);
      config.scale_bytes = options.scale_bytes.value_or(16);
      config.scales = config.scale_bytes > 0 ? kScalesBytes : kScalesNone;
      break;
  }
  config.row_dtype = options.rows_dtype.value_or(rows);
  config.output_dtype = options.out_dtype.value_or(config.row_dtype);
  return config;
}

nlohmann::json shape_json(const AllToAllConfig& config) {
  return {{"experts", config.num_experts},
          {"topk", config.topk},
          {"hidden", config.hidden},
          {"max_tokens", config.max_tokens},
          {"dispatch_dtype", moeway_dtype_name(config.dispatch_dtype)},
          {"scales", scales_name(config.scales)},
          {"quantise", quantise_name(config.quantise)},
          {"token_bytes", config.token_bytes},
          {"scale_bytes", config.scale_bytes},
          {"row_dtype", moeway_dtype_name(config.row_dtype)},
          {"output_dtype", moeway_dtype_name(config.output_dtype)},
          {"layout", layout_name(config.layout)},
          {"alignment", config.alignment},
          {"weights", weights_name(config.weights)},
          {"distinct_experts", config.distinct_experts != 0},
          {"replicas", config.replicas},
          {"max_recv_tokens", config.max_recv_tokens},
          {"overflow", overflow_name(config.overflow)}};
}

const char* layout_name(Layout layout) {
  return layout == kExpertPadded ? "padded" : layout == kExpertPacked ? "packed" : "token-major";
}
const char* weights_name(Weights weights) { return weights == kWeightsAtDispatch ? "dispatch" : "combine"; }
const char* overflow_name(Overflow overflow) { return overflow == kOverflowError ? "error" : "drop"; }
const char* scales_name(Scales scales) {
  switch (scales) {
    case kScalesF32:
      return "f32";
    case kScalesUe8m0:
      return "ue8m0";
    case kScalesBytes:
      return "bytes";
    default:
      return "none";
  }
}
const char* quantise_name(Quantise quantise) {
  return quantise == kQuantiseNone ? "none" : quantise == kQuantiseLargest ? "largest" : "power_of_two";
}
std::string dispatch_text(const AllToAllConfig& config) {
  return fmt::format("{}{}{}", config.quantise == kQuantiseNone ? "" : "bf16 quantised to ",
                     moeway_dtype_name(config.dispatch_dtype),
                     config.scales == kScalesNone ? "" : fmt::format(" + {} scales", scales_name(config.scales)));
}
const char* execution_name(Execution execution) {
  return execution == kFibers ? "fibers" : execution == kThreads ? "threads" : "lanes";
}

}  // namespace moeway::cli
