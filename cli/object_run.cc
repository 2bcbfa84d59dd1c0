#include "cli/object_run.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

namespace moeway::cli {
namespace {

std::string failed(const char* what, const Status& status) { return fmt::format("{}: {}", what, status.to_string()); }

}  // namespace

RoundKind round_kind(int64_t round, int64_t num_rounds) {
  if (num_rounds == 1 || round % 3 == 1) return RoundKind::kTimed;
  return round % 3 == 0 ? RoundKind::kOneCall : RoundKind::kFree;
}

ObjectRun::ObjectRun(const ObjectJob& job, Communicator& communicator, Place& place, RankProgress& progress)
    : job_(job), communicator_(communicator), place_(place), progress_(progress) {}

std::string ObjectRun::open() {
  const Result<AllToAllSizes> sizes = all_to_all_sizes(job_.config, communicator_.rank(), communicator_.size());
  if (!sizes.ok()) return failed("all_to_all_sizes", sizes.status());
  Result<AllToAll> all_to_all = AllToAll::create(communicator_, job_.config);
  if (!all_to_all.ok()) return failed("creating the AllToAll", all_to_all.status());
  all_to_all_ = std::move(all_to_all).value();
  if (const Status s = all_to_all_.set_stream(place_.stream()); !s.ok()) return failed("setting the stream", s);
  progress_.enter(Phase::kReady, 0);
  pattern_ = std::make_unique<Pattern>(job_.seed, job_.config, sizes.value());
  buffers_ = std::make_unique<Buffers>(job_.config, sizes.value(), *pattern_);
  mirror_ = std::make_unique<Mirror>(place_);
  if (const Status s = mirror_->open(*buffers_); !s.ok()) return failed("taking memory for the tensors", s);
  experts_ = std::make_unique<Experts>(*buffers_);
  check_ = std::make_unique<Check>(*job_.routes, *pattern_, *buffers_, communicator_.rank(), communicator_.size(),
                                   [this] { progress_.alive(); });
  return "";
}

std::string ObjectRun::step(Step step, int64_t round) {
  const Status status = do_step(step, round);
  if (status.ok()) return "";
  return fmt::format("{} in round {}: {}", phase_name(progress_.phase()), round + 1, status.to_string());
}

Status ObjectRun::do_step(Step step, int64_t round) {
  switch (step) {
    case kInput:
      return fill_input(round);
    case kDispatchSend:
      return kind(round) == RoundKind::kOneCall ? Status() : dispatch_send(round);
    case kDispatchRecv:
      return dispatch_recv(round);
    case kExperts:
      return run_experts(round);
    case kCombineSend:
      return kind(round) == RoundKind::kOneCall ? Status() : combine_send(round);
    case kCombineRecv:
      return combine_recv(round);
    case kCheck:
    case kNumSteps:
      break;
  }
  return check_round(round);
}

template <class Call>
Status ObjectRun::timed(Phase phase, int64_t round, Call call) {
  progress_.enter(phase, round);
  const auto start = std::chrono::steady_clock::now();
  Status status = call();
  if (status.ok() && kind(round) == RoundKind::kTimed) status = settle();
  const std::chrono::duration<float, std::micro> took = std::chrono::steady_clock::now() - start;
  const size_t index = phase == Phase::kDispatchSend   ? 0
                       : phase == Phase::kDispatchRecv ? 1
                       : phase == Phase::kCombineSend  ? 2
                                                       : 3;
  phase_times_[index] = took.count();
  return status;
}

Status ObjectRun::settle() {
  const Status waited = place_.synchronize();
  const Status found = all_to_all_.status();
  return found.ok() ? waited : found;
}

Status ObjectRun::forget_input() {
  buffers_->forget_input();
  return mirror_->upload({&buffers_->in_x, &buffers_->in_scales, &buffers_->in_experts, &buffers_->in_weights});
}

Status ObjectRun::forget_rows() {
  buffers_->forget_rows();
  return mirror_->poison({&buffers_->rows});
}

Status ObjectRun::start_together(int64_t round) {
  if (kind(round) != RoundKind::kTimed) return Status();
  progress_.enter(Phase::kBarrier, round);
  return communicator_.barrier();
}

Status ObjectRun::take(Result<Routing> made) {
  if (made.ok()) routing_ = made.value();
  return made.status();
}

Status ObjectRun::fill_input(int64_t round) {
  Buffers& b = *buffers_;
  b.fill_input(*pattern_, batch(round), round, job_.routes->group(communicator_.rank()));
  return mirror_->upload({&b.in_x, &b.in_scales, &b.in_experts, &b.in_weights});
}

Status ObjectRun::dispatch_send(int64_t round) {
  const DispatchInput input = mirror_->there(buffers_->input(batch(round)));
  if (Status status = start_together(round); !status.ok()) return status;
  Status status = timed(Phase::kDispatchSend, round, [&] { return take(all_to_all_.dispatch_send(input)); });
  return status.ok() ? forget_input() : status;
}

Status ObjectRun::dispatch_recv(int64_t round) {
  const DispatchOutput output = mirror_->there(buffers_->output());
  if (kind(round) != RoundKind::kOneCall)
    return timed(Phase::kDispatchRecv, round, [&] { return all_to_all_.dispatch_recv(routing_, output); });
  progress_.enter(Phase::kDispatch, round);
  return take(all_to_all_.dispatch(mirror_->there(buffers_->input(batch(round))), output));
}

Status ObjectRun::run_experts(int64_t round) {
  Buffers& b = *buffers_;
  Status status = settle();
  if (status.ok()) status = forget_input();
  if (status.ok())
    status =
        mirror_->download({&b.x, &b.scales, &b.num_rows, &b.first_row, &b.row_source, &b.topk_idx, &b.topk_weights});
  if (!status.ok()) return status;
  progress_.enter(Phase::kExperts, round);
  experts_->run(*pattern_);
  return mirror_->upload({&b.rows});
}

Status ObjectRun::combine_send(int64_t round) {
  const Tensor rows = mirror_->there(buffers_->row_tensor());
  if (Status status = start_together(round); !status.ok()) return status;
  Status status = timed(Phase::kCombineSend, round, [&] { return all_to_all_.combine_send(routing_, rows); });
  return status.ok() ? forget_rows() : status;
}

Status ObjectRun::combine_recv(int64_t round) {
  const Tensor sums = mirror_->there(buffers_->sum_tensor(batch(round).num_tokens));
  const Tensor weights = mirror_->there(buffers_->weight_tensor(batch(round)));
  const bool weights_now = job_.config.weights == kWeightsAtCombine;
  if (kind(round) != RoundKind::kOneCall) {
    return timed(Phase::kCombineRecv, round, [&] {
      return weights_now ? all_to_all_.combine_recv(routing_, weights, sums) : all_to_all_.combine_recv(routing_, sums);
    });
  }
  const Tensor rows = mirror_->there(buffers_->row_tensor());
  progress_.enter(Phase::kCombine, round);
  return weights_now ? all_to_all_.combine(routing_, rows, weights, sums) : all_to_all_.combine(routing_, rows, sums);
}

Status ObjectRun::check_round(int64_t round) {
  Buffers& b = *buffers_;
  Status status = settle();
  if (status.ok()) status = forget_rows();
  if (status.ok()) status = mirror_->download({&b.rows, &b.sums});
  if (!status.ok()) return status;
  if (kind(round) == RoundKind::kTimed) times_.push_back(phase_times_);
  progress_.enter(Phase::kChecking, round);
  check_->round(round, round == 0 || round + 1 == job_.rounds);
  b.poison_outputs();
  status = mirror_->poison(
      {&b.x, &b.scales, &b.num_rows, &b.first_row, &b.row_source, &b.topk_idx, &b.topk_weights, &b.sums});
  if (status.ok()) rounds_done_ = round + 1;
  return status;
}

// What the library counts must be what the routing says.
void ObjectRun::check_stats() {
  const Result<AllToAllStats> read = all_to_all_.stats();
  const auto compare = [&](const char* name, int64_t expected, int64_t got) {
    if (expected != got)
      check_->findings().add({.rank = communicator_.rank(),
                              .round = rounds_done_,
                              .what = "stats",
                              .expected = fmt::format("{} {}", name, expected),
                              .got = fmt::format("{}", got)});
  };
  if (!read.ok()) {
    check_->findings().add({.rank = communicator_.rank(),
                            .round = rounds_done_,
                            .what = "stats",
                            .expected = "OK",
                            .got = read.status().to_string()});
    return;
  }
  stats_ = read.value();
  const Moved& moved = check_->moved();
  const bool by_route = job_.config.weights == kWeightsAtCombine;
  const bool rounded = job_.config.layout != kTokenMajor && !by_route;
  compare("num_dispatches", job_.rounds, stats_.num_dispatches);
  compare("tokens_sent", moved.tokens_sent, stats_.tokens_sent);
  compare("routes_sent", moved.routes, stats_.routes_sent);
  compare("rows_received", moved.rows_received, stats_.rows_received);
  compare("rows_dropped", moved.rows_dropped, stats_.rows_dropped);
  compare("dispatch_sent_bytes", moved.tokens_sent * (pattern_->row_bytes() + pattern_->scales_bytes()),
          stats_.dispatch_sent_bytes);
  compare("combine_sent_bytes",
          (by_route ? moved.rows_received + moved.rows_dropped : moved.tokens_received) * job_.config.replicas *
              (rounded ? buffers_->sum_bytes : buffers_->out_row_bytes),
          stats_.combine_sent_bytes);
}

void ObjectRun::fill(RankReport& report, int index) const {
  if (index == 0) {
    report.first_expert = buffers_->sizes.first_local_expert;
    report.expert_rows = check_->expert_rows();
    report.moved = check_->moved();
    report.times = times_;
    report.rounds = rounds_done_;
    report.dispatch_sent_bytes = stats_.dispatch_sent_bytes;
    report.combine_sent_bytes = stats_.combine_sent_bytes;
  }
  report.rows_checked += check_->rows_checked();
  report.sums_checked += check_->sums_checked();
  report.num_mismatches += check_->findings().count();
  for (Mismatch mismatch : check_->findings().first()) {
    mismatch.object = index;
    report.mismatches.push_back(std::move(mismatch));
  }
}

}  // namespace moeway::cli
