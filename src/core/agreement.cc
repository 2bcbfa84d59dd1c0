#include "core/agreement.h"

#include <array>
#include <string>
#include <vector>

#include "base/format.h"
#include "core/plan.h"

namespace moeway::core {
namespace {

std::string plain(int64_t value) { return fmt::format("{}", value); }
std::string dtype(int64_t value) { return moeway_dtype_name(static_cast<moeway_dtype>(value)); }
std::string rows_layout(int64_t value) { return layout_name(static_cast<moeway_layout>(value)); }
std::string weights(int64_t value) { return value == MOEWAY_WEIGHTS_AT_DISPATCH ? "at_dispatch" : "at_combine"; }
std::string scales(int64_t value) { return scales_name(static_cast<moeway_scales>(value)); }
std::string quantise(int64_t value) { return quantise_name(static_cast<moeway_quantise>(value)); }
std::string overflow(int64_t value) { return overflow_name(static_cast<moeway_overflow>(value)); }

struct Field {
  const char* name;
  int64_t (*get)(const moeway_all_to_all_config&);
  std::string (*show)(int64_t value);
};

using Config = moeway_all_to_all_config;
constexpr std::array kFields{
    Field{"num_experts", [](const Config& c) { return int64_t{c.num_experts}; }, plain},
    Field{"topk", [](const Config& c) { return int64_t{c.topk}; }, plain},
    Field{"hidden", [](const Config& c) { return c.hidden; }, plain},
    Field{"max_tokens", [](const Config& c) { return c.max_tokens; }, plain},
    Field{"dispatch_dtype", [](const Config& c) { return int64_t{c.dispatch_dtype}; }, dtype},
    Field{"token_bytes", [](const Config& c) { return c.token_bytes; }, plain},
    Field{"scales", [](const Config& c) { return int64_t{c.scales}; }, scales},
    Field{"scale_bytes", [](const Config& c) { return c.scale_bytes; }, plain},
    Field{"quantise", [](const Config& c) { return int64_t{c.quantise}; }, quantise},
    Field{"row_dtype", [](const Config& c) { return int64_t{c.row_dtype}; }, dtype},
    Field{"output_dtype", [](const Config& c) { return int64_t{c.output_dtype}; }, dtype},
    Field{"layout", [](const Config& c) { return int64_t{c.layout}; }, rows_layout},
    Field{"alignment", [](const Config& c) { return c.alignment; }, plain},
    Field{"weights", [](const Config& c) { return int64_t{c.weights}; }, weights},
    Field{"distinct_experts", [](const Config& c) { return int64_t{c.distinct_experts}; }, plain},
    Field{"replicas", [](const Config& c) { return int64_t{c.replicas}; }, plain},
    Field{"max_recv_tokens", [](const Config& c) { return c.max_recv_tokens; }, plain},
    Field{"overflow", [](const Config& c) { return int64_t{c.overflow}; }, overflow},
};

}  // namespace

Status compare_configs(const moeway_all_to_all_config& config, Collective& collective, Deadline deadline) {
  std::array<int64_t, kFields.size()> mine;
  for (size_t f = 0; f < kFields.size(); ++f) mine[f] = kFields[f].get(config);
  const auto all = collective.all_gather_value(mine, deadline);
  if (!all.ok()) return all.status();
  const auto& first = all.value().front();
  for (size_t f = 0; f < kFields.size(); ++f) {
    for (size_t r = 1; r < all.value().size(); ++r) {
      const int64_t value = all.value()[r][f];
      if (value == first[f]) continue;
      return error(MOEWAY_MISMATCH, "{} must be equal on all ranks: rank 0 has {}, rank {} has {}", kFields[f].name,
                   kFields[f].show(first[f]), r, kFields[f].show(value));
    }
  }
  return {};
}

}  // namespace moeway::core
