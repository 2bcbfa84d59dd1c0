// Dispatch and combine between CUDA devices of one machine: the time of a pair in a captured graph of many, by the rules of
// docs/performance-log.md. A thread per rank, a device per rank. Outputs are checked before and after the timing; the exit code is 0 only if every
// value was right.
//
//   device_round [--ranks W] [--tokens T[,T...]] [--dtype fp8|bf16] [--split] [--json FILE]
//
// Shape: 256 experts, top-8, hidden 7168, expert_padded, weights at dispatch, results bf16; fp8 comes with a float32 scale per 128
// elements. Four input sets in turn, another routing on every rank and in every set.
#include <cuda_runtime.h>
#include <moeway/moeway.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "device_options.h"

namespace {

using bench::Options;

constexpr int kExperts = 256, kTopk = 8, kHidden = 7168, kSets = 4, kPairs = 40, kReplays = 20, kWarmUp = 4;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
void check(const moeway::Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, status.to_string().c_str());
  std::exit(1);
}
template <class T>
T must(moeway::Result<T> result, const char* what) {
  check(result.status(), what);
  return std::move(result).value();
}

// What an expert makes of its row, in place of an expert: any numbers that tell rank, row and element apart.
__host__ __device__ uint16_t expert_value(int rank, int64_t row, int h) {
  const uint32_t mixed = (static_cast<uint32_t>(row) * 2654435761u) ^ (static_cast<uint32_t>(h) * 40503u) ^
                         (static_cast<uint32_t>(rank + 1) * 2246822519u);
  return static_cast<uint16_t>(0x3f00u + ((mixed >> 13) & 0xffu));  // bf16 from 0.5 to 2.
}
__global__ void fill_rows(uint16_t* rows, int64_t num_rows, int rank) {
  for (int64_t row = blockIdx.x; row < num_rows; row += gridDim.x) {
    for (int h = static_cast<int>(threadIdx.x); h < kHidden; h += static_cast<int>(blockDim.x)) {
      rows[row * kHidden + h] = expert_value(rank, row, h);
    }
  }
}

float from_bf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}
uint16_t to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

struct Set {  // One rank's inputs, on the host.
  std::vector<uint8_t> x;
  std::vector<float> scales, weights;
  std::vector<int32_t> experts;
};

Set make_set(int rank, int set, int num_tokens, int64_t row_bytes) {
  std::mt19937 random(static_cast<uint32_t>(set * 1000 + rank + 1));
  Set made;
  made.x.resize(static_cast<size_t>(num_tokens * row_bytes));
  for (uint8_t& byte : made.x) byte = static_cast<uint8_t>(random());
  made.scales.resize(static_cast<size_t>(num_tokens) * kHidden / 128);
  for (float& scale : made.scales) scale = 1.0f + static_cast<float>(random() % 100) / 100;
  std::vector<int32_t> all(kExperts);
  std::iota(all.begin(), all.end(), 0);
  for (int token = 0; token < num_tokens; ++token) {
    std::shuffle(all.begin(), all.end(), random);
    for (int k = 0; k < kTopk; ++k) {
      made.experts.push_back(all[static_cast<size_t>(k)]);
      made.weights.push_back(0.05f + static_cast<float>(random() % 1000) / 5000);
    }
  }
  return made;
}

template <class T>
T* to_device(const std::vector<T>& from) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, std::max<size_t>(1, from.size() * sizeof(T))), "cudaMalloc");
  check(cudaMemcpy(memory, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  return static_cast<T*>(memory);
}
template <class T>
T* device_array(int64_t n) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, static_cast<size_t>(n) * sizeof(T)), "cudaMalloc");
  return static_cast<T*>(memory);
}

// One rank of a run.
class Rank {
 public:
  Rank(const Options& options, const moeway::ThreadGroup& group, int rank, int num_tokens)
      : options_(options), rank_(rank), num_tokens_(num_tokens), row_bytes_(options.fp8 ? kHidden : 2 * kHidden) {
    check(cudaSetDevice(rank), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    moeway::CommunicatorOptions where;
    where.device_type = MOEWAY_CUDA;
    where.device_index = rank;
    communicator_ = std::make_unique<moeway::Communicator>(
        must(moeway::Communicator::create(must(moeway::Bootstrap::threads(group, rank), "bootstrap"), where),
             "communicator"));
    moeway::AllToAllConfig config;
    config.num_experts = kExperts;
    config.topk = kTopk;
    config.hidden = kHidden;
    config.max_tokens = num_tokens;
    config.dispatch_dtype = options.fp8 ? moeway::kF8E4M3 : moeway::kBf16;
    if (options.fp8) config.scales = moeway::kScalesF32;
    config.distinct_experts = 1;
    config.timeout_ms = 5000;
    sizes_ = must(moeway::all_to_all_sizes(config, rank, options.num_ranks), "sizes");
    object_ = std::make_unique<moeway::AllToAll>(must(moeway::AllToAll::create(*communicator_, config), "create"));
    check(object_->set_stream(stream_), "set_stream");
    for (int set = 0; set < kSets; ++set) {
      host_.push_back(make_set(rank, set, num_tokens, row_bytes_));
      const Set& made = host_.back();
      inputs_.push_back(
          input(to_device(made.x), to_device(made.scales), to_device(made.experts), to_device(made.weights)));
    }
    out_ = device_array<uint8_t>(sizes_.max_rows * row_bytes_);
    out_scales_ = device_array<float>(sizes_.max_rows * kHidden / 128);
    rows_ = device_array<uint16_t>(sizes_.max_rows * kHidden);
    source_ = device_array<int32_t>(sizes_.max_rows * 3);
    num_rows_ = device_array<int32_t>(sizes_.num_local_experts);
    y_ = device_array<uint16_t>(int64_t{num_tokens} * kHidden);
    fill_rows<<<1024, 256, 0, stream_>>>(rows_, sizes_.max_rows, rank);
    check(cudaStreamSynchronize(stream_), "fill_rows");
  }

  const Set& set(int i) const { return host_[static_cast<size_t>(i)]; }
  const moeway::AllToAllSizes& sizes() const { return sizes_; }
  int64_t row_bytes() const { return row_bytes_; }

  void pair(int set) {
    const moeway::DispatchInput& in = inputs_[static_cast<size_t>(set)];
    if (options_.split) {
      const moeway::Routing routing = must(object_->dispatch_send(in), "dispatch_send");
      check(object_->dispatch_recv(routing, output()), "dispatch_recv");
      check(object_->combine_send(routing, rows()), "combine_send");
      check(object_->combine_recv(routing, y()), "combine_recv");
    } else {
      const moeway::Routing routing = must(object_->dispatch(in, output()), "dispatch");
      check(object_->combine(routing, rows(), y()), "combine");
    }
  }
  void capture() {
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < kPairs; ++i) pair(i % kSets);
    check(cudaStreamEndCapture(stream_, &graph), "capture");
    check(cudaGraphInstantiate(&graph_, graph, 0), "instantiate");
    check(cudaEventCreate(&begin_), "event");
    check(cudaEventCreate(&end_), "event");
  }
  double replay_us() {
    check(cudaEventRecord(begin_, stream_), "event");
    check(cudaGraphLaunch(graph_, stream_), "graph");
    check(cudaEventRecord(end_, stream_), "event");
    synchronize();
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin_, end_), "event");
    return 1000.0 * static_cast<double>(ms) / kPairs;
  }
  void synchronize() {
    check(cudaStreamSynchronize(stream_), "kernel");
    check(object_->status(), "status");
  }
  void fetch() {  // What the last pair left, for the check.
    got_rows.resize(static_cast<size_t>(sizes_.num_local_experts));
    got_source.resize(static_cast<size_t>(sizes_.max_rows) * 3);
    got_y.resize(static_cast<size_t>(num_tokens_) * kHidden);
    check(cudaMemcpy(got_rows.data(), num_rows_, got_rows.size() * 4, cudaMemcpyDeviceToHost), "copy");
    check(cudaMemcpy(got_source.data(), source_, got_source.size() * 4, cudaMemcpyDeviceToHost), "copy");
    check(cudaMemcpy(got_y.data(), y_, got_y.size() * 2, cudaMemcpyDeviceToHost), "copy");
  }
  std::vector<uint8_t> row(int64_t position) const {
    std::vector<uint8_t> bytes(static_cast<size_t>(row_bytes_));
    check(cudaMemcpy(bytes.data(), out_ + position * row_bytes_, bytes.size(), cudaMemcpyDeviceToHost), "copy");
    return bytes;
  }

  std::vector<int32_t> got_rows, got_source;
  std::vector<uint16_t> got_y;

 private:
  moeway::Tensor tensor(void* data, moeway::DType dtype, std::initializer_list<int64_t> dims) const {
    moeway::Tensor made(data, dtype, dims);
    made.device_type = MOEWAY_CUDA;
    made.device_index = rank_;
    return made;
  }
  moeway::DispatchInput input(uint8_t* x, float* scales, int32_t* experts, float* weights) const {
    moeway::DispatchInput in;
    in.x = tensor(x, options_.fp8 ? moeway::kF8E4M3 : moeway::kBf16, {num_tokens_, kHidden});
    if (options_.fp8) in.scales = tensor(scales, moeway::kF32, {num_tokens_, kHidden / 128});
    in.topk_idx = tensor(experts, moeway::kI32, {num_tokens_, kTopk});
    in.topk_weights = tensor(weights, moeway::kF32, {num_tokens_, kTopk});
    return in;
  }
  moeway::DispatchOutput output() const {
    const int64_t experts = sizes_.num_local_experts, capacity = sizes_.expert_capacity;
    moeway::DispatchOutput out;
    out.x = tensor(out_, options_.fp8 ? moeway::kF8E4M3 : moeway::kBf16, {experts, capacity, kHidden});
    if (options_.fp8) out.scales = tensor(out_scales_, moeway::kF32, {experts, capacity, kHidden / 128});
    out.num_rows = tensor(num_rows_, moeway::kI32, {experts});
    out.row_source = tensor(source_, moeway::kI32, {experts, capacity, 3});
    return out;
  }
  moeway::Tensor rows() const {
    return tensor(rows_, moeway::kBf16, {sizes_.num_local_experts, sizes_.expert_capacity, kHidden});
  }
  moeway::Tensor y() const { return tensor(y_, moeway::kBf16, {num_tokens_, kHidden}); }

  const Options& options_;
  int rank_, num_tokens_;
  int64_t row_bytes_;
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::unique_ptr<moeway::Communicator> communicator_;
  std::unique_ptr<moeway::AllToAll> object_;
  moeway::AllToAllSizes sizes_{};
  std::vector<Set> host_;
  std::vector<moeway::DispatchInput> inputs_;
  uint8_t* out_ = nullptr;
  float* out_scales_ = nullptr;
  uint16_t *rows_ = nullptr, *y_ = nullptr;
  int32_t *source_ = nullptr, *num_rows_ = nullptr;
};

// Every row's bytes and every sum of the last pair, which used `set`. Sums as the library documents them: a rank's partial sum in order of
// k, rounded; the partial sums in order of ranks, rounded.
int64_t count_wrong(const std::vector<std::unique_ptr<Rank>>& ranks, int num_tokens, int set) {
  int64_t wrong = 0;
  const auto num_ranks = static_cast<int>(ranks.size());
  std::vector<int64_t> place(static_cast<size_t>(num_ranks * num_tokens * kTopk), -1);
  for (int r = 0; r < num_ranks; ++r) {
    const Rank& rank = *ranks[static_cast<size_t>(r)];
    for (size_t e = 0; e < rank.got_rows.size(); ++e) {
      for (int i = 0; i < rank.got_rows[e]; ++i) {
        const int64_t position = static_cast<int64_t>(e) * rank.sizes().expert_capacity + i;
        const int32_t* source = &rank.got_source[static_cast<size_t>(position) * 3];
        place[static_cast<size_t>((source[0] * num_tokens + source[1]) * kTopk + source[2])] = position;
        const Set& from = ranks[static_cast<size_t>(source[0])]->set(set);
        const std::vector<uint8_t> bytes = rank.row(position);
        wrong +=
            std::memcmp(bytes.data(), &from.x[static_cast<size_t>(source[1] * rank.row_bytes())], bytes.size()) != 0;
      }
    }
  }
  for (int r = 0; r < num_ranks; ++r) {
    const Rank& rank = *ranks[static_cast<size_t>(r)];
    const Set& own = rank.set(set);
    for (int token = 0; token < num_tokens; ++token) {
      for (int h = 0; h < kHidden; ++h) {
        float sum = 0;
        for (int owner = 0; owner < num_ranks; ++owner) {
          float partial = 0;
          bool any = false;
          for (int k = 0; k < kTopk; ++k) {
            const auto route = static_cast<size_t>(token * kTopk + k);
            if (moeway::expert_owner(own.experts[route], kExperts, num_ranks) != owner) continue;
            const int64_t row = place[static_cast<size_t>(r * num_tokens * kTopk) + route];
            partial = std::fma(own.weights[route], from_bf16(expert_value(owner, row, h)), partial);
            any = true;
          }
          if (any) sum += from_bf16(to_bf16(partial));
        }
        wrong += rank.got_y[static_cast<size_t>(token) * kHidden + static_cast<size_t>(h)] != to_bf16(sum);
      }
    }
  }
  return wrong;
}

struct Outcome {
  int tokens;
  double median, p10, p90;
  int64_t wrong;
};

Outcome measure(const Options& options, int num_tokens) {
  const moeway::ThreadGroup group(options.num_ranks);
  std::vector<std::unique_ptr<Rank>> ranks(static_cast<size_t>(options.num_ranks));
  std::vector<std::vector<double>> times(ranks.size());
  std::barrier together(options.num_ranks);
  int64_t wrong = 0;
  std::vector<std::thread> threads;
  for (int r = 0; r < options.num_ranks; ++r) {
    threads.emplace_back([&, r] {
      auto& rank = ranks[static_cast<size_t>(r)];
      rank = std::make_unique<Rank>(options, group, r, num_tokens);
      const auto verify = [&](int set) {
        rank->fetch();
        together.arrive_and_wait();
        if (r == 0) wrong += count_wrong(ranks, num_tokens, set);
        check(cudaSetDevice(r), "cudaSetDevice");
        together.arrive_and_wait();
      };
      rank->pair(1);
      rank->synchronize();
      verify(1);
      rank->capture();
      for (int i = 0; i < kWarmUp + kReplays; ++i) {
        together.arrive_and_wait();
        const double us = rank->replay_us();
        if (i >= kWarmUp) times[static_cast<size_t>(r)].push_back(us);
      }
      verify((kPairs - 1) % kSets);
      together.arrive_and_wait();
      rank.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> slowest;
  for (int i = 0; i < kReplays; ++i) {
    double most = 0;
    for (const auto& of_rank : times) most = std::max(most, of_rank[static_cast<size_t>(i)]);
    slowest.push_back(most);
  }
  std::sort(slowest.begin(), slowest.end());
  return {num_tokens, slowest[kReplays / 2], slowest[kReplays / 10], slowest[kReplays * 9 / 10], wrong};
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = bench::parse_options(argc, argv);
  int num_devices = 0;
  if (cudaGetDeviceCount(&num_devices) != cudaSuccess || num_devices < options.num_ranks) {
    std::fprintf(stderr, "device_round: needs %d CUDA devices, this machine has %d\n", options.num_ranks, num_devices);
    return 2;
  }
  cudaDeviceProp device;
  check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  std::ostringstream json;
  json << "{\"program\": \"device_round\", \"version\": \"" << moeway_version() << "\", \"device\": \"" << device.name
       << "\", \"driver_cuda\": " << driver << ", \"runtime_cuda\": " << runtime << ", \"ranks\": " << options.num_ranks
       << ", \"experts\": 256, \"topk\": 8, \"hidden\": 7168, \"dispatch\": \""
       << (options.fp8 ? "fp8 + f32 scales" : "bf16") << "\", \"layout\": \"expert_padded\", \"calls\": \""
       << (options.split ? "four phases" : "fused")
       << "\", \"sets\": 4, \"pairs_per_graph\": 40, \"replays\": 20, \"unit\": \"us per pair, slowest rank\", "
          "\"results\": [";
  bool right = true, first = true;
  std::printf("%8s %10s %10s %10s\n", "tokens", "median us", "p10", "p90");
  for (const int tokens : options.tokens) {
    const Outcome outcome = measure(options, tokens);
    std::printf("%8d %10.2f %10.2f %10.2f%s\n", tokens, outcome.median, outcome.p10, outcome.p90,
                outcome.wrong == 0 ? "" : "  WRONG VALUES");
    json << (first ? "" : ", ") << "{\"tokens\": " << tokens << ", \"median\": " << outcome.median
         << ", \"p10\": " << outcome.p10 << ", \"p90\": " << outcome.p90 << ", \"wrong\": " << outcome.wrong << "}";
    right = right && outcome.wrong == 0;
    first = false;
  }
  json << "]}\n";
  if (!options.json.empty()) std::ofstream(options.json) << json.str();
  return right ? 0 : 1;
}
