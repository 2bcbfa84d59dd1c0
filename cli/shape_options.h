// The options that say what is moved: shared by `moeway run` and `moeway plan`.
#pragma once

#include <moeway/all_to_all.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "cli/cli11_fwd.h"
#include "cli/option_text.h"

namespace moeway::cli {

enum class DispatchType { kBf16, kF16, kF32, kFp8, kFp8Ue8m0, kBf16ToFp8, kBf16ToFp8Ue8m0, kBytes };

struct ShapeOptions {
  std::optional<int> ranks;
  std::optional<int32_t> experts, topk;
  std::optional<int64_t> tokens;
  std::optional<int64_t> hidden;
  DispatchType dtype = DispatchType::kBf16;
  std::optional<DType> rows_dtype, out_dtype;
  std::optional<int64_t> token_bytes, scale_bytes;
  Layout layout = kExpertPadded;
  Weights weights = kWeightsAtDispatch;
  std::optional<int64_t> alignment;
  int32_t replicas = 1;
  int64_t max_recv_tokens = 0;  // 0: the worst case.
  std::optional<Overflow> overflow;
};

inline constexpr int kDefaultRanks = 8;
inline constexpr int32_t kDefaultExperts = 64;
inline constexpr int32_t kDefaultTopk = 8;
inline constexpr int64_t kDefaultTokens = 128;
inline constexpr int64_t kDefaultHidden = 2048;

void add_shape_options(CLI::App& app, ShapeOptions& options);
// Those of them that say of what form data is, without --dtype and --layout.
void add_form_options(CLI::App& app, ShapeOptions& options);

// The words for --dtype and --layout.
const Names<DispatchType>& dispatch_type_names();
const Names<Layout>& layout_names();

// Options that do not go together, and why; "" if all do.
std::string contradiction(const ShapeOptions& options);
// The same of --replicas and the number of ranks, which the options do not always know.
std::string wrong_replicas(const ShapeOptions& options, int num_ranks);

// The library's config of the shape, but for the number of experts, topk and tokens.
AllToAllConfig config_of(const ShapeOptions& options);

// The shape as every command's JSON shows it.
nlohmann::json shape_json(const AllToAllConfig& config);

const char* layout_name(Layout layout);
const char* weights_name(Weights weights);
const char* overflow_name(Overflow overflow);
const char* scales_name(Scales scales);
const char* quantise_name(Quantise quantise);
// What dispatch moves: "f8_e4m3 + f32 scales", "bf16 quantised to f8_e4m3 + f32 scales".
std::string dispatch_text(const AllToAllConfig& config);
const char* execution_name(Execution execution);

}  // namespace moeway::cli
