// What a job compares, and how it plays the experts.

#include <cstring>

#include "multi_rank/job.h"
#include "multi_rank/job_types.h"

namespace moeway::multi_rank {

using reference::Layout;

const std::byte* Job::received_row(const Flight& flight, int64_t row) const {
  if (case_.view)
    return flight.view_x + row * flight.view_x_tensor.strides[0] * moeway_dtype_bytes(flight.view_x_tensor.dtype);
  return flight.received_x.row(row);
}

const std::byte* Job::received_scales(const Flight& flight, int64_t row) const {
  if (shape_.scales == reference::Scales::kNone) return nullptr;
  if (case_.view)
    return flight.view_scales +
           row * flight.view_scales_tensor.strides[0] * moeway_dtype_bytes(flight.view_scales_tensor.dtype);
  return flight.received_scales.row(row);
}

bool Job::take_view(int round) {
  Flight& own = flight(round);
  const bool with_scales = shape_.scales != reference::Scales::kNone;
  const Status status =
      all_to_all_->dispatch_view(own.routing, &own.view_x_tensor, with_scales ? &own.view_scales_tensor : nullptr);
  if (!rank_.expect_ok(status, "round " + std::to_string(round) + ", dispatch_view")) return false;
  const Tensor& x = own.view_x_tensor;
  own.view_x = place::readable(x, &own.view_x_copy);
  own.view_scales = place::readable(own.view_scales_tensor, &own.view_scales_copy);
  const bool fits = x.ndim == 2 && x.shape[0] == shape_.all_tokens() && x.shape[1] == shape_.row_elements() &&
                    x.dtype == to_moeway(shape_.dispatch_dtype) && (x.strides[1] == 1 || x.shape[1] == 1);
  return rank_.expect(fits, "dispatch_view: x is not [W / R * M, H] of the dispatch's dtype with contiguous rows");
}

void Job::expect_expert_rows(const reference::Received& received, Flight& own, int round) {
  for (const reference::Row& row : received.rows) {
    const reference::RankInput& from = batches_[static_cast<size_t>(round)][static_cast<size_t>(row.source)];
    own.received_x.expect_row(row.position, from.x.data() + row.token * shape_.row_bytes());
    if (shape_.scales != reference::Scales::kNone)
      own.received_scales.expect_row(row.position, from.scales.data() + row.token * shape_.token_scale_bytes());
    const int32_t source[3] = {row.source, row.token, row.k};
    if (own.with_row_source) own.row_source.expect_row(row.position, source);
    if (own.with_row_weight)
      own.row_weight.expect_row(row.position, &from.topk_weights[static_cast<size_t>(row.token * shape_.topk + row.k)]);
  }
  if (own.with_first_row) own.first_row.expect_row(0, received.first_row.data());
}

void Job::expect_token_rows(const reference::Received& received, Flight& own, int round) {
  const auto topk = static_cast<size_t>(shape_.topk);
  for (const reference::TokenRow& row : received.tokens) {
    const reference::RankInput& from = batches_[static_cast<size_t>(round)][static_cast<size_t>(row.source)];
    const std::byte* x = from.x.data() + row.token * shape_.row_bytes();
    const std::byte* scales = from.scales.data() + row.token * shape_.token_scale_bytes();
    if (case_.view) {
      const bool same_x = std::memcmp(received_row(own, row.position), x, static_cast<size_t>(shape_.row_bytes())) == 0;
      rank_.expect(same_x, "round " + std::to_string(round) + ": row " + std::to_string(row.position) + " of the view");
      if (const std::byte* got = received_scales(own, row.position))
        rank_.expect(std::memcmp(got, scales, static_cast<size_t>(shape_.token_scale_bytes())) == 0,
                     "round " + std::to_string(round) + ": scales " + std::to_string(row.position) + " of the view");
    } else {
      own.received_x.expect_row(row.position, x);
      if (shape_.scales != reference::Scales::kNone) own.received_scales.expect_row(row.position, scales);
    }
  }
  for (int64_t row = 0; row < shape_.all_tokens(); ++row) {
    own.received_idx.expect_row(row, received.topk_idx.data() + static_cast<size_t>(row) * topk);
    own.received_weights.expect_row(row, received.topk_weights.data() + static_cast<size_t>(row) * topk);
  }
}

std::vector<std::byte> Job::places(int round) {
  Flight& own = flight(round);
  std::vector<std::byte> all;
  for (OutputTensor* output : {&own.num_rows, &own.first_row, &own.row_source, &own.received_idx}) {
    if (output->tensor().ndim == 0) continue;
    int64_t num_rows = 1;
    for (int d = 0; d + 1 < output->tensor().ndim; ++d) num_rows *= output->tensor().shape[d];
    for (int64_t row = 0; row < num_rows; ++row)
      all.insert(all.end(), output->row(row), output->row(row) + output->row_bytes());
  }
  return all;
}

bool Job::check_output(const OutputTensor& output, const char* name, int round) {
  if (output.tensor().ndim == 0) return true;
  const std::string difference = output.difference();
  return rank_.expect(difference.empty(), "round " + std::to_string(round) + ": " + name + ": " + difference);
}

bool Job::check_dispatch(int round) {
  Flight& own = flight(round);
  if (case_.view && !take_view(round)) return false;
  reference::Received& received = received_[static_cast<size_t>(round % 2)];
  received = expected_dispatch(shape_, batches_[static_cast<size_t>(round)], rank_.rank(), padded_rows_);
  own.num_rows.expect_row(0, received.num_rows.data());
  if (own.with_num_dropped) own.num_dropped.expect_row(0, received.num_dropped.data());
  if (shape_.layout == Layout::kTokenMajor) {
    expect_token_rows(received, own, round);
  } else {
    expect_expert_rows(received, own, round);
  }
  bool right = check_output(own.num_rows, "num_rows", round);
  right &= check_output(own.num_dropped, "num_dropped", round);
  right &= check_output(own.first_row, "first_row", round);
  right &= check_output(own.row_source, "row_source", round);
  right &= check_output(own.row_weight, "row_weight", round);
  right &= check_output(own.received_idx, "topk_idx", round);
  right &= check_output(own.received_weights, "topk_weights", round);
  right &= check_output(own.received_x, "x", round);
  right &= check_output(own.received_scales, "scales", round);
  return right && !rank_.failed();
}

// Plays the experts on the rows as they were received. What is not a row stays poison, which is NaN.
void Job::make_rows(int round) {
  Flight& own = flight(round);
  const reference::Received& received = received_[static_cast<size_t>(round % 2)];
  own.rows.poison();
  for (const reference::Row& row : received.rows)
    own.rows.fill_row(row.position, expert_row(shape_, case_.values, row.expert, received_row(own, row.position),
                                               received_scales(own, row.position))
                                        .data());
  for (const reference::TokenRow& row : received.tokens) {
    const auto* topk_idx = reinterpret_cast<const int32_t*>(own.received_idx.row(row.position));
    const auto* topk_weights = reinterpret_cast<const float*>(own.received_weights.row(row.position));
    own.rows.fill_row(row.position, token_row(shape_, case_.values, rank_.rank(), received_row(own, row.position),
                                              received_scales(own, row.position), topk_idx, topk_weights)
                                        .data());
  }
}

bool Job::check_combine(int round) {
  Flight& own = flight(round);
  reference::RankInput kept = without_dropped(shape_, batches_[static_cast<size_t>(round)], rank_.rank());
  if (case_.unweighted) kept.topk_weights.assign(kept.topk_weights.size(), 1.0f);
  const std::vector<std::byte> y = expected_combine(shape_, case_.values, kept, own.y_before);
  for (int64_t t = 0; t < input(round).num_tokens; ++t)
    own.y.expect_row(t, y.data() + static_cast<size_t>(t) * own.y.row_bytes());
  if (!check_output(own.y, "y", round)) return false;
  rank_.give(y.data(), y.size());
  return true;
}

}  // namespace moeway::multi_rank
