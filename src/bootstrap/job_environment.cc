#include "bootstrap/job_environment.h"

#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include "base/foreign_text.h"
#include "base/format.h"
#include "bootstrap/sha256.h"

namespace moeway::bootstrap {
namespace {

using Names = std::array<const char*, 3>;  // The first that is set counts; the rest may be null.

// The variables that one way to start ranks sets.
struct Launcher {
  const char* name;
  const char* rank;
  Names num_ranks;
  Names ranks_here;  // Ranks on this host: as many as there are in all, if the job is on one host.
  Names num_hosts;
  Names job;             // Tells the job from others.
  Names job_parts;       // Tell its parts apart: one more start, one of several steps.
  const char* required;  // Counts as started this way only if this is set too; null: nothing.
};

// The order matters. torchrun's processes may have the variables of the mpirun or srun that started torchrun, and
// mpirun's those of the srun that started its daemons.
constexpr std::array<Launcher, 4> kLaunchers = {{
    {"by hand", "MOEWAY_RANK", {"MOEWAY_WORLD_SIZE"}, {}, {}, {}, {}, nullptr},
    {"torchrun",
     "RANK",
     {"WORLD_SIZE"},
     {"LOCAL_WORLD_SIZE"},
     {},
     {"TORCHELASTIC_RUN_ID"},
     {"TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"},
     nullptr},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     {"OMPI_COMM_WORLD_SIZE"},
     {"OMPI_COMM_WORLD_LOCAL_SIZE"},
     {},
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
     {},
     nullptr},
    // A batch script itself, which srun has not started, has a SLURM_PROCID too, but no step.
    {"Slurm",
     "SLURM_PROCID",
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     {},
     {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"},
     {"SLURM_JOB_ID"},
     {"SLURM_STEP_ID"},
     "SLURM_STEP_ID"},
}};

struct Variable {
  const char* name;
  std::string_view value;
  std::string shown() const { return quotable(value); }
};

class Reader {
 public:
  explicit Reader(const Lookup& lookup) : lookup_(lookup) {}

  Result<JobEnvironment> read() {
    for (const Launcher& launcher : kLaunchers) {
      if (!find(launcher.rank)) continue;
      if (launcher.required == nullptr || find(launcher.required)) return read_ranks(launcher);
    }
    // A single rank, unless somebody meant something else: a silent job of one would compute the wrong thing.
    for (const Launcher& launcher : kLaunchers) {
      const std::optional<Variable> size = launcher.required == nullptr ? first(launcher.num_ranks) : std::nullopt;
      if (size && size->value != "1") {
        return invalid_argument("{} is not set but {} is '{}', expected both or neither", launcher.rank, size->name,
                                size->shown());
      }
    }
    return JobEnvironment{};
  }

 private:
  std::optional<Variable> find(const char* name) const {
    const char* const value = name == nullptr ? nullptr : lookup_(name);
    if (value == nullptr) return std::nullopt;
    return Variable{name, value};
  }

  std::optional<Variable> first(const Names& names) const {
    for (const char* name : names) {
      if (const std::optional<Variable> variable = find(name)) return variable;
    }
    return std::nullopt;
  }

  static std::optional<int> to_number(std::string_view text) {
    int value = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
  }

  static Result<int> number(const Variable& variable, int least, int most, std::string_view what) {
    const std::optional<int> value = to_number(variable.value);
    if (!value || *value < least || *value > most) {
      return invalid_argument("{} is '{}', expected {}", variable.name, variable.shown(), what);
    }
    return *value;
  }

  Result<JobEnvironment> read_ranks(const Launcher& launcher) {
    const Variable rank = *find(launcher.rank);
    const std::optional<Variable> size = first(launcher.num_ranks);
    if (!size) {
      return invalid_argument("{} is not set but {} is '{}', expected the number of ranks", launcher.num_ranks[0],
                              rank.name, rank.shown());
    }
    const Result<int> num_ranks = number(*size, 1, std::numeric_limits<int>::max(), "a whole number of 1 or more");
    if (!num_ranks.ok()) return num_ranks.status();
    const int last = num_ranks.value() - 1;
    const Result<int> own =
        number(rank, 0, last, fmt::format("a whole number from 0 to {} ({} is '{}')", last, size->name, size->shown()));
    if (!own.ok()) return own.status();

    JobEnvironment job;
    job.rank = own.value();
    job.num_ranks = num_ranks.value();
    if (job.num_ranks == 1) return job;
    const std::string job_name = name_job(launcher);
    for (const Status& status :
         {read_address(launcher, &job), read_port(launcher, job_name, &job), read_secret(launcher, job_name, &job)}) {
      if (!status.ok()) return status;
    }
    return job;
  }

  // Empty if nothing names the job.
  std::string name_job(const Launcher& launcher) const {
    const std::optional<Variable> job = first(launcher.job);
    if (!job || job->value.empty()) return "";
    std::string name = fmt::format("{}/{}", launcher.name, job->value);
    for (const char* part : launcher.job_parts) {
      if (const std::optional<Variable> variable = find(part)) name += fmt::format("/{}", variable->value);
    }
    return name;
  }

  bool on_one_host(const Launcher& launcher, int num_ranks) const {
    const std::optional<Variable> here = first(launcher.ranks_here);
    const std::optional<Variable> hosts = first(launcher.num_hosts);
    return (here && to_number(here->value) == num_ranks) || (hosts && to_number(hosts->value) == 1);
  }

  Status read_address(const Launcher& launcher, JobEnvironment* job) const {
    if (const std::optional<Variable> address = first({"MOEWAY_ADDRESS", "MASTER_ADDR"})) {
      if (address->value.empty()) {
        return invalid_argument("{} is '', expected the host name or address of rank 0's machine", address->name);
      }
      job->address = address->value;
    } else if (on_one_host(launcher, job->num_ranks)) {
      job->address = "127.0.0.1";
    } else {
      return invalid_argument(
          "MOEWAY_ADDRESS is not set, expected the host name or address of rank 0's machine (ranks started {}; {} of "
          "them, not known to be on one host)",
          started(launcher), job->num_ranks);
    }
    return {};
  }

  Status read_port(const Launcher& launcher, const std::string& job_name, JobEnvironment* job) const {
    if (const std::optional<Variable> own = find("MOEWAY_PORT")) {
      const Result<int> port = number(*own, 1, 65535, "a port from 1 to 65535");
      if (!port.ok()) return port.status();
      job->port = port.value();
    } else if (const std::optional<Variable> master = find("MASTER_PORT")) {
      // torch's own store listens at MASTER_PORT itself.
      const Result<int> port =
          number(*master, 1, 65534, "a port from 1 to 65534 (the next one is used), or MOEWAY_PORT set");
      if (!port.ok()) return port.status();
      job->port = port.value() + 1;
    } else if (!job_name.empty()) {
      job->port = port_of(job_name);
    } else {
      return invalid_argument("MOEWAY_PORT is not set, expected a port from 1 to 65535 (ranks started {}; {})",
                              started(launcher), nothing_names_the_job(launcher));
    }
    return {};
  }

  Status read_secret(const Launcher& launcher, const std::string& job_name, JobEnvironment* job) const {
    if (const std::optional<Variable> secret = find("MOEWAY_SECRET")) {
      if (secret->value.empty()) return invalid_argument("MOEWAY_SECRET is '', expected the same text on all ranks");
      job->secret = secret->value;
    } else if (!job_name.empty()) {
      job->secret = "moeway job " + job_name;
    } else {
      return invalid_argument("MOEWAY_SECRET is not set, expected the same text on all ranks (ranks started {}; {})",
                              started(launcher), nothing_names_the_job(launcher));
    }
    return {};
  }

  // Below the range from which Linux takes the ports of outgoing connections, so that none of those is in the way.
  static int port_of(const std::string& job_name) {
    constexpr int kFirst = 20000;
    constexpr int kCount = 12000;
    Sha256 hash;
    hash.add(job_name);
    const Digest digest = hash.finish();
    return kFirst + ((digest[0] << 16) + (digest[1] << 8) + digest[2]) % kCount;
  }

  static std::string started(const Launcher& launcher) {
    return launcher.job[0] == nullptr ? launcher.name : fmt::format("by {}", launcher.name);
  }

  static std::string nothing_names_the_job(const Launcher& launcher) {
    return launcher.job[0] == nullptr ? "nothing names the job" : fmt::format("{} is not set either", launcher.job[0]);
  }

  const Lookup& lookup_;
};

}  // namespace

Result<JobEnvironment> read_job_environment(const Lookup& lookup) { return Reader(lookup).read(); }

}  // namespace moeway::bootstrap
