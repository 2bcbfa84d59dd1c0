#include "cli/bench/series.h"

#include <nlohmann/json.hpp>

namespace moeway::cli {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PointReport, tokens, pair_us, dispatch_us, rows_checked, sums_checked, wrong,
                                   findings, heap_bytes, workspace_bytes, dispatch_bytes, combine_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BaselineReport, name, tokens, dispatch_bytes, combine_bytes, pair_us, wrong, skipped)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceReport, name, driver_cuda, runtime_cuda, multiprocessors)

void to_json(nlohmann::json& to, const SeriesReport& report) {
  to = {{"points", report.points}, {"baselines", report.baselines}, {"nccl", report.nccl}, {"device", report.device}};
}

void from_json(const nlohmann::json& from, SeriesReport& report) {
  from.at("points").get_to(report.points);
  from.at("baselines").get_to(report.baselines);
  from.at("nccl").get_to(report.nccl);
  from.at("device").get_to(report.device);
}

}  // namespace moeway::cli
