#include "launcher/environment.h"

#include <algorithm>
#include <map>

#include "core/base/lookup.h"
#include "io/job/checkpoint_manifest.h"
#include "io/job/job_flags.h"

namespace dt::launcher {
namespace {

using Variables = std::map<std::string, std::string>;

constexpr const char* kServerDevice = "DT_SERVER_DEVICE";

std::string text(std::uint64_t number) { return std::to_string(number); }

/// For programs of the dmlc tracker.
void add_dmlc(Variables& vars, const io::JobSpec& spec, const ProcessFacts& facts) {
  const bool is_server = facts.process.role == Role::kServer;
  vars["DMLC_ROLE"] = facts.is_scheduler ? "scheduler" : is_server ? "server" : "worker";
  vars["DMLC_PS_ROOT_URI"] = facts.root.address;
  vars["DMLC_PS_ROOT_PORT"] = text(facts.root.port);
  vars["DMLC_NUM_WORKER"] = text(facts.num_workers);
  vars["DMLC_NUM_SERVER"] = text(facts.num_servers);
  vars["DMLC_NODE_HOST"] = facts.address;
  if (!spec.data.interface.empty()) vars["DMLC_INTERFACE"] = spec.data.interface;
  if (!facts.is_scheduler)
    vars[is_server ? "DMLC_SERVER_ID" : "DMLC_WORKER_ID"] = text(facts.process.id);
  vars["PS_VERBOSE"] = spec.ps_verbose.empty() ? "0" : spec.ps_verbose;
  if (!spec.dmlc_roles) return;
  vars["DMLC_JOB_CLUSTER"] = to_text(spec.launcher);
  if (!facts.is_scheduler)  // servers come after the workers
    vars["DMLC_TASK_ID"] = text(facts.process.id + (is_server ? spec.workers.size() : 0));
}

/// For torch scripts.
void add_torch(Variables& vars, const ProcessFacts& facts) {
  vars["RANK"] = text(facts.rank.value);
  vars["WORLD_SIZE"] = text(facts.num_workers);
  vars["LOCAL_RANK"] = text(facts.slot);
  vars["LOCAL_WORLD_SIZE"] = text(facts.local_world_size);
  vars["MASTER_ADDR"] = facts.master.address;
  vars["MASTER_PORT"] = text(facts.master.port);
}

/// What torchrun gives besides. Never TORCHELASTIC_USE_AGENT_STORE=True: every rank would connect
/// to a store that nobody has. A newcomer trains through the kvstore, and its world may grow.
void add_torchrun(Variables& vars, const io::JobSpec& spec, const ProcessFacts& facts) {
  if (facts.newcomer) return;
  const bool restarts = spec.rules.on_change == OnChange::kRestart;
  vars["TORCHELASTIC_RUN_ID"] = spec.job;
  vars["TORCHELASTIC_RESTART_COUNT"] = text(facts.group_restarts);
  vars["TORCHELASTIC_MAX_RESTARTS"] = text(restarts ? spec.rules.max_restarts : 0);
  vars["GROUP_RANK"] = text(facts.group_rank);
  vars["GROUP_WORLD_SIZE"] = text(facts.group_world_size);
  vars["ROLE_RANK"] = text(facts.rank.value);
  vars["ROLE_WORLD_SIZE"] = text(facts.num_workers);
  vars["ROLE_NAME"] = "default";
}

/// For scripts of the 2018 system, which ask whether a name is there at all.
void add_elastic(Variables& vars, const io::JobSpec& spec, const ProcessFacts& facts) {
  if (spec.elastic) vars["ELASTIC_TRAINING_ENABLED"] = "1";
  if (!facts.newcomer) return;
  vars["NEW_WORKER"] = "1";
  vars["EPOCH_BEGIN"] = text(facts.epoch.value);
}

/// The options that processes go by; one that is empty is not set.
void add_options(Variables& vars, io::JobSpec spec, Role role) {
  for (const io::FlagGroup& group : io::job_flags(spec))
    for (const io::Flag& flag : group.flags) {
      if (!flag.variable || (flag.for_servers && role != Role::kServer)) continue;
      if (std::string value = io::show(flag); !value.empty())
        vars[flag.variable] = std::move(value);
    }
}

void add_own(Variables& vars, const io::JobSpec& spec, const ProcessFacts& facts) {
  vars["DT_JOB"] = spec.job;
  vars["DT_HOST"] = to_string(facts.host);
  vars["DT_NUM_WORKERS"] = text(facts.num_workers);
  vars["DT_NUM_SERVERS"] = text(facts.num_servers);
  switch (facts.process.role) {
    case Role::kPrepare:
      vars["DT_ROLE"] = "prepare";
      return;
    case Role::kServer: {
      vars["DT_ROLE"] = facts.is_scheduler ? "scheduler" : "server";
      vars["DT_SERVER_ID"] = text(facts.process.id);
      vars["DT_SERVER_INDEX"] = text(facts.index);
      const std::uint32_t most = spec.rules.limits.most;
      vars["DT_MAX_WORKERS"] = text(most > 0 ? most : spec.workers.size());
      if (io::saves_checkpoints(spec)) vars["DT_CHECKPOINTS"] = io::checkpoints_dir(spec);
      const std::string restore = facts.checkpoint ? io::checkpoints_dir(spec) + "/" +
                                                         io::checkpoint_name(*facts.checkpoint)
                                                   : spec.restore;
      if (!restore.empty()) vars["DT_RESTORE"] = restore;
      const std::uint32_t port = spec.data.server_port + facts.index_on_host;
      vars["DT_SERVER_PORT"] = text(spec.data.server_port == 0 ? 0 : port);
      break;
    }
    case Role::kWorker:
      vars["DT_ROLE"] = "worker";
      vars["DT_WORKER_ID"] = text(facts.process.id);
      vars["DT_RANK"] = text(facts.rank.value);
      vars["DT_SLOT"] = text(facts.slot);
      vars["DT_EPOCH"] = text(facts.epoch.value);
      vars["DT_NEWCOMER"] = facts.newcomer ? "1" : "0";
      if (spec.rules.on_change == OnChange::kRestart) vars["DT_ON_CHANGE"] = "restart";
      break;
  }
  vars["DT_BIND"] = facts.address;
  vars["DT_SECRET"] = facts.secret;
  add_options(vars, spec, facts.process.role);
  // Servers of one host take its GPUs in turn.
  if (auto* device = find_in(vars, kServerDevice); device && *device == "auto")
    *device += ":" + text(facts.index_on_host);
}

/// What the agent is to do about CUDA_VISIBLE_DEVICES, unless the user has set it.
void add_gpus(Variables& vars, const io::JobSpec& spec, const ProcessFacts& facts) {
  const bool is_worker = facts.process.role == Role::kWorker;
  const bool deals = is_worker && io::deals_gpus(spec);
  const bool uses_all = is_worker || value_in(vars, kServerDevice).starts_with("auto");
  const bool is_chosen = !facts.host.gpus.empty() && uses_all && !vars.contains(kVisibleGpus);
  if (deals || is_chosen) vars[kGpusPerWorker] = deals ? spec.gpus_per_worker : "all";
  if (is_chosen) vars[kHostGpus] = facts.host.gpus;
}

void add_users(Variables& vars, const std::vector<std::pair<std::string, std::string>>& users) {
  for (const auto& [name, value] : users) vars[name] = value;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> environment(const io::JobSpec& spec,
                                                             const ProcessFacts& facts) {
  Variables vars;
  if (facts.process.role != Role::kServer || spec.dmlc_roles) {
    // A user's Python program shows each line at once, and a kill loses none.
    vars["PYTHONUNBUFFERED"] = "1";
    if (facts.is_activated) {
      vars[spec.activated.first] = spec.activated.second;
      vars[kFirstInPath] = spec.activated.second + "/bin";
    }
  }
  if (facts.process.role != Role::kPrepare) add_dmlc(vars, spec, facts);
  if (facts.process.role == Role::kWorker) {
    add_torch(vars, facts);
    add_torchrun(vars, spec, facts);
    // Threads that wait by spinning take the cores of the machine's other workers.
    vars["OMP_WAIT_POLICY"] = "PASSIVE";
    // A training step takes the memory again that the one before it gave back: by default glibc
    // returns it to the kernel in between, and every page is faulted in again.
    vars["MALLOC_TRIM_THRESHOLD_"] = "1073741824";
    vars["MALLOC_MMAP_THRESHOLD_"] = "33554432";  // the largest that glibc takes
    if (facts.cores > 0)
      vars["OMP_NUM_THREADS"] =
          text(std::max(1U, facts.cores / std::max(1U, facts.workers_on_machine)));
  }
  if (facts.process.role != Role::kPrepare) add_elastic(vars, spec, facts);
  add_users(vars, spec.env);
  if (facts.process.role == Role::kServer) add_users(vars, spec.env_server);
  if (facts.process.role == Role::kWorker) add_users(vars, spec.env_worker);
  add_own(vars, spec, facts);
  add_gpus(vars, spec, facts);
  return {vars.begin(), vars.end()};
}

}  // namespace dt::launcher
