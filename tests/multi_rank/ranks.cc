#include "multi_rank/ranks.h"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>

#include "multi_rank/rank_access.h"

namespace moeway::multi_rank {
namespace {

constexpr int kMostFailures = 8;  // Of one rank; what follows the first faults is noise.

size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// Threads that run too long cannot be stopped: end the program, so that a hang is a failure with a name.
class Watchdog {
 public:
  explicit Watchdog(std::chrono::seconds limit) : thread_([this, limit] { watch(limit); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch(std::chrono::seconds limit) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, limit, [this] { return done_; })) return;
    std::fprintf(stderr, "ranks as threads hang: not done after %lld s, ending the program\n",
                 static_cast<long long>(limit.count()));
    std::abort();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

RanksResult run_threads(const RanksOptions& options, const std::function<void(Rank&)>& body) {
  const auto size = static_cast<size_t>(options.num_ranks);
  place::prepare();
  const size_t descriptors = open_descriptors();
  std::vector<Rank> ranks;
  for (int r = 0; r < options.num_ranks; ++r) ranks.emplace_back(r, options.num_ranks);
  {
    const Watchdog watchdog(options.limit);
    const ThreadGroup group(options.num_ranks);
    std::vector<std::thread> threads;
    for (size_t r = 0; r < size; ++r) {
      threads.emplace_back([&, r] {
        RankAccess::run(
            ranks[r], options, [&] { return Bootstrap::threads(group, static_cast<int>(r)); }, body);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  RanksResult result;
  for (Rank& rank : ranks) RankAccess::collect(rank, result);
  // A driver opens what it needs when it needs it, and keeps it.
  if (const size_t left = open_descriptors(); left != descriptors && !place::on_devices())
    result.failures +=
        "open descriptors: " + std::to_string(descriptors) + " before the job, " + std::to_string(left) + " after it\n";
  return result;
}

}  // namespace

void Rank::fail(const std::string& text) {
  if (++num_failures_ <= kMostFailures) failures_ += "rank " + std::to_string(rank_) + ": " + text + "\n";
}

bool Rank::expect(bool condition, std::string_view otherwise) {
  if (!condition) fail(std::string(otherwise));
  return condition;
}

bool Rank::expect_ok(const Status& status, std::string_view what) {
  if (!status.ok()) fail(std::string(what) + ": expected OK, got " + status.to_string());
  return status.ok();
}

bool Rank::expect_error(const Status& status, StatusCode code, const std::vector<std::string>& texts,
                        std::string_view what) {
  std::string missing;
  for (const std::string& text : texts)
    if (status.message().find(text) == std::string::npos) missing += " '" + text + "'";
  if (status.code() == code && missing.empty()) return true;
  fail(std::string(what) + ": expected " + moeway_status_name(code) +
       (missing.empty() ? "" : " with" + missing + " in the message") + ", got " + status.to_string());
  return false;
}

void Rank::give(const void* bytes, size_t size) {
  const auto* first = static_cast<const std::byte*>(bytes);
  given_.insert(given_.end(), first, first + size);
}

std::string RanksResult::text(int rank) const {
  const std::vector<std::byte>& bytes = given[static_cast<size_t>(rank)];
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

RanksResult run_ranks(const RanksOptions& options, const std::function<void(Rank&)>& body) {
  return place::rank_form(options.as) == As::kThreads ? run_threads(options, body) : run_processes(options, body);
}

PrivateDirectory::PrivateDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "moeway-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    std::perror("mkdtemp");
    std::abort();
  }
  path_ = name;
}

PrivateDirectory::~PrivateDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> PrivateDirectory::entries() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    names.push_back(entry.path().filename().string());
  return names;
}

}  // namespace moeway::multi_rank
