#include "cli/bench/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/bench/inputs.h"
#include "cli/device/cuda_place.h"
#include "cli/device/nccl.h"
#include "cli/random.h"
#include "cli/terminal.h"

namespace moeway::cli {
namespace {

constexpr int64_t kTileBytes = 1 << 20;
constexpr int64_t kMaxDenseBytes = int64_t{8} << 30;  // Of one buffer; there are two.
constexpr int64_t kCheckedBytes = 4096;               // At both ends of what came from each rank.
constexpr int kDensePairs = 4;

// What the memory of a rank holds: the same random bytes again and again.
std::vector<std::byte> tile_of(uint64_t seed, int rank) {
  Random random(mix({seed, 4, static_cast<uint64_t>(rank)}));
  std::vector<std::byte> tile(static_cast<size_t>(kTileBytes));
  for (std::byte& byte : tile) byte = static_cast<std::byte>(random.next());
  return tile;
}

Result<std::byte*> tiled_memory(Place& place, int64_t bytes, const std::vector<std::byte>& tile) {
  Result<std::byte*> memory = place.allocate(bytes);
  if (!memory.ok()) return memory;
  int64_t done = std::min(bytes, kTileBytes);
  if (Status s = place.copy_in(memory.value(), tile.data(), done); !s.ok()) return s;
  for (int64_t next = 0; done < bytes; done += next) {  // Whole tiles each time but for the last.
    next = std::min(done, bytes - done);
    if (Status s = place.copy_within(memory.value() + done, memory.value(), next); !s.ok()) return s;
  }
  if (Status s = place.synchronize(); !s.ok()) return s;
  return memory;
}

// A dense exchange there and back: `there` bytes of each token of `units` units (ranks or experts).
struct Dense {
  const char* name;
  int64_t unit_tokens, there, back;
  std::function<int64_t(int rank)> units;  // Of a rank: 1, or its number of experts.

  int64_t out_bytes(int rank, int64_t token_bytes) const { return units(rank) * unit_tokens * token_bytes; }
};

class Baselines {
 public:
  Baselines(const Series& series, const Agreement& agreement, RankProgress& progress, SeriesReport& report)
      : series_(series), agreement_(agreement), progress_(progress), report_(report) {}

  // "" or what failed.
  std::string run(const std::string& nccl, Result<Bootstrap> bootstrap);

 private:
  Status load_nccl(const std::string& library);
  Status one_size(int64_t tokens);
  Status copy(const AllToAllConfig& config, const AllToAllSizes& sizes);
  Status dense(const Dense& exchange);
  Status check_dense(const Dense& exchange, Place& place, const std::byte* recv, BaselineReport& baseline) const;
  Status time(Place& place, const std::function<Status()>& pair, int pairs, std::vector<double>& us);
  BaselineReport& add(const char* name, int64_t tokens, int64_t there, int64_t back) {
    BaselineReport baseline;
    baseline.name = name;
    baseline.tokens = tokens;
    baseline.dispatch_bytes = there;
    baseline.combine_bytes = back;
    return report_.baselines.emplace_back(std::move(baseline));
  }
  Status agree(const Status& mine) { return agreement_.agree(communicator_, mine); }

  const Series& series_;
  const Agreement& agreement_;
  RankProgress& progress_;
  SeriesReport& report_;
  Communicator communicator_;
  std::unique_ptr<Nccl> nccl_;
  std::string no_nccl_;  // Why it is not used.
  int rank_ = 0;
  int64_t step_ = 0;
};

Status Baselines::time(Place& place, const std::function<Status()>& pair, int pairs, std::vector<double>& us) {
  const auto all = [&]() -> Status {
    for (int i = 0; i < pairs; ++i)
      if (Status status = pair(); !status.ok()) return status;
    return Status();
  };
  // Once without being recorded: what is set up with the first call may not be part of a graph.
  Status once = pair();
  if (once.ok()) once = place.synchronize();
  if (Status status = agree(once); !status.ok()) return status;
  Result<std::unique_ptr<Recording>> recording = place.record(all);
  if (Status status = agree(recording.status()); !status.ok()) return status;
  for (int i = 0; i < series_.warm_up + series_.replays; ++i) {
    if (Status status = communicator_.barrier(); !status.ok()) return status;
    progress_.alive();
    const Result<double> took = recording.value()->replay_us();
    if (!took.ok()) return took.status();
    if (i >= series_.warm_up) us.push_back(took.value() / pairs);
  }
  return communicator_.barrier();
}

Status Baselines::copy(const AllToAllConfig& config, const AllToAllSizes& sizes) {
  progress_.enter(Phase::kTiming, step_++);
  const Routes routes = uniform_routes(series_, config.max_tokens);
  const int64_t scales_bytes = sizes.num_scales * (config.scales == kScalesF32 ? 4 : 1);
  const int64_t sent = tokens_sent(routes, 0, rank_, series_.num_ranks);
  BaselineReport& baseline = add("copy", config.max_tokens, sent * (sizes.row_bytes + scales_bytes),
                                 sent * config.hidden * moeway_dtype_bytes(config.output_dtype));
  Result<std::unique_ptr<Place>> place = make_cuda_place(series_.device_of(rank_));
  if (Status status = agree(place.status()); !status.ok()) return status;
  const int64_t most = std::max(baseline.dispatch_bytes, baseline.combine_bytes);
  const Result<std::byte*> from = tiled_memory(*place.value(), most, tile_of(series_.seed, rank_));
  const Result<std::byte*> to = place.value()->allocate(most);
  if (Status status = agree(from.ok() ? to.status() : from.status()); !status.ok()) return status;
  const auto pair = [&]() -> Status {
    Status status = place.value()->copy_within(to.value(), from.value(), baseline.dispatch_bytes);
    return status.ok() ? place.value()->copy_within(to.value(), from.value(), baseline.combine_bytes) : status;
  };
  return time(*place.value(), pair, series_.pairs, baseline.pair_us);
}

Status Baselines::check_dense(const Dense& exchange, Place& place, const std::byte* recv,
                              BaselineReport& baseline) const {
  // The way back came last: from rank p the part of p's memory that lies behind what p sent to the ranks before this one.
  int64_t from = 0;
  for (int peer = 0; peer < series_.num_ranks; ++peer) {
    const int64_t bytes = exchange.out_bytes(peer, exchange.back);
    const int64_t sent_from = rank_ * exchange.out_bytes(peer, exchange.back);
    const std::vector<std::byte> tile = tile_of(series_.seed, peer);
    const int64_t part = std::min(kCheckedBytes, bytes);
    std::vector<std::byte> got(static_cast<size_t>(part));
    for (const int64_t at : {int64_t{0}, bytes - part}) {
      if (Status s = place.copy_out(got.data(), recv + from + at, part); !s.ok()) return s;
      for (int64_t i = 0; i < part; ++i)
        baseline.wrong += got[static_cast<size_t>(i)] != tile[static_cast<size_t>((sent_from + at + i) % kTileBytes)];
    }
    from += bytes;
  }
  return Status();
}

Status Baselines::dense(const Dense& exchange) {
  progress_.enter(Phase::kTiming, step_++);
  // There: for each unit of every rank. Back: from each of this rank's units to every rank.
  int64_t all_units = 0;
  for (int rank = 0; rank < series_.num_ranks; ++rank) all_units += exchange.units(rank);
  const int64_t own = exchange.units(rank_) * series_.num_ranks;
  const int64_t there = all_units * exchange.unit_tokens * exchange.there;
  const int64_t back = own * exchange.unit_tokens * exchange.back;
  BaselineReport& baseline = add(exchange.name, exchange.unit_tokens, there, back);
  const int64_t most = std::max(
      {there, back, own * exchange.unit_tokens * exchange.there, all_units * exchange.unit_tokens * exchange.back});
  // The same on all ranks: by the largest share of experts.
  const int64_t largest =
      exchange.units(0) * series_.num_ranks * exchange.unit_tokens * std::max(exchange.there, exchange.back);
  if (!no_nccl_.empty())
    baseline.skipped = no_nccl_;
  else if (std::max(largest, all_units * exchange.unit_tokens * std::max(exchange.there, exchange.back)) >
           kMaxDenseBytes)
    baseline.skipped =
        fmt::format("its buffers would have {}, at most {} are used", bytes_text(static_cast<double>(largest)),
                    bytes_text(static_cast<double>(kMaxDenseBytes)));
  if (!baseline.skipped.empty()) return Status();
  Result<std::unique_ptr<Place>> place = make_cuda_place(series_.device_of(rank_));
  if (Status status = agree(place.status()); !status.ok()) return status;
  const Result<std::byte*> send = tiled_memory(*place.value(), most, tile_of(series_.seed, rank_));
  const Result<std::byte*> recv = place.value()->allocate(most);
  if (Status status = agree(send.ok() ? recv.status() : send.status()); !status.ok()) return status;
  // Towards a rank: its units, behind those of the ranks before it. From a rank: as much as goes to this one.
  const auto by_owner = [&](int64_t bytes) {
    return [&exchange, bytes](int peer) {
      Nccl::Share share{0, exchange.out_bytes(peer, bytes)};
      for (int before = 0; before < peer; ++before) share.offset += exchange.out_bytes(before, bytes);
      return share;
    };
  };
  const auto of_own = [&](int64_t bytes) {
    const int64_t each = exchange.out_bytes(rank_, bytes);
    return [each](int peer) { return Nccl::Share{peer * each, each}; };
  };
  const auto pair = [&]() -> Status {
    void* stream = place.value()->stream();
    Status status =
        nccl_->all_to_all(send.value(), by_owner(exchange.there), recv.value(), of_own(exchange.there), stream);
    if (!status.ok()) return status;
    return nccl_->all_to_all(send.value(), of_own(exchange.back), recv.value(), by_owner(exchange.back), stream);
  };
  if (Status status = time(*place.value(), pair, kDensePairs, baseline.pair_us); !status.ok()) return status;
  return agree(check_dense(exchange, *place.value(), recv.value(), baseline));
}

Status Baselines::one_size(int64_t tokens) {
  AllToAllConfig config = series_.config;
  config.max_tokens = tokens;
  const Result<AllToAllSizes> sizes = all_to_all_sizes(config, rank_, series_.num_ranks);
  if (!sizes.ok()) return sizes.status();
  if (Status status = copy(config, sizes.value()); !status.ok()) return status;
  const int64_t there = sizes.value().row_bytes + sizes.value().num_scales * (config.scales == kScalesF32 ? 4 : 1);
  const int64_t back = config.hidden * moeway_dtype_bytes(config.row_dtype);
  if (Status s = dense({"nccl_per_rank", tokens, there, back, [](int) { return int64_t{1}; }}); !s.ok()) return s;
  return dense({"nccl_per_expert", tokens, there, back, [this, &config](int rank) {
                  return int64_t{num_local_experts(rank, config.num_experts, series_.num_ranks)};
                }});
}

Status Baselines::load_nccl(const std::string& library) {
  if (std::ssize(series_.devices) < series_.num_ranks) {
    no_nccl_ = "NCCL has at most one rank on a device";
    return Status();
  }
  Result<std::unique_ptr<Nccl>> loaded = Nccl::load(library);
  Status status = loaded.status();
  if (status.ok() && rank_ == 0) {
    const Result<Nccl::UniqueId> id = loaded.value()->unique_id();
    status = id.status();
    if (id.ok()) agreement_.shared() = id.value();
  }
  if (status = agree(status); !status.ok()) {  // On all ranks or on none.
    no_nccl_ = status.message();
    return Status();
  }
  nccl_ = std::move(loaded).value();
  report_.nccl = nccl_->version();
  const Result<std::unique_ptr<Place>> current = make_cuda_place(series_.device_of(rank_));
  if (Status s = agree(current.status()); !s.ok()) return s;
  if (Status s = agree(nccl_->init(series_.num_ranks, agreement_.shared(), rank_)); !s.ok()) no_nccl_ = s.message();
  return Status();
}

std::string Baselines::run(const std::string& nccl, Result<Bootstrap> bootstrap) {
  if (!bootstrap.ok()) return "meeting the other ranks: " + bootstrap.status().to_string();
  CommunicatorOptions options;  // On the host: for barriers alone.
  options.timeout_ms = series_.timeout.count();
  Result<Communicator> communicator = Communicator::create(std::move(bootstrap).value(), options);
  if (!communicator.ok()) return "creating the communicator: " + communicator.status().to_string();
  communicator_ = std::move(communicator).value();
  rank_ = communicator_.rank();
  progress_.enter(Phase::kReady, 0);
  if (Status status = load_nccl(nccl); !status.ok()) return "NCCL: " + status.to_string();
  for (const int64_t tokens : series_.tokens)
    if (Status status = one_size(tokens); !status.ok())
      return fmt::format("{} tokens, {}: {}", tokens, report_.baselines.back().name, status.to_string());
  progress_.enter(Phase::kDone, step_);
  return "";
}

}  // namespace

RankReport run_baseline_rank(const Series& series, const std::string& nccl, const Agreement& agreement,
                             Result<Bootstrap> bootstrap, RankProgress& progress) noexcept {
  RankReport report;
  SeriesReport details;
  try {
    if (bootstrap.ok()) report.rank = bootstrap.value().rank();
    report.failure = Baselines(series, agreement, progress, details).run(nccl, std::move(bootstrap));
    report.details = nlohmann::json(details).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  } catch (const std::exception& exception) {
    report.failure = fmt::format("{}: {}", phase_name(progress.phase()), exception.what());
  }
  return report;
}

}  // namespace moeway::cli
