// What the environment of a launcher makes of a process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "bootstrap/bootstrap.h"
#include "bootstrap/job_environment.h"
#include "unit/collective_checks.h"
#include "unit/loopback.h"
#include "unit/rank_processes.h"

namespace moeway::bootstrap {
namespace {

using ::moeway::unit::all_well;
using ::moeway::unit::free_port;
using ::moeway::unit::gathers_in_rank_order;
using ::moeway::unit::run_processes;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

Result<JobEnvironment> read(const Variables& variables) {
  return read_job_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string message(const Variables& variables) {
  const auto job = read(variables);
  if (job.ok()) return "accepted";
  EXPECT_EQ(job.status().code(), MOEWAY_INVALID_ARGUMENT);
  return job.status().message();
}

Variables with(Variables variables, const Variables& others) {
  for (const auto& [name, value] : others) variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

const Variables kByHand = {{"MOEWAY_RANK", "3"},
                           {"MOEWAY_WORLD_SIZE", "8"},
                           {"MOEWAY_ADDRESS", "node0"},
                           {"MOEWAY_PORT", "4711"},
                           {"MOEWAY_SECRET", "s3cret"}};
const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "16"},
                             {"LOCAL_RANK", "5"},
                             {"LOCAL_WORLD_SIZE", "8"},
                             {"MASTER_ADDR", "node7"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "none"},
                             {"TORCHELASTIC_RESTART_COUNT", "0"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"PMIX_NAMESPACE", "2871066625"}};
const Variables kSlurm = {{"SLURM_PROCID", "2"},        {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "991"},
                          {"SLURM_STEP_ID", "0"},       {"SLURM_NNODES", "1"}, {"SLURM_STEP_NUM_NODES", "1"},
                          {"SLURM_STEP_NUM_TASKS", "4"}};

TEST(Env, IsASingleRankWithoutAnyVariable) {
  const auto job = read({});
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job.value().rank, 0);
  EXPECT_EQ(job.value().num_ranks, 1);
  EXPECT_EQ(job.value().address, "");
}

TEST(Env, NeedsNoMeetingPlaceForASingleRank) {
  for (const Variables& one : {Variables{{"MOEWAY_RANK", "0"}, {"MOEWAY_WORLD_SIZE", "1"}},
                               Variables{{"RANK", "0"}, {"WORLD_SIZE", "1"}}, Variables{{"WORLD_SIZE", "1"}}}) {
    const auto job = read(one);
    ASSERT_TRUE(job.ok()) << job.status().message();
    EXPECT_EQ(job.value().num_ranks, 1);
  }
}

TEST(Env, TakesItsOwnVariables) {
  const auto job = read(kByHand);
  ASSERT_TRUE(job.ok()) << job.status().message();
  EXPECT_EQ(job.value().rank, 3);
  EXPECT_EQ(job.value().num_ranks, 8);
  EXPECT_EQ(job.value().address, "node0");
  EXPECT_EQ(job.value().port, 4711);
  EXPECT_EQ(job.value().secret, "s3cret");
}

TEST(Env, TakesThePortAfterTorchsOwn) {
  const auto job = read(kTorchrun);
  ASSERT_TRUE(job.ok()) << job.status().message();
  EXPECT_EQ(job.value().rank, 5);
  EXPECT_EQ(job.value().num_ranks, 16);
  EXPECT_EQ(job.value().address, "node7");
  EXPECT_EQ(job.value().port, 29501);
}

TEST(Env, TakesOpenMpisRanksOnOneHost) {
  const auto job = read(kOpenMpi);
  ASSERT_TRUE(job.ok()) << job.status().message();
  EXPECT_EQ(job.value().rank, 1);
  EXPECT_EQ(job.value().num_ranks, 4);
  EXPECT_EQ(job.value().address, "127.0.0.1");
  EXPECT_GE(job.value().port, 20000);
  EXPECT_LT(job.value().port, 32000);
}

TEST(Env, TakesSlurmsRanksOnOneHost) {
  const auto job = read(kSlurm);
  ASSERT_TRUE(job.ok()) << job.status().message();
  EXPECT_EQ(job.value().rank, 2);
  EXPECT_EQ(job.value().num_ranks, 4);
  EXPECT_EQ(job.value().address, "127.0.0.1");
}

TEST(Env, TakesAStepsSizeBeforeTheAllocations) {
  const auto job = read(with(kSlurm, {{"SLURM_NTASKS", "32"}, {"SLURM_NNODES", "8"}}));
  ASSERT_TRUE(job.ok()) << job.status().message();
  EXPECT_EQ(job.value().num_ranks, 4);
  EXPECT_EQ(job.value().address, "127.0.0.1");
}

TEST(Env, IsASingleRankInABatchScriptItself) {
  const auto job = read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "991"}});
  ASSERT_TRUE(job.ok()) << job.status().message();
  EXPECT_EQ(job.value().num_ranks, 1);
}

TEST(Env, PutsItsOwnVariablesFirst) {
  const Variables all = with(with(with(kSlurm, kOpenMpi), kTorchrun), kByHand);
  EXPECT_EQ(read(all).value().rank, 3);
  EXPECT_EQ(read(all).value().port, 4711);
  // Each counts alone too: here the launcher gives rank and size.
  const auto job = read(with(kTorchrun, {{"MOEWAY_PORT", "1234"}, {"MOEWAY_SECRET", "mine"}}));
  EXPECT_EQ(job.value().rank, 5);
  EXPECT_EQ(job.value().port, 1234);
  EXPECT_EQ(job.value().secret, "mine");
  EXPECT_EQ(job.value().address, "node7");
}

TEST(Env, PutsTheInnerLauncherFirst) {
  EXPECT_EQ(read(with(kSlurm, kOpenMpi)).value().rank, 1);
  EXPECT_EQ(read(with(with(kSlurm, kOpenMpi), kTorchrun)).value().rank, 5);
}

TEST(Env, GivesEveryRankTheSamePlaceAndSecret) {
  const auto first = read(kSlurm).value();
  const auto second = read(with(kSlurm, {{"SLURM_PROCID", "0"}})).value();
  EXPECT_EQ(first.port, second.port);
  EXPECT_EQ(first.secret, second.secret);
}

TEST(Env, GivesEveryJobAndStartItsOwnSecret) {
  const auto secret = [](const Variables& variables) { return read(variables).value().secret; };
  EXPECT_NE(secret(kSlurm), secret(with(kSlurm, {{"SLURM_JOB_ID", "992"}})));
  EXPECT_NE(secret(kSlurm), secret(with(kSlurm, {{"SLURM_STEP_ID", "1"}})));
  EXPECT_NE(secret(kTorchrun), secret(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}})));
  EXPECT_NE(secret(kOpenMpi), secret(with(kOpenMpi, {{"PMIX_NAMESPACE", "2871066626"}})));
}

TEST(Env, NamesVariableValueAndExpectation) {
  EXPECT_EQ(message(with(kByHand, {{"MOEWAY_RANK", "8"}})),
            "MOEWAY_RANK is '8', expected a whole number from 0 to 7 (MOEWAY_WORLD_SIZE is '8')");
  EXPECT_EQ(message(with(kByHand, {{"MOEWAY_RANK", "-1"}})),
            "MOEWAY_RANK is '-1', expected a whole number from 0 to 7 (MOEWAY_WORLD_SIZE is '8')");
  EXPECT_THAT(message(with(kByHand, {{"MOEWAY_RANK", "3x"}})), HasSubstr("MOEWAY_RANK is '3x', expected"));
  EXPECT_THAT(message(with(kByHand, {{"MOEWAY_RANK", ""}})), HasSubstr("MOEWAY_RANK is '', expected"));
  EXPECT_EQ(message(with(kByHand, {{"MOEWAY_WORLD_SIZE", "0"}})),
            "MOEWAY_WORLD_SIZE is '0', expected a whole number of 1 or more");
  EXPECT_THAT(message(with(kByHand, {{"MOEWAY_WORLD_SIZE", "99999999999"}})), HasSubstr("is '99999999999', expected"));
  EXPECT_EQ(message(with(kByHand, {{"MOEWAY_PORT", "65536"}})),
            "MOEWAY_PORT is '65536', expected a port from 1 to 65535");
  EXPECT_THAT(message(with(kTorchrun, {{"MASTER_PORT", "65535"}})),
              AllOf(HasSubstr("MASTER_PORT is '65535', expected a port from 1 to 65534"), HasSubstr("MOEWAY_PORT")));
  EXPECT_THAT(message(with(kTorchrun, {{"MASTER_ADDR", ""}})), HasSubstr("MASTER_ADDR is '', expected the host name"));
  EXPECT_THAT(message(with(kByHand, {{"MOEWAY_SECRET", ""}})),
              HasSubstr("MOEWAY_SECRET is '', expected the same text"));
  EXPECT_THAT(message(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "4"}})), HasSubstr("OMPI_COMM_WORLD_RANK is '4'"));
  EXPECT_THAT(message(with(kSlurm, {{"SLURM_PROCID", "4"}})),
              HasSubstr("SLURM_PROCID is '4', expected a whole number from 0 to 3 (SLURM_STEP_NUM_TASKS is '4')"));
}

TEST(Env, AsksForWhatIsMissing) {
  EXPECT_THAT(message(without(kByHand, "MOEWAY_ADDRESS")), HasSubstr("MOEWAY_ADDRESS is not set, expected"));
  EXPECT_THAT(message(without(kByHand, "MOEWAY_PORT")), HasSubstr("MOEWAY_PORT is not set, expected"));
  EXPECT_THAT(message(without(kByHand, "MOEWAY_SECRET")), HasSubstr("MOEWAY_SECRET is not set, expected"));
  EXPECT_THAT(message(without(kByHand, "MOEWAY_WORLD_SIZE")),
              HasSubstr("MOEWAY_WORLD_SIZE is not set but MOEWAY_RANK is '3'"));
  EXPECT_THAT(message(without(kByHand, "MOEWAY_RANK")),
              HasSubstr("MOEWAY_RANK is not set but MOEWAY_WORLD_SIZE is '8'"));
  EXPECT_THAT(message(without(kTorchrun, "TORCHELASTIC_RUN_ID")),
              AllOf(HasSubstr("MOEWAY_SECRET is not set"), HasSubstr("TORCHELASTIC_RUN_ID is not set either")));
  // Several hosts, and nothing says where rank 0 is.
  EXPECT_THAT(message(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})),
              AllOf(HasSubstr("MOEWAY_ADDRESS is not set"), HasSubstr("started by Open MPI")));
  EXPECT_THAT(message(with(kSlurm, {{"SLURM_STEP_NUM_NODES", "2"}})),
              AllOf(HasSubstr("MOEWAY_ADDRESS is not set"), HasSubstr("started by Slurm")));
}

std::string meet_and_gather(const Variables& variables) {
  clearenv();
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  const auto collective = meet_env(std::chrono::seconds(15));
  return collective.ok() ? gathers_in_rank_order(*collective.value(), 3000) : collective.status().to_string();
}

TEST(Env, BringsTheRanksOfEveryLauncherTogether) {
  const int port = free_port();
  const std::map<std::string, Variables> launchers = {
      {"MOEWAY_RANK",
       {{"MOEWAY_WORLD_SIZE", "3"},
        {"MOEWAY_ADDRESS", "127.0.0.1"},
        {"MOEWAY_PORT", std::to_string(port)},
        {"MOEWAY_SECRET", "s"}}},
      {"RANK",
       {{"WORLD_SIZE", "3"},
        {"MASTER_ADDR", "127.0.0.1"},
        {"MASTER_PORT", std::to_string(port - 1)},
        {"TORCHELASTIC_RUN_ID", "none"}}},
      {"OMPI_COMM_WORLD_RANK",
       {{"OMPI_COMM_WORLD_SIZE", "3"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
        {"PMIX_NAMESPACE", "test-" + std::to_string(port)}}},
      {"SLURM_PROCID",
       {{"SLURM_NTASKS", "3"}, {"SLURM_NNODES", "1"}, {"SLURM_JOB_ID", std::to_string(port)}, {"SLURM_STEP_ID", "0"}}},
  };
  for (const auto& [rank_variable, others] : launchers) {
    const auto outcomes = run_processes(3, [&](int rank) {
      return meet_and_gather(with(others, {{rank_variable, std::to_string(rank)}}));
    });
    EXPECT_EQ(outcomes, all_well(3)) << rank_variable;
  }
}

TEST(Env, MeetsNobodyWhenAlone) {
  EXPECT_EQ(run_processes(1, [](int) { return meet_and_gather({}); }), all_well(1));
}

}  // namespace
}  // namespace moeway::bootstrap
