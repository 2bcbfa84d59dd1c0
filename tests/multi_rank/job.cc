#include "multi_rank/job.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <thread>

#include "multi_rank/job_types.h"

namespace moeway::multi_rank {
namespace {

using reference::Layout;

const char* order_name(Order order) {
  static const char* const kNames[] = {"fused", "split", "pipelined"};
  return kNames[static_cast<int>(order)];
}

// `n` elements, which are some with something behind them.
template <class T>
std::vector<T> longer(const std::vector<T>& some, int64_t n) {
  std::vector<T> all = some;
  all.resize(static_cast<size_t>(n), static_cast<T>(0x5a));
  return all;
}

const char* execution_name(Execution execution) {
  static const char* const kNames[] = {"fibers", "threads", "lanes"};
  return kNames[static_cast<int>(execution)];
}

}  // namespace

std::string describe(const Case& job) {
  static const char* const kIds[] = {"i64", "i32", "per rank"};
  static const char* const kValues[] = {"exact", "arbitrary", "any bits"};
  static const char* const kTokens[] = {"random", "full", "some empty", "one rank"};
  std::ostringstream text;
  text << describe(job.shape) << " | routes " << (job.batch ? "given" : routes_name(job.routes)) << ", T "
       << kTokens[static_cast<int>(job.tokens)] << ", values " << kValues[static_cast<int>(job.values)] << ", ids "
       << kIds[static_cast<int>(job.ids)] << (job.views == Views::kStrided ? ", strided" : "") << ", "
       << order_name(job.order) << (job.view ? ", view" : "") << (job.counted ? ", counted" : "")
       << (job.add ? ", adds" : "") << (job.unweighted ? ", unweighted" : "") << ", combine every " << job.combine_every
       << ", " << job.num_warps << " warps as " << execution_name(job.execution) << ", " << job.rounds
       << " rounds, delays to " << job.max_delay_us << " us, seed " << job.seed;
  return text.str();
}

AllToAllConfig make_config(const Case& job) {
  const reference::Shape& shape = job.shape;
  AllToAllConfig config;
  config.num_experts = shape.num_experts;
  config.topk = shape.topk;
  config.hidden = shape.hidden;
  config.max_tokens = shape.max_tokens;
  config.dispatch_dtype = to_moeway(shape.dispatch_dtype);
  config.token_bytes = shape.token_bytes;
  config.scales = to_moeway(shape.scales);
  config.scale_bytes = shape.scale_bytes;
  config.quantise = to_moeway(shape.quantise);
  config.row_dtype = to_moeway(shape.row_dtype);
  config.output_dtype = to_moeway(shape.output_dtype);
  config.layout = to_moeway(shape.layout);
  config.alignment = shape.alignment;
  config.weights = to_moeway(shape.weights);
  config.distinct_experts = shape.distinct_experts ? 1 : 0;
  config.replicas = shape.replicas;
  config.max_recv_tokens = shape.max_recv_tokens;
  config.overflow = job.overflow;
  config.execution = job.execution;
  config.num_warps = job.num_warps;
  config.num_sms = job.num_sms;
  config.timeout_ms = job.timeout_ms;
  return config;
}

std::vector<reference::Batch> make_batches(const Case& job) {
  std::vector<reference::Batch> batches;
  for (int round = 0; round < job.rounds; ++round) {
    if (job.batch) {
      batches.push_back(job.batch(round));
    } else {
      batches.push_back(make_batch(job.shape, job.values, job.routes,
                                   make_num_tokens(job.shape, job.tokens, job.seed, round), job.seed, round));
    }
  }
  return batches;
}

Job::Job(Rank& rank, const Case& job, const std::vector<reference::Batch>& batches)
    : rank_(rank),
      case_(job),
      shape_(job.shape),
      batches_(batches),
      random_(reference::hash(job.seed, 101, rank.rank())) {}

bool Job::create() {
  const AllToAllConfig config = make_config(case_);
  const Result<AllToAllSizes> sizes = all_to_all_sizes(config, rank_.rank(), rank_.size());
  if (!rank_.expect_ok(sizes.status(), "sizes") || !check_sizes(sizes.value())) return false;
  Result<AllToAll> made = AllToAll::create(rank_.communicator(), config);
  if (!rank_.expect_ok(made.status(), "create")) return false;
  all_to_all_ = std::make_unique<SettledAllToAll>(std::move(made).value());
  for (Flight& flight : flights_) make_outputs(sizes.value(), flight);
  return true;
}

bool Job::check_sizes(const AllToAllSizes& sizes) {
  const int rank = rank_.rank();
  const int64_t per_token = shape_.distinct_experts ? 1 : shape_.topk;
  bool right = rank_.expect(sizes.num_local_experts == shape_.num_local_experts(rank), "sizes: num_local_experts");
  right &= rank_.expect(sizes.first_local_expert == shape_.first_expert(rank), "sizes: first_local_expert");
  int64_t capacity = shape_.all_tokens() * per_token;
  if (shape_.max_recv_tokens > 0) capacity = std::min(capacity, shape_.max_recv_tokens);
  right &= rank_.expect(sizes.expert_capacity == capacity,
                        "sizes: expert_capacity is " + std::to_string(sizes.expert_capacity));
  right &= rank_.expect(sizes.row_bytes == shape_.row_bytes(), "sizes: row_bytes");
  right &= rank_.expect(sizes.num_scales == shape_.num_scales(), "sizes: num_scales");
  return right;
}

void Job::make_outputs(const AllToAllSizes& sizes, Flight& flight) {
  const Views views = case_.views;
  const int64_t experts = sizes.num_local_experts;
  // A caller may have more room than is needed.
  const int64_t spare = views == Views::kStrided ? random_.between(0, 3) : 0;
  std::vector<int64_t> rows;
  if (shape_.layout == Layout::kExpertPadded) {
    if (padded_rows_ == 0) padded_rows_ = sizes.expert_capacity + spare;
    rows = {experts, padded_rows_};
  } else {
    rows = {sizes.max_rows + (shape_.layout == Layout::kExpertPacked ? spare : 0)};
  }
  const auto with = [&](int64_t last) {
    std::vector<int64_t> dims = rows;
    dims.push_back(last);
    return dims;
  };
  flight.received_x = OutputTensor(to_moeway(shape_.dispatch_dtype), with(shape_.row_elements()), views, random_);
  if (shape_.scales != reference::Scales::kNone)
    flight.received_scales = OutputTensor(to_moeway(shape_.scale_dtype()), with(shape_.num_scales()), views, random_);
  flight.num_rows = OutputTensor(kI32, {experts}, views, random_);
  flight.num_dropped = OutputTensor(kI32, {experts}, views, random_);
  if (shape_.layout == Layout::kTokenMajor) {
    flight.received_idx = OutputTensor(kI32, with(shape_.topk), Views::kDense, random_);
    flight.received_weights = OutputTensor(kF32, with(shape_.topk), Views::kDense, random_);
  } else {
    flight.first_row = OutputTensor(kI64, {experts}, views, random_);
    flight.row_source = OutputTensor(kI32, with(3), Views::kDense, random_);
    if (shape_.weights == reference::Weights::kAtDispatch)
      flight.row_weight = OutputTensor(kF32, with(1), Views::kDense, random_);
  }
  flight.rows = OutputTensor(to_moeway(shape_.row_dtype), with(shape_.hidden), views, random_);
  flight.y = OutputTensor(to_moeway(shape_.output_dtype), {shape_.max_tokens, shape_.hidden}, views, random_);
}

const reference::RankInput& Job::input(int round) const {
  return batches_[static_cast<size_t>(round)][static_cast<size_t>(rank_.rank())];
}

DispatchInput Job::make_input(int round) {
  const reference::RankInput& given = input(round);
  Flight& own = flight(round);
  const int64_t tokens = num_given(round);
  own.x = InputTensor(
      to_moeway(shape_.given_dtype()), tokens, shape_.row_elements(),
      longer(given_x(shape_, given), tokens * shape_.row_elements() * dtype_bytes(shape_.given_dtype())).data(),
      case_.views, random_);
  const bool narrow = case_.ids == Ids::kI32 || (case_.ids == Ids::kPerRank && rank_.rank() % 2 == 0);
  // Behind the tokens there are routes that cannot be.
  const std::vector<int64_t> wide_idx = longer(given.topk_idx, tokens * shape_.topk);
  const std::vector<int32_t> narrow_idx(wide_idx.begin(), wide_idx.end());
  const void* topk_idx = narrow ? static_cast<const void*>(narrow_idx.data()) : wide_idx.data();
  own.topk_idx = InputTensor(narrow ? kI32 : kI64, tokens, shape_.topk, topk_idx, case_.views, random_);
  DispatchInput in;
  in.x = own.x.tensor();
  in.topk_idx = own.topk_idx.tensor();
  if (shape_.gives_scales()) {
    own.scales = InputTensor(to_moeway(shape_.scale_dtype()), tokens, shape_.num_scales(),
                             longer(given.scales, tokens * shape_.token_scale_bytes()).data(), case_.views, random_);
    in.scales = own.scales.tensor();
  }
  if (shape_.weights == reference::Weights::kAtDispatch) {
    own.topk_weights = InputTensor(kF32, tokens, shape_.topk, longer(given.topk_weights, tokens * shape_.topk).data(),
                                   case_.views, random_);
    in.topk_weights = own.topk_weights.tensor();
  }
  own.num_tokens = static_cast<int32_t>(given.num_tokens);
  if (case_.counted) in.num_tokens = Tensor(&own.num_tokens, kI32, {1});
  return in;
}

void Job::scramble_input(int round) {
  Flight& own = flight(round);
  own.x.scramble();
  own.scales.scramble();
  own.topk_idx.scramble();
  own.topk_weights.scramble();
  own.num_tokens = -1;
}

DispatchOutput Job::make_output(int round) {
  Flight& own = flight(round);
  for (OutputTensor* output : {&own.received_x, &own.received_scales, &own.num_rows, &own.first_row, &own.row_source,
                               &own.row_weight, &own.num_dropped, &own.received_idx, &own.received_weights})
    if (output->tensor().ndim > 0) output->poison();
  own.with_first_row = case_.views == Views::kDense || random_.chance(70);
  own.with_row_source = case_.views == Views::kDense || random_.chance(70);
  own.with_row_weight = own.row_weight.tensor().ndim > 0 && (case_.views == Views::kDense || random_.chance(70));
  own.with_num_dropped = case_.views == Views::kDense || random_.chance(70);
  DispatchOutput out;
  out.num_rows = own.num_rows.tensor();
  if (own.with_num_dropped) out.num_dropped = own.num_dropped.tensor();
  if (!case_.view) {
    out.x = own.received_x.tensor();
    out.scales = own.received_scales.tensor();
  }
  if (shape_.layout == Layout::kTokenMajor) {
    out.topk_idx = own.received_idx.tensor();
    out.topk_weights = own.received_weights.tensor();
  } else {
    if (own.with_first_row) out.first_row = own.first_row.tensor();
    if (own.with_row_source) out.row_source = own.row_source.tensor();
    if (own.with_row_weight) out.row_weight = own.row_weight.tensor();
  }
  return out;
}

bool Job::dispatch_send(int round) { return dispatch_send_with(round, make_input(round)); }

bool Job::dispatch_send_with(int round, const DispatchInput& in) {
  pause();
  const Result<Routing> routing = all_to_all_->dispatch_send(in);
  scramble_input(round);
  if (!rank_.expect_ok(routing.status(), "round " + std::to_string(round) + ", dispatch_send")) return false;
  flight(round).routing = case_.unweighted ? unweighted(routing.value()) : routing.value();
  return true;
}

bool Job::dispatch_recv(int round) {
  const DispatchOutput out = make_output(round);
  pause();
  const Status status = all_to_all_->dispatch_recv(flight(round).routing, out);
  if (!rank_.expect_ok(status, "round " + std::to_string(round) + ", dispatch_recv")) return false;
  return check_dispatch(round);
}

bool Job::dispatch(int round) { return dispatch_with(round, make_input(round)); }

bool Job::dispatch_with(int round, const DispatchInput& in) {
  const DispatchOutput out = make_output(round);
  pause();
  const Result<Routing> routing = all_to_all_->dispatch(in, out);
  scramble_input(round);
  if (!rank_.expect_ok(routing.status(), "round " + std::to_string(round) + ", dispatch")) return false;
  flight(round).routing = case_.unweighted ? unweighted(routing.value()) : routing.value();
  return check_dispatch(round);
}

bool Job::combine_send(int round) {
  make_rows(round);
  pause();
  const Status status = all_to_all_->combine_send(flight(round).routing, rows(round));
  flight(round).rows.scramble();
  return rank_.expect_ok(status, "round " + std::to_string(round) + ", combine_send");
}

bool Job::combine_recv(int round) {
  pause();
  const Status status = combine_recv_status(round);
  if (!rank_.expect_ok(status, "round " + std::to_string(round) + ", combine_recv")) return false;
  return check_combine(round);
}

Tensor Job::combine_weights(int round) {
  Flight& own = flight(round);
  own.combine_weights =
      InputTensor(kF32, num_given(round), shape_.topk,
                  longer(input(round).topk_weights, num_given(round) * shape_.topk).data(), case_.views, random_);
  return own.combine_weights.tensor();
}

Status Job::combine_recv_status(int round) {
  Flight& own = flight(round);
  prepare_y(round);
  AllToAll& object = *all_to_all_;
  if (!gives_weights()) {
    return case_.add ? object.combine_recv_add(own.routing, y(round)) : object.combine_recv(own.routing, y(round));
  }
  return case_.add ? object.combine_recv_add(own.routing, combine_weights(round), y(round))
                   : object.combine_recv(own.routing, combine_weights(round), y(round));
}

void Job::prepare_y(int round) {
  Flight& own = flight(round);
  own.y.poison();
  own.y_before.clear();
  if (!case_.add) return;
  const auto width = static_cast<size_t>(dtype_bytes(shape_.output_dtype));
  const int64_t num_tokens = input(round).num_tokens;
  own.y_before.resize(static_cast<size_t>(num_tokens * shape_.hidden) * width);
  for (size_t i = 0; i < own.y_before.size(); i += width) {
    const auto whole = static_cast<float>(random_.between(-16, 16));
    const float value = case_.values == reference::Values::kExact ? whole : whole * 0.3f;
    // A negative zero shows where y was written though nothing was added.
    store(shape_.output_dtype, whole == 0 ? -0.0f : value, own.y_before.data() + i);
  }
  for (int64_t t = 0; t < num_tokens; ++t)
    own.y.fill_row(t, own.y_before.data() + static_cast<size_t>(t) * own.y.row_bytes());
}

Status Job::combine_into(int round, const Tensor& y, const Tensor& topk_weights) {
  make_rows(round);
  if (!gives_weights()) return all_to_all_->combine(flight(round).routing, rows(round), y);
  return all_to_all_->combine(flight(round).routing, rows(round), topk_weights, y);
}

bool Job::combine(int round) {
  Flight& own = flight(round);
  make_rows(round);
  prepare_y(round);
  AllToAll& object = *all_to_all_;
  pause();
  Status status;
  if (!gives_weights()) {
    status = case_.add ? object.combine_add(own.routing, rows(round), y(round))
                       : object.combine(own.routing, rows(round), y(round));
  } else {
    const Tensor weights = combine_weights(round);
    status = case_.add ? object.combine_add(own.routing, rows(round), weights, y(round))
                       : object.combine(own.routing, rows(round), weights, y(round));
  }
  own.rows.scramble();
  if (!rank_.expect_ok(status, "round " + std::to_string(round) + ", combine")) return false;
  return check_combine(round);
}

bool Job::combines(int round) const {
  return case_.combine_every > 0 && round % case_.combine_every == case_.combine_every - 1;
}

bool Job::run() {
  if (!create()) return false;
  if (case_.order == Order::kPipelined) return run_pipelined() && close();
  for (int round = 0; round < case_.rounds; ++round) {
    if (case_.order == Order::kFused) {
      if (!dispatch(round)) return false;
      if (combines(round) && !combine(round)) return false;
    } else {
      if (!dispatch_send(round) || !dispatch_recv(round)) return false;
      if (combines(round) && (!combine_send(round) || !combine_recv(round))) return false;
    }
  }
  return close();
}

bool Job::run_pipelined() {
  for (int round = 0; round <= case_.rounds; ++round) {
    // The same way on all ranks, another one in each round. A view is gone with the next dispatch_send.
    const uint64_t way = reference::hash(case_.seed, 103, round) % 3;
    const int before = round - 1;
    const bool finish = before >= 0 && combines(before);
    const bool more = round < case_.rounds;
    const bool early = finish && (way == 0 || case_.view);
    if (early && !combine_send(before)) return false;
    if (more && !dispatch_send(round)) return false;
    if (more && way == 2 && !dispatch_recv(round)) return false;
    if (finish && !early && !combine_send(before)) return false;
    if (finish && !combine_recv(before)) return false;
    if (more && way != 2 && !dispatch_recv(round)) return false;
  }
  return true;
}

bool Job::close() {
  pause();
  return rank_.expect_ok(all_to_all_->close(), "close");
}

void Job::pause() {
  if (rank_.rank() == case_.late_rank) std::this_thread::sleep_for(std::chrono::microseconds(case_.late_us));
  if (case_.max_delay_us == 0) return;
  // Mostly none: a delay matters where others run on.
  if (random_.chance(60)) return;
  std::this_thread::sleep_for(std::chrono::microseconds(random_.between(0, case_.max_delay_us)));
}

RanksResult run_case(const Case& job, As as, std::chrono::seconds limit) {
  const std::vector<reference::Batch> batches = make_batches(job);
  return run_ranks({job.shape.num_ranks, as, limit, true}, [&](Rank& rank) { Job(rank, job, batches).run(); });
}

}  // namespace moeway::multi_rank
