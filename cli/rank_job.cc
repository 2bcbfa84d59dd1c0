#include "cli/rank_job.h"

#include <fmt/format.h>
#include <moeway/moeway.h>

#include <exception>
#include <thread>
#include <utility>

#include "cli/device/cuda_place.h"
#include "cli/device/place.h"
#include "cli/gather.h"
#include "cli/random.h"

namespace moeway::cli {
namespace {

class RankRun {
 public:
  RankRun(const RankJob& job, RankProgress& progress, RankReport& report)
      : job_(job), progress_(progress), report_(report) {}

  // "" or what failed.
  std::string run(Result<Bootstrap> bootstrap, std::vector<RankReport>* gathered);

 private:
  // Opens communicator, place and objects. "" or what failed.
  std::string open(Result<Bootstrap> bootstrap);
  std::string one_round(int64_t round);
  std::string close(std::vector<RankReport>* gathered);
  void stop_for_a_while(int64_t round, size_t object, ObjectRun::Step step) const;
  std::string failed(const char* what, const Status& status) const {
    return fmt::format("{}: {}", what, status.to_string());
  }

  const RankJob& job_;
  RankProgress& progress_;
  RankReport& report_;
  // Declared in the order in which they depend on each other: closed in the opposite one.
  std::unique_ptr<Place> place_;
  Communicator communicator_;
  std::vector<std::unique_ptr<ObjectRun>> objects_;
};

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
  for (size_t i = 0; i <= job_.others.size(); ++i) {
    const ObjectJob& object = i == 0 ? job_ : job_.others[i - 1];
    objects_.push_back(std::make_unique<ObjectRun>(object, communicator_, *place_, progress_));
    if (std::string failure = objects_.back()->open(); !failure.empty()) return failure;
  }
  if (job_.devices.empty()) return "";
  // Nobody's kernels run before everybody has memory: on a shared device, taking it can wait for them.
  const Status met = communicator_.barrier();
  return met.ok() ? "" : failed("waiting for the other ranks", met);
}

void RankRun::stop_for_a_while(int64_t round, size_t object, ObjectRun::Step step) const {
  const Disturbance& disturbance = job_.disturbance;
  const int rank = communicator_.rank();
  if (disturbance.most_us == 0 || (disturbance.rank >= 0 && disturbance.rank != rank)) return;
  Random random(mix({disturbance.seed, static_cast<uint64_t>(rank), static_cast<uint64_t>(round), object, step}));
  if (random.below(4) != 0) return;
  const uint64_t us = random.below(static_cast<uint64_t>(disturbance.most_us) + 1);
  std::this_thread::sleep_for(std::chrono::microseconds(us));
}

// Each object's steps come in their order; which object is next is drawn, the same on all ranks.
std::string RankRun::one_round(int64_t round) {
  Random random(mix({job_.disturbance.seed, static_cast<uint64_t>(round)}));
  std::vector<int> next(objects_.size(), 0);
  for (size_t left = objects_.size() * ObjectRun::kNumSteps; left > 0; --left) {
    size_t object = objects_.size() == 1 ? 0 : random.below(objects_.size());
    while (next[object] == ObjectRun::kNumSteps) object = (object + 1) % objects_.size();
    const auto step = static_cast<ObjectRun::Step>(next[object]++);
    stop_for_a_while(round, object, step);
    std::string failure = objects_[object]->step(step, round);
    if (failure.empty()) continue;
    return objects_.size() == 1 ? failure : fmt::format("object {}: {}", object, failure);
  }
  return "";
}

std::string RankRun::close(std::vector<RankReport>* gathered) {
  if (gathered != nullptr)
    if (const Status status = gather_reports(communicator_, *place_, job_.timeout, report_, *gathered); !status.ok())
      return failed("exchanging the reports", status);
  for (const auto& object : objects_)
    if (const Status status = object->close(); !status.ok()) return failed("closing the AllToAll", status);
  if (const Status status = communicator_.close(); !status.ok()) return failed("closing the communicator", status);
  progress_.enter(Phase::kDone, job_.rounds);
  return "";
}

std::string RankRun::run(Result<Bootstrap> bootstrap, std::vector<RankReport>* gathered) {
  if (std::string failure = open(std::move(bootstrap)); !failure.empty()) return failure;
  std::string failure;
  for (int64_t round = 0; round < job_.rounds && failure.empty(); ++round) failure = one_round(round);
  for (size_t i = 0; i < objects_.size(); ++i) {
    if (failure.empty()) objects_[i]->check_stats();
    objects_[i]->fill(report_, static_cast<int>(i));
  }
  return failure.empty() ? close(gathered) : failure;
}

}  // namespace

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
