#include "launcher/agent/agent_environment.h"

#include <cstdlib>

#include "test/support/catch.h"

using namespace dt::launcher;

namespace {

using Variables = std::map<std::string, std::string>;

/// What a program finds that srun, Open MPI's mpirun or qrsh started, with its agent's additions.
const Variables kOfStarters = {
    {"SLURM_PROCID", "0"},
    {"SLURM_LOCALID", "0"},
    {"SLURM_NODEID", "0"},
    {"SLURM_NTASKS", "1"},
    {"SLURM_NPROCS", "1"},
    {"SLURM_STEP_ID", "3"},
    {"SLURM_STEPID", "3"},
    {"SLURM_STEP_NODELIST", "n1"},
    {"SLURM_STEP_NUM_NODES", "1"},
    {"SLURM_STEP_NUM_TASKS", "1"},
    {"SLURM_STEP_TASKS_PER_NODE", "1"},
    {"SLURM_STEP_LAUNCHER_PORT", "37001"},
    {"SLURM_TASKS_PER_NODE", "1"},
    {"SLURM_NTASKS_PER_NODE", "1"},
    {"SLURM_GTIDS", "0"},
    {"SLURM_TASK_PID", "4711"},
    {"SLURM_CPU_BIND", "quiet,none"},
    {"SLURM_CPU_BIND_TYPE", "none"},
    {"SLURM_SRUN_COMM_HOST", "10.0.0.1"},
    {"SLURM_SRUN_COMM_PORT", "37002"},
    {"OMPI_COMM_WORLD_RANK", "0"},
    {"OMPI_COMM_WORLD_SIZE", "1"},
    {"OMPI_MCA_orte_hnp_uri", "1.0;tcp://10.0.0.1:1"},
    {"PMIX_RANK", "0"},
    {"PMIX_SERVER_URI2", "x"},
    {"PMI_RANK", "0"},
    {"PMI_SIZE", "1"},
    {"PE_HOSTFILE", "/spool/7/pe_hostfile"},
    {"QRSH_PORT", "n1:4711"},
};
const Variables kOfAllocation = {
    {"SLURM_JOB_ID", "41"},
    {"SLURM_JOBID", "41"},
    {"SLURM_JOB_NODELIST", "n[1-2]"},
    {"SLURM_NODELIST", "n[1-2]"},
    {"SLURM_JOB_NAME", "train"},
    {"SLURM_SUBMIT_DIR", "/home/me"},
    {"SLURM_JOB_CPUS_PER_NODE", "4"},
    {"CUDA_VISIBLE_DEVICES", "0,1"},
    {"JOB_ID", "7"},
    {"NSLOTS", "2"},
    {"PMIXED", "mine"},
    {"SLURMD_NODENAME", "n1"},
};

/// The present environment gets these for as long as it lives.
class Present {
 public:
  explicit Present(const Variables& variables) : variables_(variables) {
    for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Present() {
    for (const auto& [name, value] : variables_) ::unsetenv(name.c_str());
  }
  Present(const Present&) = delete;
  Present& operator=(const Present&) = delete;

 private:
  const Variables& variables_;
};

bool has(const Variables& all, const char* name) { return all.contains(name); }

/// Lightning's rule: srun started it, and not as an interactive shell.
bool lightning_sees_slurm(const Variables& all) {
  if (!has(all, "SLURM_NTASKS")) return false;
  const auto job = all.find("SLURM_JOB_NAME");
  return job == all.end() || (job->second != "bash" && job->second != "interactive");
}

/// JAX's rules for srun and for Open MPI.
bool jax_sees_slurm(const Variables& all) {
  return has(all, "SLURM_JOB_ID") && has(all, "SLURM_STEP_NODELIST") && has(all, "SLURM_NTASKS") &&
         has(all, "SLURM_PROCID") && has(all, "SLURM_LOCALID") && has(all, "SLURM_STEP_NUM_NODES");
}
bool jax_sees_mpi(const Variables& all) { return has(all, "OMPI_MCA_orte_hnp_uri"); }

}  // namespace

TEST_CASE("agent's environment: processes do not take themselves for tasks of the starter",
          "[agent_environment]") {
  const Present starters(kOfStarters);
  const Present allocation(kOfAllocation);
  const Variables all = environment_with({});
  for (const auto& [name, value] : kOfStarters) {
    CAPTURE(name);
    CHECK_FALSE(all.contains(name));
  }
  for (const auto& [name, value] : kOfAllocation) {
    CAPTURE(name);
    REQUIRE(all.contains(name));
    CHECK(all.at(name) == value);
  }
  CHECK(lightning_sees_slurm(kOfStarters));
  CHECK_FALSE(lightning_sees_slurm(all));
  CHECK_FALSE(jax_sees_slurm(all));
  CHECK_FALSE(jax_sees_mpi(all));
}

TEST_CASE("agent's environment: what the user gives stays", "[agent_environment]") {
  const Present starters(kOfStarters);
  const Variables all = environment_with({{"SLURM_NTASKS", "8"}, {"A", "1"}, {"A", "2"}});
  CHECK(all.at("SLURM_NTASKS") == "8");
  CHECK(all.at("A") == "2");
}
