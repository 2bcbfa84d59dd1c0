#include "cli/rank_report.h"

#include <nlohmann/json.hpp>

namespace moeway::cli {

using nlohmann::json;

void to_json(json& to, const Mismatch& mismatch) {
  to = json{{"rank", mismatch.rank},
            {"round", mismatch.round},
            {"what", mismatch.what},
            {"expected", mismatch.expected},
            {"got", mismatch.got}};
  const auto put = [&to](const char* name, int64_t value) {
    if (value >= 0) to[name] = value;
  };
  if (mismatch.object > 0) to["object"] = mismatch.object;
  put("expert", mismatch.expert);
  put("row", mismatch.row);
  put("element", mismatch.element);
  put("from_rank", mismatch.from_rank);
  put("from_token", mismatch.from_token);
  put("from_k", mismatch.from_k);
}

void from_json(const json& from, Mismatch& mismatch) {
  from.at("rank").get_to(mismatch.rank);
  from.at("round").get_to(mismatch.round);
  mismatch.object = from.value("object", 0);
  from.at("what").get_to(mismatch.what);
  from.at("expected").get_to(mismatch.expected);
  from.at("got").get_to(mismatch.got);
  mismatch.expert = from.value("expert", int64_t{-1});
  mismatch.row = from.value("row", int64_t{-1});
  mismatch.element = from.value("element", int64_t{-1});
  mismatch.from_rank = from.value("from_rank", int64_t{-1});
  mismatch.from_token = from.value("from_token", int64_t{-1});
  mismatch.from_k = from.value("from_k", int64_t{-1});
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Moved, tokens, routes, tokens_sent, tokens_received, rows_received, rows_dropped)

void to_json(json& to, const RankReport& report) {
  to = {{"rank", report.rank},
        {"failure", report.failure},
        {"transport", report.transport},
        {"rounds", report.rounds},
        {"first_expert", report.first_expert},
        {"expert_rows", report.expert_rows},
        {"moved", report.moved},
        {"rows_checked", report.rows_checked},
        {"sums_checked", report.sums_checked},
        {"num_mismatches", report.num_mismatches},
        {"mismatches", report.mismatches},
        {"dispatch_sent_bytes", report.dispatch_sent_bytes},
        {"combine_sent_bytes", report.combine_sent_bytes},
        {"times", report.times},
        {"details", report.details}};
}

void from_json(const json& from, RankReport& report) {
  from.at("rank").get_to(report.rank);
  from.at("failure").get_to(report.failure);
  from.at("transport").get_to(report.transport);
  from.at("rounds").get_to(report.rounds);
  from.at("first_expert").get_to(report.first_expert);
  from.at("expert_rows").get_to(report.expert_rows);
  from.at("moved").get_to(report.moved);
  from.at("rows_checked").get_to(report.rows_checked);
  from.at("sums_checked").get_to(report.sums_checked);
  from.at("num_mismatches").get_to(report.num_mismatches);
  from.at("mismatches").get_to(report.mismatches);
  from.at("dispatch_sent_bytes").get_to(report.dispatch_sent_bytes);
  from.at("combine_sent_bytes").get_to(report.combine_sent_bytes);
  from.at("times").get_to(report.times);
  from.at("details").get_to(report.details);
}

}  // namespace moeway::cli
