// A round of moeway on the host against the same round through MPI's collectives, in one run, on the same routes:
// every way takes its turn in every iteration, so what disturbs the machine disturbs all of them. Only the ratios mean
// something, and less so with more ranks than processors. bench/run_host.sh runs it for 2, 4 and 8 ranks.
//
//   mpirun -n 4 host_round_mpi [--tokens 128] [--hidden 2048] [--experts 64] [--topk 8] [--iterations 50] [--sets 4]
//                              [--warps 4] [--json FILE] [--note TEXT]
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "moeway_round.h"
#include "per_expert_round.h"
#include "per_rank_round.h"
#include "per_route_round.h"

namespace bench {
namespace {

struct Options {
  std::map<std::string, int> numbers{{"--tokens", 128},    {"--hidden", 2048}, {"--experts", 64}, {"--topk", 8},
                                     {"--iterations", 50}, {"--sets", 4},      {"--warps", 4}};
  std::string json, note;

  int operator[](const char* name) const { return numbers.at(name); }
};

[[noreturn]] void refuse(const std::string& what) {
  fmt::print(stderr, "host_round_mpi: {}\n", what);
  MPI_Abort(MPI_COMM_WORLD, 2);
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) refuse(fmt::format("{} has no value", name));
    const std::string value = argv[i + 1];
    if (name == "--json") {
      options.json = value;
    } else if (name == "--note") {
      options.note = value;
    } else if (auto found = options.numbers.find(name); found != options.numbers.end()) {
      char* end = nullptr;
      const int64_t number = std::strtoll(value.c_str(), &end, 10);
      if (*end != '\0' || number < 1 || number > 1'000'000)
        refuse(fmt::format("{} is '{}', expected 1 to 1000000", name, value));
      found->second = static_cast<int>(number);
    } else {
      refuse(fmt::format("unknown option {}", name));
    }
  }
  if (options["--topk"] > options["--experts"])
    refuse(fmt::format("--topk is {}, expected at most --experts {}", options["--topk"], options["--experts"]));
  return options;
}

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Sample {
  double dispatch_us, combine_us, round_us;
};

// One round. The check function runs only where the result is looked at.
Sample run(Round& round, const Inputs& inputs, std::vector<Bf16>& y, bool with_experts) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = now_us();
  round.dispatch(inputs);
  const double received = now_us();
  if (with_experts) round.apply_experts();
  const double again = now_us();
  round.combine(inputs, y);
  const double end = now_us();
  return {received - start, end - again, (received - start) + (end - again)};
}

// Every way on every set, each value of every rank. False on all ranks if one is wrong on one.
bool all_right(const std::vector<std::unique_ptr<Round>>& rounds, const Shape& shape, const std::vector<Inputs>& sets) {
  int right = 1;
  std::vector<Bf16> y(static_cast<size_t>(shape.num_tokens) * static_cast<size_t>(shape.hidden));
  for (const auto& round : rounds) {
    for (size_t set = 0; set < sets.size(); ++set) {
      std::fill(y.begin(), y.end(), kPoison);
      run(*round, sets[set], y, true);
      if (is_right(shape, sets[set], y)) continue;
      right = 0;
      fmt::print(stderr, "host_round_mpi: wrong sums: {}, set {}\n", round->name(), set);
    }
  }
  MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return right != 0;
}

struct Outcome {
  std::string name;
  double median_us, p10_us, p90_us, dispatch_us, combine_us;  // Of the maxima over ranks.
  double ratio;                                               // Of the medians, to the first way.
  double row_bytes;                                           // Of all ranks, per round.
};

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(std::lround(q * static_cast<double>(values.size() - 1)))];
}

Outcome summarise(const std::string& name, std::vector<Sample> samples) {
  MPI_Allreduce(MPI_IN_PLACE, samples.data(), static_cast<int>(3 * samples.size()), MPI_DOUBLE, MPI_MAX,
                MPI_COMM_WORLD);
  const auto column = [&](double Sample::*member) {
    std::vector<double> values;
    for (const Sample& sample : samples) values.push_back(sample.*member);
    return values;
  };
  const std::vector<double> rounds = column(&Sample::round_us);
  return {name,
          quantile(rounds, 0.5),
          quantile(rounds, 0.1),
          quantile(rounds, 0.9),
          quantile(column(&Sample::dispatch_us), 0.5),
          quantile(column(&Sample::combine_us), 0.5),
          1.0,
          0.0};
}

std::vector<Outcome> measure(const std::vector<std::unique_ptr<Round>>& rounds, const Shape& shape,
                             const std::vector<Inputs>& sets, int iterations) {
  std::vector<std::vector<Sample>> samples(rounds.size());
  std::vector<int64_t> bytes;
  for (const auto& round : rounds) bytes.push_back(-round->row_bytes_sent());
  std::vector<Bf16> y(static_cast<size_t>(shape.num_tokens) * static_cast<size_t>(shape.hidden));
  // In another order each time, the same on all ranks: who comes after the dense exchange finds cold caches.
  std::vector<size_t> order(rounds.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 generator(1);
  for (int i = 0; i < iterations; ++i) {
    std::shuffle(order.begin(), order.end(), generator);
    for (const size_t r : order)
      samples[r].push_back(run(*rounds[r], sets[static_cast<size_t>(i) % sets.size()], y, false));
  }
  for (size_t r = 0; r < rounds.size(); ++r) bytes[r] += rounds[r]->row_bytes_sent();
  MPI_Allreduce(MPI_IN_PLACE, bytes.data(), static_cast<int>(bytes.size()), MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  std::vector<Outcome> outcomes;
  for (size_t r = 0; r < rounds.size(); ++r) {
    outcomes.push_back(summarise(rounds[r]->name(), std::move(samples[r])));
    outcomes[r].ratio = outcomes[r].median_us / outcomes[0].median_us;
    outcomes[r].row_bytes = static_cast<double>(bytes[r]) / iterations;
  }
  return outcomes;
}

void print_table(const Shape& shape, const std::vector<Outcome>& outcomes) {
  fmt::print("{} ranks, {} tokens a rank, hidden {}, {} experts, top-{}, bf16; maxima over ranks, in microseconds\n",
             shape.num_ranks, shape.num_tokens, shape.hidden, shape.num_experts, shape.topk);
  fmt::print("{:46} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>7}\n", "", "round", "p10", "p90", "dispatch",
             "combine", "rows, MB", "ratio");
  for (const Outcome& o : outcomes) {
    fmt::print("{:46} {:10.0f} {:10.0f} {:10.0f} {:10.0f} {:10.0f} {:10.2f} {:7.2f}\n", o.name, o.median_us, o.p10_us,
               o.p90_us, o.dispatch_us, o.combine_us, o.row_bytes * 1e-6, o.ratio);
  }
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + '"';
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

std::string to_json(const Options& options, const Shape& shape, const std::vector<Outcome>& outcomes) {
  char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(mpi, &length);
  const std::string mpi_version(mpi);
  std::string json = fmt::format(
      "{{\"benchmark\": \"host_round_mpi\", \"note\": {}, \"moeway\": {}, \"mpi\": {},\n \"processor\": {}, "
      "\"processors\": {},\n \"ranks\": {}, \"tokens\": {}, \"hidden\": {}, \"experts\": {}, \"topk\": {}, "
      "\"dtype\": \"bf16\", \"iterations\": {}, \"sets\": {}, \"warps\": {}, \"verified\": true,\n \"rounds\": [",
      quoted(options.note), quoted(moeway_version()), quoted(mpi_version.substr(0, mpi_version.find(','))),
      quoted(processor_name()), sysconf(_SC_NPROCESSORS_ONLN), shape.num_ranks, shape.num_tokens, shape.hidden,
      shape.num_experts, shape.topk, options["--iterations"], options["--sets"], options["--warps"]);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const Outcome& o = outcomes[i];
    json += fmt::format(
        "{}\n  {{\"name\": {}, \"median_us\": {:.1f}, \"p10_us\": {:.1f}, \"p90_us\": {:.1f}, \"dispatch_us\": {:.1f}, "
        "\"combine_us\": {:.1f}, \"row_bytes\": {:.0f}, \"ratio\": {:.3f}}}",
        i == 0 ? "" : ",", quoted(o.name), o.median_us, o.p10_us, o.p90_us, o.dispatch_us, o.combine_us, o.row_bytes,
        o.ratio);
  }
  return json + "]}\n";
}

int run_rank(const Options& options, int rank, int num_ranks) {
  const Shape shape{num_ranks, options["--tokens"], options["--hidden"], options["--experts"], options["--topk"]};
  auto bootstrap = must(moeway::Bootstrap::callback(rank, num_ranks, [](const void* in, size_t bytes, void* out) {
    const auto n = static_cast<int>(bytes);
    return MPI_Allgather(in, n, MPI_BYTE, out, n, MPI_BYTE, MPI_COMM_WORLD) == MPI_SUCCESS;
  }));
  auto communicator = must(moeway::Communicator::create(std::move(bootstrap)));
  std::vector<std::unique_ptr<Round>> rounds;
  for (const auto weights : {moeway::kWeightsAtDispatch, moeway::kWeightsAtCombine})
    rounds.push_back(std::make_unique<MoewayRound>(communicator, shape, weights, options["--warps"]));
  rounds.push_back(std::make_unique<PerRankRound>(shape, rank, PerRankRound::Form::kPacked));
  rounds.push_back(std::make_unique<PerRouteRound>(shape, rank));
  rounds.push_back(std::make_unique<PerRankRound>(shape, rank, PerRankRound::Form::kPadded));
  rounds.push_back(std::make_unique<PerExpertRound>(shape, rank));

  std::vector<Inputs> sets;
  for (int set = 0; set < options["--sets"]; ++set) sets.push_back(make_inputs(shape, rank, set));
  bool right = all_right(rounds, shape, sets);  // Warms up as well.
  const std::vector<Outcome> outcomes = measure(rounds, shape, sets, options["--iterations"]);
  right = all_right(rounds, shape, sets) && right;
  if (rank == 0 && right) {
    print_table(shape, outcomes);
    if (!options.json.empty() && !(std::ofstream(options.json) << to_json(options, shape, outcomes)))
      refuse(fmt::format("--json {} cannot be written", options.json));
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, num_ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &num_ranks);
  const int code = bench::run_rank(bench::parse(argc, argv), rank, num_ranks);
  MPI_Finalize();
  return code;
}
