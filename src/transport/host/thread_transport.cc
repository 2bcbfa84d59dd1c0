#include "transport/host/thread_transport.h"

#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "base/format.h"
#include "transport/host/free_memory.h"

namespace moeway::transport {
namespace {

// A page: more than any alignment that is asked for, and segments of different ranks never share a cache line.
constexpr std::align_val_t kAlignment{4096};

class Segment {
 public:
  // Null if the memory cannot be had. Touching every byte takes the memory now, near the thread that owns it.
  static std::shared_ptr<Segment> make(size_t bytes) {
    void* const memory = ::operator new(bytes, kAlignment, std::nothrow);
    if (memory == nullptr) return nullptr;
    std::memset(memory, 0, bytes);
    return std::make_shared<Segment>(memory, bytes);
  }
  Segment(void* memory, size_t bytes) : memory_(static_cast<std::byte*>(memory)), bytes_(bytes) {}
  ~Segment() { ::operator delete(memory_, kAlignment); }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::byte* memory() const { return memory_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* const memory_;
  const size_t bytes_;
};

// Where the threads of this process find each other's segments. It keeps none alive: a segment lives as long as a heap
// reaches it.
class Registry {
 public:
  static Registry& instance() {
    // Never destroyed: threads may outlive the process's static objects.
    static Registry& registry = *new Registry;
    return registry;
  }

  uint64_t add(const std::shared_ptr<Segment>& segment) {
    const std::lock_guard lock(mutex_);
    segments_[++last_key_] = segment;
    return last_key_;
  }
  std::shared_ptr<Segment> find(uint64_t key) {
    const std::lock_guard lock(mutex_);
    const auto found = segments_.find(key);
    return found == segments_.end() ? nullptr : found->second.lock();
  }
  void remove(uint64_t key) {
    const std::lock_guard lock(mutex_);
    segments_.erase(key);
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<Segment>> segments_;
  uint64_t last_key_ = 0;
};

class ThreadHeap final : public SymmetricHeap {
 public:
  ThreadHeap(size_t bytes, std::vector<std::shared_ptr<Segment>> segments)
      : bytes_(bytes), segments_(std::move(segments)) {}
  size_t bytes() const override { return bytes_; }
  std::byte* base(int rank) const override { return segments_[static_cast<size_t>(rank)]->memory(); }

 private:
  const size_t bytes_;
  const std::vector<std::shared_ptr<Segment>> segments_;
};

class ThreadTransport final : public Transport {
 public:
  const char* name() const override { return "host threads"; }

  Result<std::unique_ptr<SymmetricHeap>> allocate(size_t bytes, Collective& collective, Deadline deadline) override {
    if (Status status = check_segments_fit(bytes, collective, deadline); !status.ok()) return status;
    const std::shared_ptr<Segment> mine = Segment::make(bytes);
    Status status;
    if (mine == nullptr) {
      status = error(MOEWAY_OUT_OF_MEMORY, "a segment of {} bytes is needed, {} bytes of memory are free", bytes,
                     read_free_memory().machine_bytes);
    }
    if (status = collective.agree(status, deadline); !status.ok()) return status;
    const uint64_t key = Registry::instance().add(mine);
    Result<std::vector<std::shared_ptr<Segment>>> segments = find_all(key, bytes, collective, deadline);
    // All ranks have found all segments, or will not look for them any more.
    Registry::instance().remove(key);
    if (!segments.ok()) return segments.status();
    return std::unique_ptr<SymmetricHeap>(std::make_unique<ThreadHeap>(bytes, std::move(segments).value()));
  }

  // A thread that ends takes its process with it or says goodbye; there is nothing to look at.
  bool peer_lost(int) const override { return false; }

 private:
  static Result<std::vector<std::shared_ptr<Segment>>> find_all(uint64_t key, size_t bytes, Collective& collective,
                                                                Deadline deadline) {
    const Result<std::vector<uint64_t>> keys = collective.all_gather_value(key, deadline);
    if (!keys.ok()) return keys.status();
    std::vector<std::shared_ptr<Segment>> segments;
    Status status;
    for (size_t r = 0; r < keys.value().size(); ++r) {
      segments.push_back(Registry::instance().find(keys.value()[r]));
      if (segments.back() == nullptr) {
        status = error(MOEWAY_PEER_LOST, "rank {} has let go of its segment", r);
      } else if (segments.back()->bytes() != bytes) {
        status = error(MOEWAY_INTERNAL, "rank {} names a segment of {} bytes, expected {}", r, segments.back()->bytes(),
                       bytes);
      }
    }
    if (status = collective.agree(status, deadline); !status.ok()) return status;
    return segments;
  }
};

}  // namespace

std::unique_ptr<Transport> make_thread_transport() { return std::make_unique<ThreadTransport>(); }

}  // namespace moeway::transport
