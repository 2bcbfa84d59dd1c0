#include "cli/rank_job.h"

#include <fmt/format.h>
#include <moeway/moeway.h>

#include <exception>
#include <utility>

#include "cli/buffers.h"
#include "cli/check.h"
#include "cli/device/cuda_place.h"
#include "cli/device/place.h"
#include "cli/experts.h"
#include "cli/gather.h"
#include "cli/mirror.h"
#include "cli/pattern.h"

namespace moeway::cli {
namespace {

class RankRun {
 public:
  RankRun(const RankJob& job, RankProgress& progress, RankReport& report)
      : job_(job), progress_(progress), report_(report) {}

  // "" or what failed.
  std::string run(Result<Bootstrap> bootstrap, std::vector<RankReport>* gathered);

 private:
  std::string one_round(Check& check, int64_t round);
  Status dispatch(const Batch& batch, int64_t round, RoundKind kind);
  Status combine(const Batch& batch, int64_t round, RoundKind kind);
  Status start_together(int64_t round, RoundKind kind);
  // Opens communicator, place, object and tensors. "" or what failed.
  std::string open(Result<Bootstrap> bootstrap);
  // After the calls of a half: waits for them, and tells what kernels found wrong. On the host all is done already.
  Status settle();
  // Inputs that a send has read hold poison from then on.
  Status forget_input();
  Status forget_rows();
  template <class Call>
  Status timed(Phase phase, int64_t round, RoundKind kind, Call call);
  std::string failed(const char* what, const Status& status) const {
    return fmt::format("{}: {}", what, status.to_string());
  }
  std::string failed_in_round(int64_t round, const Status& status) const {
    return fmt::format("{} in round {}: {}", phase_name(progress_.phase()), round + 1, status.to_string());
  }
  void check_stats(Findings& findings, const Moved& moved);
  void fill_report(const Check& check);

  const RankJob& job_;
  RankProgress& progress_;
  RankReport& report_;
  // Declared in the order in which they depend on each other: closed in the opposite one.
  std::unique_ptr<Place> place_;
  Communicator communicator_;
  AllToAll all_to_all_;
  std::unique_ptr<Pattern> pattern_;
  std::unique_ptr<Buffers> buffers_;
  std::unique_ptr<Mirror> mirror_;
  std::unique_ptr<Experts> experts_;
  Routing routing_{};
  PhaseTimes times_{};
};

template <class Call>
Status RankRun::timed(Phase phase, int64_t round, RoundKind kind, Call call) {
  progress_.enter(phase, round);
  const auto start = std::chrono::steady_clock::now();
  Status status = call();
  if (status.ok() && kind == RoundKind::kTimed) status = settle();
  const std::chrono::duration<float, std::micro> took = std::chrono::steady_clock::now() - start;
  const size_t index = phase == Phase::kDispatchSend   ? 0
                       : phase == Phase::kDispatchRecv ? 1
                       : phase == Phase::kCombineSend  ? 2
                                                       : 3;
  times_[index] = took.count();
  return status;
}

Status RankRun::settle() {
  const Status waited = place_->synchronize();
  const Status found = all_to_all_.status();
  return found.ok() ? waited : found;
}

Status RankRun::forget_input() {
  buffers_->forget_input();
  return mirror_->upload({&buffers_->in_x, &buffers_->in_scales, &buffers_->in_experts, &buffers_->in_weights});
}

Status RankRun::forget_rows() {
  buffers_->forget_rows();
  return mirror_->poison({&buffers_->rows});
}

Status RankRun::start_together(int64_t round, RoundKind kind) {
  if (kind != RoundKind::kTimed) return Status();
  progress_.enter(Phase::kBarrier, round);
  return communicator_.barrier();
}

Status RankRun::dispatch(const Batch& batch, int64_t round, RoundKind kind) {
  const DispatchInput input = mirror_->there(buffers_->input(batch));
  const DispatchOutput output = mirror_->there(buffers_->output());
  const auto take = [this](Result<Routing> made) {
    if (made.ok()) routing_ = made.value();
    return made.status();
  };
  if (kind == RoundKind::kOneCall) {
    progress_.enter(Phase::kDispatch, round);
    return take(all_to_all_.dispatch(input, output));
  }
  if (Status status = start_together(round, kind); !status.ok()) return status;
  Status status = timed(Phase::kDispatchSend, round, kind, [&] { return take(all_to_all_.dispatch_send(input)); });
  if (!status.ok()) return status;
  if (status = forget_input(); !status.ok()) return status;
  return timed(Phase::kDispatchRecv, round, kind, [&] { return all_to_all_.dispatch_recv(routing_, output); });
}

Status RankRun::combine(const Batch& batch, int64_t round, RoundKind kind) {
  const Tensor rows = mirror_->there(buffers_->row_tensor());
  const Tensor sums = mirror_->there(buffers_->sum_tensor(batch.num_tokens));
  const Tensor weights = mirror_->there(buffers_->weight_tensor(batch));
  const bool weights_now = job_.config.weights == kWeightsAtCombine;
  if (kind == RoundKind::kOneCall) {
    progress_.enter(Phase::kCombine, round);
    return weights_now ? all_to_all_.combine(routing_, rows, weights, sums) : all_to_all_.combine(routing_, rows, sums);
  }
  if (Status status = start_together(round, kind); !status.ok()) return status;
  Status status = timed(Phase::kCombineSend, round, kind, [&] { return all_to_all_.combine_send(routing_, rows); });
  if (!status.ok()) return status;
  if (status = forget_rows(); !status.ok()) return status;
  return timed(Phase::kCombineRecv, round, kind, [&] {
    return weights_now ? all_to_all_.combine_recv(routing_, weights, sums) : all_to_all_.combine_recv(routing_, sums);
  });
}

std::string RankRun::one_round(Check& check, int64_t round) {
  const Batch& batch = job_.routes->batch(round, communicator_.rank());
  const RoundKind kind = round_kind(round, job_.rounds);
  Buffers& b = *buffers_;
  b.fill_input(*pattern_, batch, round, communicator_.rank());
  Status status = mirror_->upload({&b.in_x, &b.in_scales, &b.in_experts, &b.in_weights});
  if (status.ok()) status = dispatch(batch, round, kind);
  if (status.ok()) status = settle();
  if (status.ok()) status = forget_input();
  if (status.ok())
    status =
        mirror_->download({&b.x, &b.scales, &b.num_rows, &b.first_row, &b.row_source, &b.topk_idx, &b.topk_weights});
  if (!status.ok()) return failed_in_round(round, status);
  progress_.enter(Phase::kExperts, round);
  experts_->run(*pattern_);
  status = mirror_->upload({&b.rows});
  if (status.ok()) status = combine(batch, round, kind);
  if (status.ok()) status = settle();
  if (status.ok()) status = forget_rows();
  if (status.ok()) status = mirror_->download({&b.rows, &b.sums});
  if (!status.ok()) return failed_in_round(round, status);
  if (kind == RoundKind::kTimed) report_.times.push_back(times_);
  progress_.enter(Phase::kChecking, round);
  check.round(round, round == 0 || round + 1 == job_.rounds);
  b.poison_outputs();
  status = mirror_->poison(
      {&b.x, &b.scales, &b.num_rows, &b.first_row, &b.row_source, &b.topk_idx, &b.topk_weights, &b.sums});
  if (!status.ok()) return failed_in_round(round, status);
  report_.rounds = round + 1;
  return "";
}

// What the library counts must be what the routing says.
void RankRun::check_stats(Findings& findings, const Moved& moved) {
  const Result<AllToAllStats> read = all_to_all_.stats();
  const auto compare = [&](const char* name, int64_t expected, int64_t got) {
    if (expected != got)
      findings.add({.rank = report_.rank,
                    .round = report_.rounds,
                    .what = "stats",
                    .expected = fmt::format("{} {}", name, expected),
                    .got = fmt::format("{}", got)});
  };
  if (!read.ok()) {
    findings.add({.rank = report_.rank,
                  .round = report_.rounds,
                  .what = "stats",
                  .expected = "OK",
                  .got = read.status().to_string()});
    return;
  }
  const AllToAllStats& stats = read.value();
  report_.dispatch_sent_bytes = stats.dispatch_sent_bytes;
  report_.combine_sent_bytes = stats.combine_sent_bytes;
  const bool by_route = job_.config.weights == kWeightsAtCombine;
  const bool rounded = job_.config.layout != kTokenMajor && !by_route;
  compare("num_dispatches", job_.rounds, stats.num_dispatches);
  compare("tokens_sent", moved.tokens_sent, stats.tokens_sent);
  compare("routes_sent", moved.routes, stats.routes_sent);
  compare("rows_received", moved.rows_received, stats.rows_received);
  compare("rows_dropped", moved.rows_dropped, stats.rows_dropped);
  compare("dispatch_sent_bytes", moved.tokens_sent * (pattern_->row_bytes() + pattern_->scales_bytes()),
          stats.dispatch_sent_bytes);
  compare("combine_sent_bytes",
          (by_route ? moved.rows_received + moved.rows_dropped : moved.tokens_received) *
              (rounded ? buffers_->sum_bytes : buffers_->out_row_bytes),
          stats.combine_sent_bytes);
}

void RankRun::fill_report(const Check& check) {
  report_.first_expert = buffers_->sizes.first_local_expert;
  report_.expert_rows = check.expert_rows();
  report_.moved = check.moved();
  report_.rows_checked = check.rows_checked();
  report_.sums_checked = check.sums_checked();
  report_.num_mismatches = check.findings().count();
  report_.mismatches = check.findings().first();
}

std::string RankRun::open(Result<Bootstrap> bootstrap) {
  if (!bootstrap.ok()) return failed("meeting the other ranks", bootstrap.status());
  CommunicatorOptions options;
  options.timeout_ms = job_.timeout.count();
  if (!job_.devices.empty()) {
    options.device_type = MOEWAY_CUDA;
    options.device_index = job_.devices[static_cast<size_t>(bootstrap.value().rank()) % job_.devices.size()];
  }
  Result<Communicator> communicator = Communicator::create(std::move(bootstrap).value(), options);
  if (!communicator.ok()) return failed("creating the communicator", communicator.status());
  communicator_ = std::move(communicator).value();
  report_.rank = communicator_.rank();
  report_.transport = communicator_.transport();
  Result<std::unique_ptr<Place>> place =
      job_.devices.empty() ? Result<std::unique_ptr<Place>>(make_host_place()) : make_cuda_place(options.device_index);
  if (!place.ok()) return failed("opening the device", place.status());
  place_ = std::move(place).value();
  const Result<AllToAllSizes> sizes = all_to_all_sizes(job_.config, communicator_.rank(), communicator_.size());
  if (!sizes.ok()) return failed("all_to_all_sizes", sizes.status());
  Result<AllToAll> all_to_all = AllToAll::create(communicator_, job_.config);
  if (!all_to_all.ok()) return failed("creating the AllToAll", all_to_all.status());
  all_to_all_ = std::move(all_to_all).value();
  if (const Status s = all_to_all_.set_stream(place_->stream()); !s.ok()) return failed("setting the stream", s);
  progress_.enter(Phase::kReady, 0);
  pattern_ = std::make_unique<Pattern>(job_.seed, job_.config, sizes.value());
  buffers_ = std::make_unique<Buffers>(job_.config, sizes.value(), *pattern_);
  mirror_ = std::make_unique<Mirror>(*place_);
  if (const Status s = mirror_->open(*buffers_); !s.ok()) return failed("taking memory for the tensors", s);
  experts_ = std::make_unique<Experts>(*buffers_);
  if (job_.devices.empty()) return "";
  // Nobody's kernels run before everybody has memory: on a shared device, taking it can wait for them.
  const Status met = communicator_.barrier();
  return met.ok() ? "" : failed("waiting for the other ranks", met);
}

std::string RankRun::run(Result<Bootstrap> bootstrap, std::vector<RankReport>* gathered) {
  if (std::string failure = open(std::move(bootstrap)); !failure.empty()) return failure;
  Check check(*job_.routes, *pattern_, *buffers_, communicator_.rank(), communicator_.size(),
              [this] { progress_.alive(); });
  std::string failure;
  for (int64_t round = 0; round < job_.rounds && failure.empty(); ++round) failure = one_round(check, round);
  if (failure.empty()) check_stats(check.findings(), check.moved());
  fill_report(check);
  if (failure.empty()) {
    if (gathered != nullptr)
      if (const Status status = gather_reports(communicator_, *place_, job_.timeout, report_, *gathered); !status.ok())
        return failed("exchanging the reports", status);
    if (const Status status = all_to_all_.close(); !status.ok()) return failed("closing the AllToAll", status);
    if (const Status status = communicator_.close(); !status.ok()) return failed("closing the communicator", status);
    progress_.enter(Phase::kDone, job_.rounds);
  }
  return failure;
}

}  // namespace

RoundKind round_kind(int64_t round, int64_t num_rounds) {
  if (num_rounds == 1 || round % 3 == 1) return RoundKind::kTimed;
  return round % 3 == 0 ? RoundKind::kOneCall : RoundKind::kFree;
}

RankReport run_rank(const RankJob& job, Result<Bootstrap> bootstrap, RankProgress& progress,
                    std::vector<RankReport>* gathered) noexcept {
  RankReport report;
  try {
    if (bootstrap.ok()) report.rank = bootstrap.value().rank();
    RankRun run(job, progress, report);
    report.failure = run.run(std::move(bootstrap), gathered);
  } catch (const std::exception& exception) {
    report.failure = fmt::format("{}: {}", phase_name(progress.phase()), exception.what());
  }
  return report;
}

}  // namespace moeway::cli
