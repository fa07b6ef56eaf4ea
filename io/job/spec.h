/// The specification of one job: dtlaunch makes it from its command line and files and passes it to
/// the supervisor as JSON. Also the paths of a job's files.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/files/hosts.h"
#include "core/job/options.h"
#include "core/launch/starter.h"
#include "core/launch/ways.h"
#include "core/preflight/reference.h"
#include "io/job/data_options.h"

namespace dt::io {

/// The most workers, or servers, that a job may ask for.
inline constexpr std::uint32_t kMostWorkers = 65536;

/// What to do with an unknown host key: refuse, remember, accept, or follow the ssh config
/// (remember if it has no entry).
enum class HostKeyPolicy { kStrict, kAcceptNew, kOff, kFromConfig };

/// Whose output the terminal shows. The files in the job folder are always whole.
enum class ShownOutput {
  kAll,
  kLead,  ///< Only the worker of rank 0.
  kNone,
};

struct SshOptions {
  HostKeyPolicy known_hosts = HostKeyPolicy::kFromConfig;
  bool forward_agent = false;
  std::uint16_t port = 0;   ///< For hosts without one; 0: ssh config, else 22.
  std::string user;         ///< For hosts without one; empty: ssh config, else this user.
  std::string config_file;  ///< Empty: ~/.ssh/config; "none": no config.
  std::vector<std::string> identities;  ///< Key files; empty: ssh config, agent, default files.
  Duration connect_timeout = std::chrono::seconds(10);
};

struct JobSpec {
  std::string job;        ///< Unique name: "20261120-223000-1a2b".
  std::string job_dir;    ///< Absolute; contains `.dtlaunch`, for elastic jobs also host_worker.
  std::string state_dir;  ///< Absolute, on the master's local disk; journal and spec.
  std::string socket;     ///< Control socket (dtctl, dtlaunch), on the master's local disk.

  std::vector<std::string> command;                      ///< train_cmd and its arguments.
  std::string cwd;                                       ///< Working directory of the processes.
  std::vector<std::pair<std::string, std::string>> env;  ///< --env
  std::vector<std::pair<std::string, std::string>> env_server;  ///< --env-server, after env
  std::vector<std::pair<std::string, std::string>> env_worker;  ///< --env-worker, after env
  /// The values of all three are empty here: only a file next to the journal has them.
  bool is_env_elsewhere = false;

  /// Servers, and a scheduler on the first worker's host, run the command themselves; DMLC_ROLE
  /// contains the role.
  bool dmlc_roles = false;
  /// How hosts are reached that neither have a way of their own nor are nodes of the allocation;
  /// kLocal: all hosts are this machine.
  StarterKind launcher = StarterKind::kSsh;
  std::string rsh;                           ///< kCommand: see Starter::rsh.
  bool rsh_binary = false;                   ///< kCommand: see Starter::rsh_binary.
  std::string pod_namespace, pod_container;  ///< kKubernetes: see Starter.
  bool elastic = false;
  /// Another master's job, which is only ended here. Its hosts then obey no lower term, and what
  /// does not confirm its end gets --orphan-timeout.
  bool is_taken_over = false;
  bool detached = false;      ///< The job continues without its dtlaunch.
  std::vector<Host> workers;  ///< Base workers, worker id 0 first.
  std::vector<Host> servers;  ///< Server id 0 first; may be empty.
  /// Further lines of host_worker at the start: the hosts that were added to the earlier job which
  /// this one continues.
  std::vector<Host> added;
  /// Hosts of the launch that others have replaced in the earlier job, or before: OLD, NEW, OLD,
  /// NEW.
  std::vector<Host> replaced;
  /// The scheduler's allocation whose nodes are reached by its starter.
  std::optional<AllocatedNodes> allocation;
  std::string fleet;              ///< --fleet: who has further machines for the job; empty: nobody.
  std::string fleet_folder;       ///< Where its program runs: the present folder of dtlaunch.
  std::vector<Host> known_hosts;  ///< Every host of the hosts file, for host_worker lines.

  /// What --preflight found at the launch: hosts that are added later have to be like that.
  std::optional<preflight::Reference> preflight;
  std::string prepare_data;  ///< Command run by /bin/sh on each host before its first worker.
  bool require_prepared = false;
  std::string sync_dst_dir;
  /// Hosts need not have `cwd`: where it is missing, processes start in the home folder.
  bool no_shared_folder = false;
  /// The Python environment in which the command's program lies here, as the variable that its
  /// activation sets: VIRTUAL_ENV and "/p/venv". Empty: none, or PATH is given.
  std::pair<std::string, std::string> activated;
  bool no_python = false;  ///< The package dtkv of the bundle is not put into PYTHONPATH.

  std::string gpus_per_worker = "auto";  ///< Or a number, or "all": see deals_gpus().

  DataOptions data;
  JobRules rules;
  std::string restore;              ///< Folder of the checkpoint the job begins with, or empty.
  std::uint32_t restore_epoch = 0;  ///< The epoch that begins with it.

  /// From a scheduler's TERM, USR1, USR2 or XCPU to the end of the host, or of all hosts.
  Duration notice_grace = std::chrono::seconds(25);
  Duration prepare_timeout = std::chrono::hours(1);
  Duration poll_interval = std::chrono::seconds(1);  ///< Interval of reading host_worker.

  SshOptions ssh;
  std::string ps_verbose;  ///< PS_VERBOSE of processes; empty: "0".
  bool quiet = false;
  bool prefix = true;
  /// Not given: kAll, and kLead from the moment on when there are many workers.
  std::optional<ShownOutput> shown_output;
  std::uint64_t log_limit = 0;  ///< Bytes of a process's output that the volume keeps; 0: all.
};

/// Every host is this machine.
[[nodiscard]] inline bool is_local(const JobSpec& spec) {
  return spec.launcher == StarterKind::kLocal;
}
/// The command's program in `activated`; empty: none is to be looked for on hosts.
[[nodiscard]] std::string activated_program(const JobSpec& spec);
/// Each worker sees GPUs of its own alone: there are servers of ours, and nobody else divides them.
[[nodiscard]] bool deals_gpus(const JobSpec& spec);
/// How the job reaches the host.
[[nodiscard]] StarterKind way_to(const JobSpec& spec, const Host& host);
/// What starts commands on the job's hosts that are reached so. Asks for this machine's name.
[[nodiscard]] Starter starter_for(const JobSpec& spec, StarterKind kind);
/// Whether servers save checkpoints at all.
[[nodiscard]] inline bool saves_checkpoints(const JobSpec& spec) {
  return spec.rules.checkpoint_every > 0 || spec.rules.checkpoint_interval > Duration{};
}

[[nodiscard]] std::string to_json(const JobSpec& spec);
/// For a file that other users may read: the names of --env without their values.
[[nodiscard]] std::string to_json_without_values(JobSpec spec);
[[nodiscard]] Result<JobSpec> spec_from_json(const std::string& text);
/// The same of a file; the error names it.
[[nodiscard]] Result<JobSpec> read_spec(const std::string& file);

/// Of the options, but for those of the terminal, which differ: "--hang-timeout".
[[nodiscard]] std::vector<std::string> options_that_differ(const JobSpec& a, const JobSpec& b);

/// The host with workers or servers that this machine is, by its name, with or without a domain.
[[nodiscard]] std::optional<Host> host_here(const JobSpec& spec);

/// What the job machine is to know of the spec. `seed` and `is_adopted` are the caller's.
[[nodiscard]] JobOptions job_options(const JobSpec& spec);

/// Suffix of a log file that --log-limit rotated.
inline constexpr const char* kOlder = ".1";
/// `<job_dir>/.dtlaunch`
[[nodiscard]] std::string marker_dir(const std::string& job_dir);
/// `<job_dir>/.dtlaunch/<job>`
[[nodiscard]] std::string job_files_dir(const JobSpec& spec);
/// `<job_dir>/.dtlaunch/<job>/events.jsonl`: the job's events.
[[nodiscard]] std::string events_file(const std::string& job_dir, const std::string& job);
/// `<job_dir>/.dtlaunch/<job>/checkpoints`
[[nodiscard]] std::string checkpoints_dir(const JobSpec& spec);
/// `<job_dir>/.dtlaunch/<job>/journal`: the journal's copy on the volume.
[[nodiscard]] std::string journal_copy_file(const JobSpec& spec);
/// `<state_dir>/programs`: the programs that the job was started with, while it runs.
[[nodiscard]] std::string programs_dir(const JobSpec& spec);
/// `<job_dir>/.dtlaunch/current.json`: {"job","master","pid","socket","state_dir"} for dtctl.
[[nodiscard]] std::string pointer_file(const std::string& job_dir);

/// A job name from the wall clock (ns since 1970) and a random number.
[[nodiscard]] std::string make_job_name(std::int64_t wall_ns, std::uint32_t random);
/// When the job of that name began, in seconds since 1970; nullopt unless make_job_name made it.
[[nodiscard]] std::optional<std::int64_t> job_began(const std::string& job);
/// $HOME, else the password file's entry, else "/".
[[nodiscard]] std::string home_dir();
/// A job's folders in those of io/job/master_folders.h; make_private_dir creates them with mode
/// 0700.
[[nodiscard]] std::string default_state_dir(const std::string& job);
[[nodiscard]] std::string default_runtime_dir(const std::string& job);
/// Makes the folder and its parents. An error unless the last one has mode 0700 and is this user's.
[[nodiscard]] Result<void> make_private_dir(const std::string& path);

}  // namespace dt::io
