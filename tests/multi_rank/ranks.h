// Runs the ranks of a job, as threads or as processes of this machine, and brings back what they have to say.
//
// A rank reports failures as text and never through a test framework: in a process of its own the framework's record
// would be lost. Every run has a hard limit of wall-clock time. Ranks as processes are killed when it passes; threads
// cannot be, so then the whole program is ended with a message.
#pragma once

#include <moeway/moeway.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moeway::multi_rank {

enum class As { kThreads, kProcesses };
inline const char* as_name(As as) { return as == As::kThreads ? "threads" : "processes"; }

// One rank, inside a run. Used by that rank's thread alone.
class Rank {
 public:
  Rank(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  Communicator& communicator() { return *communicator_; }

  // Notes what went wrong; the first few notes of a rank are kept.
  void fail(const std::string& text);
  // Returns `condition`; notes `otherwise` if it does not hold.
  bool expect(bool condition, std::string_view otherwise);
  // Returns whether the status is OK; notes `what` and the status if not.
  bool expect_ok(const Status& status, std::string_view what);
  // Returns whether the status has the code and every text is in its message; notes what it is if not.
  bool expect_error(const Status& status, StatusCode code, const std::vector<std::string>& texts,
                    std::string_view what);
  bool failed() const { return num_failures_ > 0; }

  // Appends to what the run brings back from this rank.
  void give(const void* bytes, size_t size);
  void give(const std::string& text) { give(text.data(), text.size()); }

 private:
  friend struct RankAccess;
  int rank_;
  int size_;
  std::optional<Communicator> communicator_;
  std::string failures_;
  int num_failures_ = 0;
  std::vector<std::byte> given_;
};

struct RanksOptions {
  int num_ranks = 2;
  As as = As::kThreads;
  std::chrono::seconds limit{60};
  bool with_communicator = true;  // Else the ranks have no communicator(), only rank() and size().
  std::vector<int> may_die{};     // Of ranks as processes: those whose end by a signal is part of the test.
};

struct RanksResult {
  std::string failures;                       // Empty: all went well.
  std::vector<std::vector<std::byte>> given;  // Of every rank.

  // What a rank gave, as text.
  std::string text(int rank) const;
};

// Runs `body` once per rank, at the same time. Also a failure: a rank that ends by a signal or leaves something behind
// (open descriptors, files in the directory where processes meet).
RanksResult run_ranks(const RanksOptions& options, const std::function<void(Rank&)>& body);

// A directory that only this user can enter, empty; removed with its destruction.
class PrivateDirectory {
 public:
  PrivateDirectory();
  ~PrivateDirectory();
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  const std::string& path() const { return path_; }
  // Names of what is in it.
  std::vector<std::string> entries() const;

 private:
  std::string path_;
};

}  // namespace moeway::multi_rank
