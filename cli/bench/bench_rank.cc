#include "cli/bench/bench_rank.h"

#include <fmt/format.h>

#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/bench/bench_check.h"
#include "cli/bench/inputs.h"
#include "cli/bench/tensors.h"
#include "cli/device/cuda_place.h"
#include "cli/device/place.h"

namespace moeway::cli {
namespace {

// One number of tokens. Memory is taken, and given back, while no rank has work under way: on a device that several ranks
// share, either can wait for all kernels there, which wait for each other.
class Point {
 public:
  Point(const Series& series, const Agreement& agreement, Communicator& communicator, RankProgress& progress,
        int64_t& step, PointReport& report)
      : series_(series),
        agreement_(agreement),
        communicator_(communicator),
        progress_(progress),
        step_(step),
        report_(report),
        config_(series.config) {
    config_.max_tokens = report.tokens;
  }

  Status run();

 private:
  using Call = Status (Point::*)(int set);

  Status open();
  Result<Routing> start_round(int set);
  Status dispatch(int set);
  Status pair(int set);
  Status combine(Routing routing, int set);
  // Every set once, and all that came out of it looked at.
  Status verify_all(BenchCheck& check);
  // `call` for each of the sets in turn, recorded; its times to `us`; then once more, and its outputs looked at.
  Status time(Call call, BenchCheck& check, bool sums, std::vector<double>& us);
  Status settle();
  void count_bytes(const Routes& routes, int64_t scales_bytes);
  Status agree(const Status& mine) { return agreement_.agree(communicator_, mine); }
  void next_step(Phase phase) { progress_.enter(phase, step_++); }

  const Series& series_;
  const Agreement& agreement_;
  Communicator& communicator_;
  RankProgress& progress_;
  int64_t& step_;
  PointReport& report_;
  AllToAllConfig config_;
  AllToAllSizes sizes_{};
  // Declared in the order in which they depend on each other: closed in the opposite one.
  std::unique_ptr<Place> place_;
  AllToAll all_to_all_;
  std::unique_ptr<BenchTensors> tensors_;
};

Status Point::open() {
  const int rank = communicator_.rank();
  Result<std::unique_ptr<Place>> place =
      series_.on_host() ? Result<std::unique_ptr<Place>>(make_host_place()) : make_cuda_place(series_.device_of(rank));
  if (Status status = agree(place.status()); !status.ok()) return status;
  place_ = std::move(place).value();
  const Result<AllToAllSizes> sizes = all_to_all_sizes(config_, rank, series_.num_ranks);
  if (!sizes.ok()) return sizes.status();
  sizes_ = sizes.value();
  Result<AllToAll> all_to_all = AllToAll::create(communicator_, config_);
  if (!all_to_all.ok()) return all_to_all.status();
  all_to_all_ = std::move(all_to_all).value();
  report_.heap_bytes = sizes_.heap_bytes;
  report_.workspace_bytes = sizes_.workspace_bytes;
  return all_to_all_.set_stream(place_->stream());
}

Result<Routing> Point::start_round(int set) {
  if (!series_.split) return all_to_all_.dispatch(tensors_->input(set), tensors_->output());
  Result<Routing> routing = all_to_all_.dispatch_send(tensors_->input(set));
  if (!routing.ok()) return routing;
  if (Status status = all_to_all_.dispatch_recv(routing.value(), tensors_->output()); !status.ok()) return status;
  return routing;
}

Status Point::dispatch(int set) { return start_round(set).status(); }

Status Point::combine(Routing routing, int set) {
  const bool weights_now = config_.weights == kWeightsAtCombine;
  if (!series_.split) {
    if (weights_now) return all_to_all_.combine(routing, tensors_->rows(), tensors_->weights(set), tensors_->y());
    return all_to_all_.combine(routing, tensors_->rows(), tensors_->y());
  }
  if (Status status = all_to_all_.combine_send(routing, tensors_->rows()); !status.ok()) return status;
  if (weights_now) return all_to_all_.combine_recv(routing, tensors_->weights(set), tensors_->y());
  return all_to_all_.combine_recv(routing, tensors_->y());
}

Status Point::pair(int set) {
  const Result<Routing> routing = start_round(set);
  return routing.ok() ? combine(routing.value(), set) : routing.status();
}

// Waits for what was enqueued; what kernels found wrong is told here.
Status Point::settle() {
  const Status waited = place_->synchronize();
  const Status found = all_to_all_.status();
  return found.ok() ? waited : found;
}

Status Point::verify_all(BenchCheck& check) {
  for (int set = 0; set < series_.sets; ++set) {
    if (Status status = agree(check.poison(set)); !status.ok()) return status;
    next_step(Phase::kTiming);
    Status done = pair(set);
    if (done.ok()) done = settle();
    progress_.enter(Phase::kChecking, step_);
    if (done.ok()) done = check.check(set, {.sums = true, .behind = true});
    if (Status status = agree(done); !status.ok()) return status;
  }
  return Status();
}

Status Point::time(Call call, BenchCheck& check, bool sums, std::vector<double>& us) {
  const auto all = [this, call]() -> Status {
    for (int i = 0; i < series_.pairs; ++i)
      if (Status status = (this->*call)(i % series_.sets); !status.ok()) return status;
    return Status();
  };
  Result<std::unique_ptr<Recording>> recording = place_->record(all);
  if (Status status = agree(recording.status()); !status.ok()) return status;
  const int last_set = (series_.pairs - 1) % series_.sets;
  const int replays = series_.warm_up + series_.replays;
  for (int i = 0; i <= replays; ++i) {  // The last one is for the check.
    const Status ready = i == replays ? check.poison(last_set) : communicator_.barrier();
    if (Status status = i == replays ? agree(ready) : ready; !status.ok()) return status;
    next_step(Phase::kTiming);
    const Result<double> took = recording.value()->replay_us();
    if (Status found = settle(); !found.ok()) return found;
    if (!took.ok()) return took.status();
    if (i >= series_.warm_up && i < replays) us.push_back(took.value() / series_.pairs);
  }
  progress_.enter(Phase::kChecking, step_);
  // The recording is given up after this, while nothing is under way.
  return agree(check.check(last_set, {.sums = sums, .behind = false}));
}

void Point::count_bytes(const Routes& routes, int64_t scales_bytes) {
  const bool by_route = config_.weights == kWeightsAtCombine;
  const DType sent_back = by_route || config_.layout == kTokenMajor ? config_.row_dtype : config_.output_dtype;
  double sent = 0;
  for (int set = 0; set < series_.sets; ++set)
    sent += static_cast<double>(tokens_sent(routes, set, communicator_.rank(), series_.num_ranks)) / series_.sets;
  const double back = by_route ? static_cast<double>(config_.max_tokens * config_.topk) : sent;
  report_.dispatch_bytes = sent * static_cast<double>(sizes_.row_bytes + scales_bytes);
  report_.combine_bytes = back * static_cast<double>(config_.hidden * moeway_dtype_bytes(sent_back));
}

Status Point::run() {
  if (Status status = agree(open()); !status.ok()) return status;
  const Routes routes = uniform_routes(series_, report_.tokens);
  const Pattern pattern(series_.seed, config_, sizes_);
  const ExpertRows expert_rows(series_.seed, config_);
  const int rank = communicator_.rank();
  tensors_ = std::make_unique<BenchTensors>(series_, config_, sizes_, *place_);
  if (Status status = agree(tensors_->prepare(routes, pattern, expert_rows, rank)); !status.ok()) return status;
  BenchCheck check({series_, config_, sizes_, routes, pattern, expert_rows, rank}, *tensors_, *place_,
                   [this] { progress_.alive(); });
  Status status = verify_all(check);
  if (status.ok()) status = time(&Point::pair, check, true, report_.pair_us);
  if (status.ok()) status = time(&Point::dispatch, check, false, report_.dispatch_us);
  count_bytes(routes, tensors_->scales_bytes());
  report_.rows_checked = check.rows_checked();
  report_.sums_checked = check.sums_checked();
  report_.wrong = check.wrong();
  report_.findings = check.findings();
  return status;
}

class BenchRun {
 public:
  BenchRun(const Series& series, const Agreement& agreement, RankProgress& progress, SeriesReport& report)
      : series_(series), agreement_(agreement), progress_(progress), report_(report) {}

  // "" or what failed.
  std::string run(Result<Bootstrap> bootstrap, RankReport& rank_report);

 private:
  const Series& series_;
  const Agreement& agreement_;
  RankProgress& progress_;
  SeriesReport& report_;
};

std::string BenchRun::run(Result<Bootstrap> bootstrap, RankReport& rank_report) {
  if (!bootstrap.ok()) return "meeting the other ranks: " + bootstrap.status().to_string();
  const int rank = bootstrap.value().rank();
  CommunicatorOptions options;
  options.timeout_ms = series_.timeout.count();
  if (!series_.on_host()) {
    options.device_type = MOEWAY_CUDA;
    options.device_index = series_.device_of(rank);
  }
  Result<Communicator> communicator = Communicator::create(std::move(bootstrap).value(), options);
  if (!communicator.ok()) return "creating the communicator: " + communicator.status().to_string();
  rank_report.transport = communicator.value().transport();
  progress_.enter(Phase::kReady, 0);
  if (!series_.on_host()) {
    const Result<CudaFacts> facts = look_at_cuda(options.device_index);
    if (!facts.ok()) return "asking for the device: " + facts.status().to_string();
    report_.device = {facts.value().name, facts.value().driver_cuda, facts.value().runtime_cuda,
                      facts.value().multiprocessors};
  }
  int64_t step = 0;
  for (const int64_t tokens : series_.tokens) {
    PointReport report;
    report.tokens = tokens;
    Status status = Point(series_, agreement_, communicator.value(), progress_, step, report).run();
    // Nobody creates the next objects while somebody still destroys these.
    if (status.ok()) status = communicator.value().barrier();
    if (!status.ok())
      return fmt::format("{} tokens, {}: {}", tokens, phase_name(progress_.phase()), status.to_string());
    report_.points.push_back(std::move(report));
  }
  progress_.enter(Phase::kDone, step);
  return "";
}

}  // namespace

RankReport run_bench_rank(const Series& series, const Agreement& agreement, Result<Bootstrap> bootstrap,
                          RankProgress& progress) noexcept {
  RankReport report;
  SeriesReport details;
  try {
    if (bootstrap.ok()) report.rank = bootstrap.value().rank();
    report.failure = BenchRun(series, agreement, progress, details).run(std::move(bootstrap), report);
    report.details = nlohmann::json(details).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  } catch (const std::exception& exception) {
    report.failure = fmt::format("{}: {}", phase_name(progress.phase()), exception.what());
  }
  return report;
}

}  // namespace moeway::cli
