#include "cli/job.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <thread>

#include "cli/meeting_directory.h"
#include "cli/rank_process.h"
#include "cli/signals.h"

namespace moeway::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTick{50};
// Once a rank has failed, the others have this long to find out by themselves: their own words say more.
constexpr milliseconds kMaxGrace{5000};
constexpr milliseconds kExtra{1000};

class Job {
 public:
  explicit Job(const JobOptions& options) : options_(options), board_(options.num_ranks) {}
  JobEnd run();

 private:
  bool start(const std::string& directory);
  RankProcess::Work work_of(std::vector<int> ranks, std::string directory);
  void watch(MeetingDirectory& directory);
  void wait_for_news();
  std::optional<std::string> reason_to_end(Clock::time_point now);
  void end_all(const std::string& reason);
  void conclude(JobEnd& end);
  std::string last_seen(int rank) const;

  const JobOptions& options_;
  ProgressBoard board_;
  std::vector<RankProcess> processes_;
  std::string not_started_;  // Why a process could not be started.
  std::string end_reason_;   // Why processes were ended from here.
  int signal_ = 0;
  uint64_t beats_ = 0;
  Clock::time_point last_beat_ = Clock::now();
  std::optional<Clock::time_point> first_failure_;
  int first_failed_rank_ = -1;
};

RankProcess::Work Job::work_of(std::vector<int> ranks, std::string directory) {
  return [this, ranks = std::move(ranks), directory = std::move(directory)] {
    std::vector<RankReport> reports(ranks.size());
    const auto report_of = [&](size_t index, Result<Bootstrap> bootstrap) {
      reports[index] = options_.body(ranks[index], std::move(bootstrap), board_.rank(ranks[index]));
      reports[index].rank = ranks[index];
    };
    if (!options_.as_threads) {
      report_of(0, Bootstrap::local(directory, ranks[0], options_.num_ranks, options_.timeout));
      return reports;
    }
    const ThreadGroup group(options_.num_ranks);
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < ranks.size(); ++i)
      threads.emplace_back([&, i] { report_of(i, Bootstrap::threads(group, ranks[i])); });
    threads.clear();  // Joins them.
    return reports;
  };
}

bool Job::start(const std::string& directory) {
  const int per_process = options_.as_threads ? options_.num_ranks : 1;
  for (int first = 0; first < options_.num_ranks; first += per_process) {
    std::vector<int> ranks;
    for (int rank = first; rank < first + per_process; ++rank) ranks.push_back(rank);
    Result<RankProcess> process = RankProcess::start(ranks, work_of(ranks, directory), processes_);
    if (!process.ok()) {
      not_started_ = fmt::format("rank {} could not be started: {}", first, process.status().message());
      return false;
    }
    processes_.push_back(std::move(process).value());
  }
  return true;
}

std::string Job::last_seen(int rank) const {
  const RankProgress& progress = board_.rank(rank);
  if (progress.phase() == Phase::kMeeting) return "while the ranks were meeting";
  return fmt::format("in round {}, {}", progress.round() + 1, phase_name(progress.phase()));
}

void Job::wait_for_news() {
  std::vector<pollfd> descriptors;
  for (const RankProcess& process : processes_)
    if (process.descriptor() >= 0) descriptors.push_back({process.descriptor(), POLLIN, 0});
  const int timeout_ms = static_cast<int>((descriptors.empty() ? kTick / 10 : kTick).count());
  poll(descriptors.data(), descriptors.size(), timeout_ms);
  for (RankProcess& process : processes_) process.update();
}

std::optional<std::string> Job::reason_to_end(Clock::time_point now) {
  if (const int signal = SignalCatcher::caught(); signal != 0) {
    signal_ = signal;
    return fmt::format("signal {} ({}) came", signal, strsignal(signal));
  }
  for (const RankProcess& process : processes_) {
    if (first_failure_ || !process.failed()) continue;
    first_failure_ = now;
    first_failed_rank_ = process.first_failed_rank();
  }
  if (first_failure_ && now - *first_failure_ > std::min(options_.timeout, kMaxGrace) + kExtra)
    return fmt::format("it did not end by itself when rank {} had failed", first_failed_rank_);
  if (const uint64_t beats = board_.beats(); beats != beats_) {
    beats_ = beats;
    last_beat_ = now;
  }
  // A rank waits for one peer after another, each at most `timeout`; in between it gets on.
  const milliseconds limit = 2 * options_.timeout + 10 * kExtra;
  if (now - last_beat_ > limit)
    return fmt::format("no rank had got on for {} s", std::chrono::duration_cast<std::chrono::seconds>(limit).count());
  return std::nullopt;
}

void Job::end_all(const std::string& reason) {
  if (end_reason_.empty()) end_reason_ = reason;
  for (RankProcess& process : processes_) process.kill();
}

void Job::watch(MeetingDirectory& directory) {
  const auto ended = [](const RankProcess& process) { return process.ended(); };
  while (!std::all_of(processes_.begin(), processes_.end(), ended)) {
    wait_for_news();
    if (board_.all_ready()) directory.remove();
    if (const auto reason = reason_to_end(Clock::now())) end_all(*reason);
    if (options_.on_tick) options_.on_tick(board_);
  }
}

void Job::conclude(JobEnd& end) {
  end.signal = signal_;
  for (RankProcess& process : processes_) {
    std::vector<RankReport> reports = process.take_reports();
    for (size_t i = 0; i < process.ranks().size(); ++i) {
      const int rank = process.ranks()[i];
      if (i < reports.size()) {
        if (reports[i].failure.empty() && !process.end_was_clean()) reports[i].failure = process.how_it_ended();
        if (!reports[i].failure.empty()) end.failures.push_back({rank, RankFailure::Kind::kFailed, reports[i].failure});
        end.reports.push_back(std::move(reports[i]));
        continue;
      }
      RankFailure failure{rank, RankFailure::Kind::kDied, ""};
      if (process.was_killed_here()) {
        failure.kind = RankFailure::Kind::kHung;
        failure.message = fmt::format("had to be ended, as {}; last seen {}", end_reason_, last_seen(rank));
      } else {
        failure.message = fmt::format("{}; last seen {}", process.how_it_ended(), last_seen(rank));
      }
      end.reports.emplace_back();
      end.reports.back().rank = rank;
      end.reports.back().failure = failure.message;
      end.failures.push_back(std::move(failure));
    }
  }
  if (!not_started_.empty()) end.failures.insert(end.failures.begin(), {0, RankFailure::Kind::kDied, not_started_});
  std::stable_sort(end.failures.begin(), end.failures.end(),
                   [](const RankFailure& a, const RankFailure& b) { return a.kind < b.kind; });
}

JobEnd Job::run() {
  JobEnd end;
  Result<MeetingDirectory> directory = MeetingDirectory::create();
  if (!directory.ok()) {
    end.failures.push_back({0, RankFailure::Kind::kFailed, directory.status().message()});
    return end;
  }
  const SignalCatcher catcher;
  if (!start(directory.value().path())) end_all("not all ranks could be started");
  watch(directory.value());
  conclude(end);
  return end;
}

}  // namespace

JobEnd run_job(const JobOptions& options) { return Job(options).run(); }

}  // namespace moeway::cli
