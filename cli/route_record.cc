#include "cli/route_record.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace moeway::cli {
namespace {

using nlohmann::json;

enum class Field { kOther, kExperts, kWeights, kLayer, kRank, kNumTokens, kTopk, kNumExperts, kType };

constexpr int64_t kMaxExpert = std::numeric_limits<int32_t>::max() - 1;

Field field_of(const std::string& key) {
  if (key == "top_indices" || key == "topk_ids") return Field::kExperts;
  if (key == "top_weights" || key == "topk_weights") return Field::kWeights;
  if (key == "layer") return Field::kLayer;
  if (key == "rank") return Field::kRank;
  if (key == "num_tokens") return Field::kNumTokens;
  if (key == "topk") return Field::kTopk;
  if (key == "num_experts") return Field::kNumExperts;
  if (key == "type") return Field::kType;
  return Field::kOther;
}

// Part of a line as a message quotes it: short, and nothing that would steer a terminal.
std::string quotable(std::string_view text) {
  constexpr size_t kLongest = 40;
  std::string quoted(text.substr(0, kLongest));
  if (text.size() > kLongest) quoted += "...";
  for (char& c : quoted)
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  return quoted;
}

// A two-dimensional list as it grows. `nested` is what the first bracket showed.
struct Table {
  std::string name;
  bool given = false;
  bool nested = false;
  std::vector<int64_t> row_ends;  // Entries up to and including each row.
};

// Takes what is of use out of the stream of JSON events, so that no tree of the line is ever built.
class RecordReader : public nlohmann::json_sax<json> {
 public:
  RouteRecord record;
  Table experts, weights;
  std::optional<int64_t> num_tokens, topk;
  std::string type, error;

  bool null() override { return fail("null"); }
  bool boolean(bool value) override { return fail(value ? "true" : "false"); }
  bool number_integer(int64_t value) override { return whole(value); }
  bool number_unsigned(uint64_t value) override {
    if (field_ == Field::kWeights) return weight(static_cast<double>(value));
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return fail(std::to_string(value));
    return whole(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string& text) override {
    return field_ == Field::kWeights ? weight(value) : fail(quotable(text));
  }
  bool string(std::string& value) override {
    if (depth_ == 1 && field_ == Field::kType) {
      type = value;
      return true;
    }
    return fail(fmt::format("\"{}\"", quotable(value)));
  }
  bool binary(json::binary_t&) override { return fail("binary data"); }

  bool start_object(size_t) override {
    if (depth_ == 0) {
      depth_ = 1;
      return true;
    }
    if (!fail("an object")) return false;
    ++depth_;
    return true;
  }
  bool key(std::string& name) override {
    if (depth_ != 1) return true;
    key_ = name;
    field_ = field_of(name);
    Table* table = field_ == Field::kExperts ? &experts : field_ == Field::kWeights ? &weights : nullptr;
    if (table == nullptr) return true;
    if (table->given) return set_error(fmt::format("{}: this record already has {}", name, table->name));
    table->given = true;
    table->name = name;
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ == 0) return fail("an array");
    Table* table = current_table();
    if (table == nullptr) {
      if (!fail("an array")) return false;
    } else if (depth_ == 2 && row_open_is_wrong(*table)) {
      return fail("an array");
    } else if (depth_ > 2) {
      return fail("an array");
    } else if (depth_ == 2) {
      table->nested = true;
    }
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    if (Table* table = current_table(); table != nullptr && depth_ == 2) table->row_ends.push_back(num_entries());
    return true;
  }

  bool parse_error(size_t position, const std::string& token, const json::exception& exception) override {
    if (!error.empty()) return false;
    const std::string where = key_.empty() ? "the line" : place();
    std::string last = token.size() > 40 ? "..." + token.substr(token.size() - 40) : token;
    const bool not_utf8 = std::string_view(exception.what()).find("UTF-8") != std::string_view::npos;
    for (char& c : last)
      if (static_cast<unsigned char>(c) < 32 || c == 127 || (not_utf8 && static_cast<unsigned char>(c) > 126)) c = '?';
    if (exception.id == 406) return set_error(fmt::format("{}: {}, expected a number within the range", where, last));
    return set_error(fmt::format("{}: not JSON at byte {}, after '{}'{}, expected {}", where, position, last,
                                 not_utf8 ? " (not UTF-8)" : "", expectation()));
  }

 private:
  Table* current_table() {
    return field_ == Field::kExperts ? &experts : field_ == Field::kWeights ? &weights : nullptr;
  }
  int64_t num_entries() const {
    return static_cast<int64_t>(field_ == Field::kExperts ? record.experts.size() : record.weights.size());
  }
  // A row may not open where a number has been seen beside it.
  bool row_open_is_wrong(const Table& table) const { return !table.nested && num_entries() > 0; }

  std::string place() {
    const Table* table = current_table();
    if (table == nullptr || depth_ < 2) return quotable(key_);
    const int64_t before = table->row_ends.empty() ? 0 : table->row_ends.back();
    if (depth_ == 2) return fmt::format("{}[{}]", key_, table->nested ? std::ssize(table->row_ends) : num_entries());
    return fmt::format("{}[{}][{}]", key_, table->row_ends.size(), num_entries() - before);
  }
  std::string expectation() {
    switch (depth_ == 0 ? Field::kOther : field_) {
      case Field::kExperts:
        return depth_ == 1 ? "a list" : fmt::format("a whole number from -1 to {}", kMaxExpert);
      case Field::kWeights:
        return depth_ == 1 ? "a list" : "a finite number";
      case Field::kType:
        return "a string";
      case Field::kOther:
        return "one JSON object a line";
      default:
        return "a whole number";
    }
  }
  bool set_error(std::string text) {
    if (error.empty()) error = std::move(text);
    return false;
  }
  // What stands in fields that are of no use here does not matter.
  bool fail(const std::string& value) {
    if (depth_ > 0 && field_ == Field::kOther) return true;
    return set_error(fmt::format("{}: {}, expected {}", depth_ == 0 ? "the line" : place(), value, expectation()));
  }

  bool number_is_misplaced() {
    const Table* table = current_table();
    return depth_ < 2 || depth_ > 3 || (depth_ == 2 && table->nested);
  }
  bool weight(double value) {
    if (number_is_misplaced()) return fail(fmt::format("{}", value));
    const float narrowed = static_cast<float>(value);
    if (!std::isfinite(narrowed)) return fail(fmt::format("{}", value));
    record.weights.push_back(narrowed);
    return true;
  }
  bool whole(int64_t value) {
    switch (depth_ == 0 ? Field::kOther : field_) {
      case Field::kExperts:
        if (number_is_misplaced() || value < -1 || value > kMaxExpert) return fail(std::to_string(value));
        record.experts.push_back(static_cast<int32_t>(value));
        return true;
      case Field::kWeights:
        return weight(static_cast<double>(value));
      case Field::kLayer:
        return set(record.layer, value);
      case Field::kRank:
        return set(record.rank, value);
      case Field::kNumTokens:
        return set(num_tokens, value);
      case Field::kTopk:
        return set(topk, value);
      case Field::kNumExperts:
        return set(record.num_experts, value);
      default:
        return fail(std::to_string(value));
    }
  }
  bool set(std::optional<int64_t>& field, int64_t value) {
    if (depth_ != 1) return fail(std::to_string(value));
    field = value;
    return true;
  }

  int depth_ = 0;
  std::string key_;
  Field field_ = Field::kOther;
};

// Every row has as many entries as the first; "" or what is wrong.
std::string check_rows(const Table& table, int64_t num_entries, int64_t topk) {
  if (!table.nested)
    return num_entries == topk ? "" : fmt::format("{}: {} entries, expected {}", table.name, num_entries, topk);
  int64_t start = 0;
  for (size_t row = 0; row < table.row_ends.size(); ++row) {
    if (table.row_ends[row] - start != topk)
      return fmt::format("{}[{}]: {} entries, expected {}", table.name, row, table.row_ends[row] - start, topk);
    start = table.row_ends[row];
  }
  return "";
}

std::string check_scalars(const RecordReader& reader) {
  const RouteRecord& record = reader.record;
  if (record.rank.value_or(0) < 0) return fmt::format("rank: {}, expected 0 or more", *record.rank);
  if (const int64_t experts = record.num_experts.value_or(1); experts < 1 || experts > kMaxExpert + 1)
    return fmt::format("num_experts: {}, expected 1 to {}", experts, kMaxExpert + 1);
  if (reader.topk && (*reader.topk < 1 || *reader.topk > kMaxExpert))
    return fmt::format("topk: {}, expected 1 or more", *reader.topk);
  if (reader.num_tokens && *reader.num_tokens != record.num_tokens)
    return fmt::format("num_tokens: {}, expected {}, the tokens in {}", *reader.num_tokens, record.num_tokens,
                       reader.experts.name);
  return "";
}

// Puts together what the events have brought; "" or what is wrong.
std::string finish(RecordReader& reader) {
  RouteRecord& record = reader.record;
  if (!reader.experts.given) {
    if (!reader.type.empty() && reader.type != "route") return "";
    return "top_indices: missing, and no topk_ids either, expected one of them";
  }
  record.has_routes = true;
  const int64_t num_entries = std::ssize(record.experts);
  // An empty list of batches' name is a batch of no tokens; an empty token is a mistake.
  record.is_batch = reader.experts.nested || (num_entries == 0 && reader.experts.name == "top_indices");
  record.num_tokens = record.is_batch ? std::ssize(reader.experts.row_ends) : 1;
  int64_t topk = reader.topk.value_or(0);
  if (!reader.topk && record.num_tokens > 0) topk = record.is_batch ? reader.experts.row_ends[0] : num_entries;
  if (std::string wrong = check_scalars(reader); !wrong.empty()) return wrong;
  if (record.num_tokens > 0 && topk == 0) return fmt::format("{}: no entries, expected 1 or more", reader.experts.name);
  record.topk = static_cast<int32_t>(topk);
  if (record.num_tokens == 0) return "";
  if (std::string wrong = check_rows(reader.experts, num_entries, topk); !wrong.empty()) return wrong;
  if (!reader.weights.given) return "";
  const int64_t rows = reader.weights.nested ? std::ssize(reader.weights.row_ends) : 1;
  if (reader.weights.nested != reader.experts.nested || rows != record.num_tokens)
    return fmt::format("{}: {} rows, expected {}, the shape of {}", reader.weights.name, rows, record.num_tokens,
                       reader.experts.name);
  return check_rows(reader.weights, std::ssize(record.weights), topk);
}

}  // namespace

Result<RouteRecord> parse_route_record(std::string_view line) {
  RecordReader reader;
  if (!json::sax_parse(line.begin(), line.end(), &reader))
    return Status(MOEWAY_INVALID_ARGUMENT, reader.error.empty() ? "the line: not JSON" : reader.error);
  if (std::string wrong = finish(reader); !wrong.empty()) return Status(MOEWAY_INVALID_ARGUMENT, std::move(wrong));
  return std::move(reader.record);
}

}  // namespace moeway::cli
