#include "launcher/cli/launch_options.h"

#include <algorithm>
#include <cctype>

#include "core/launch/starter.h"
#include "core/protocol/exit_code.h"
#include "io/job/job_flags.h"
#include "launcher/placement/placement.h"

namespace dt::launcher {
namespace {

constexpr std::size_t kLastPort = 65535;
/// Few servers carry most models, and each is a host whose loss costs the time since a checkpoint.
constexpr std::size_t kMostServersByDefault = 64;
constexpr const char* kElastic = "elastic-training-enabled";

io::Words launchers() {
  io::Words names;
  for (const StarterKind kind : kStarterKinds) names.emplace_back(to_text(kind));
  return names;
}

io::Flags flags_of(Options& o) {
  // clang-format off
  io::Flags all = {
    {"Job", {
      {.name = "num-workers", .letter = 'n', .value = "N", .to = &o.num_workers, .least = 1,
       .most = io::kMostWorkers, .help = "workers to start (required outside of an allocation)",
       .manual = "Workers to start. Required, but inside a scheduler's allocation: there it is the "
           "number of tasks that the allocation was asked for, else one for each of its nodes."},
      {.name = "num-servers", .letter = 's', .value = "N", .to = &o.num_servers,
       .most = io::kMostWorkers,
       .help = "kvstore servers; default: one per host that gets a worker, up to 64; 0: none",
       .manual = "Servers; by default one for each base host, up to 64; 0 for none."},
      {.name = "hostfile", .letter = 'H', .value = "FILE", .to = &o.hostfile,
       .help = "hosts, one per line: [user@]host[:port] [slots=N] [gpus=LIST] [via=KIND]",
       .manual = "Hosts, see `FILES`."},
      {.name = "launcher", .value = "ssh|local|slurm|sge|mpi|kubernetes|command",
       .to = io::one_of(o.launcher, launchers()),
       .help = "how hosts are reached: by ssh (default with -H), local (this machine alone; default "
           "without), srun, qrsh -inherit (each the default inside of its allocation), mpirun, "
           "kubectl exec, or --rsh",
       .manual = "How hosts are reached. By default nodes of the allocation around dtlaunch by its "
           "own starter, see `ALLOCATIONS`; others by *ssh* with -H; else *local*: everything on "
           "this machine. *slurm*: by `srun`(1), inside of an allocation (salloc, sbatch), to its nodes. "
           "*sge*: by `qrsh`(1) -inherit, inside of a job with a parallel environment that has "
           "control_slaves TRUE. *mpi*: by Open MPI's `mpirun`(1), one for each host. *kubernetes*: "
           "by kubectl exec, to pods. *command*: by the command of --rsh. See `OTHER WAYS TO REACH "
           "HOSTS`."},
    }},
    {"Data and environment", {
      {.name = "env", .value = "NAME[=VALUE]", .to = &o.env,
       .help = "give every process this variable; NAME alone: with its value here",
       .manual = "Give every process this variable; without a value: with the one it has here. "
           "May be repeated."},
      {.name = "env-server", .value = "NAME[=VALUE]", .to = &o.env_server,
       .help = "the same for servers",
       .manual = "The same for servers only."},
      {.name = "env-worker", .value = "NAME[=VALUE]", .to = &o.env_worker,
       .help = "the same for workers",
       .manual = "The same for workers only."},
    }},
  };
  const io::Flags of_job = io::job_flags(o.spec);
  all.insert(all.end(), of_job.begin(), of_job.end());
  all.insert(all.end(), {
    {"Job", {
      {.name = "resume", .value = "DIR", .to = &o.resume,
       .help = "go on with the last job of this job folder: with its processes where they live, "
           "else from its newest checkpoint; no command and no other options",
       .manual = "Go on with the last job of this job folder, as it was started: no command and "
           "no other options. Where its processes live and its journal is on this machine they "
           "are taken over, and nothing restarts. Else, also on another master (see "
           "--take-over), it begins again with its newest checkpoint: the workers of the launch, "
           "the weights, the optimizer's state and the epoch. Workers that the last accepted "
           "host_worker had added are lines of the new one: they join at an epoch's start, as "
           "they did before. Every checksum of a checkpoint is compared before anything is "
           "started; one that is damaged is passed over for the one before it. With --on-change "
           "restart there is no checkpoint of dtlaunch's: the command begins again, and goes on "
           "from its own snapshot."},
      {.name = "take-over", .to = &o.take_over,
       .help = "with --resume: the machine whose dtlaunch ran it is surely gone, whatever the "
           "folder's lock says",
       .manual = "With --resume: go on although the folder's lock names a supervisor of which "
           "this machine can see nothing. Only for a master that is surely gone: what lives of "
           "its job is stopped first, on every host that the journal's copy on the volume knows "
           "and this machine reaches, and agents there obey nobody of an earlier term any more; "
           "others stop by themselves after --orphan-timeout. Should the old supervisor live "
           "after all and see the folder, it notices within 2 s, stops everything of its own and "
           "touches no file any more; the new one waits 4 s for that. A job that lives on this "
           "machine is never taken over so."},
      {.name = "again", .to = &o.again,
       .help = "with --resume: also a job that has finished, from its newest checkpoint",
       .manual = "With --resume: also a job that has finished, from its newest checkpoint or, "
           "with --on-change restart, from the command's own snapshot. "
           "Without it nothing is done, and the exit status is 0."},
      {.name = "env-file", .value = "FILE", .to = &o.env_file,
       .help = "with --resume on another machine: values of the job's --env names, a NAME=VALUE "
           "per line; the others are taken from the environment",
       .manual = "With --resume: the job folder has the names of --env, and not their values, "
           "which lie beside the journal. On another machine a value is taken from this file, a "
           "NAME=VALUE per line, or else from the environment. Where one is missing, all that "
           "are missing are named, and nothing is started."},
      {.name = "auto-resume", .to = &o.auto_resume,
       .help = "go on from the newest checkpoint of the folder's last job, if that ran the same "
           "command and did not end well; else begin",
       .manual = "For a script that is started again, such as a batch job that is requeued: when "
           "the last job of the job folder ran the same command and did not end well, go on from "
           "its newest checkpoint, with the hosts and options of now; otherwise begin. A line "
           "says which, why, and which options, --env, hosts or working directory are other ones "
           "now. What lives of a job whose dtlaunch and supervisor have died is taken up if "
           "nothing is changed, and stopped first if something is."},
      {.name = "requeue", .to = &o.requeue,
       .help = "in a batch job of Slurm: when its hosts go away, scontrol requeue it",
       .manual = "In a batch job of Slurm: when the job ends with 75, because its hosts go away, "
           "run `scontrol requeue` on it. With --auto-resume it goes on where it was."},
      {.name = "dry-run", .to = &o.dry_run, .help = "show who would run where, and start nothing"},
    }},
    {"Check of hosts", {
      {.name = "check", .value = "quick|full", .to = io::one_of(o.check, {"quick", "full"}),
       .help = "check the hosts, say what is wrong with which, and start nothing; -n and the "
           "command may be left out",
       .manual = "Check the hosts of -H, of the allocation, or this machine, print a table, and "
           "start nothing; -n and the command may be left out. *full* also measures the network. "
           "See `CHECKING HOSTS`."},
      {.name = "preflight", .value = "quick|full", .to = io::one_of(o.preflight, {"quick", "full"}),
       .help = "the same of the job's hosts before it starts; it does not where something failed. "
           "Hosts that are added later are checked, too",
       .manual = "The same of the job's hosts before the job starts. It does not start where a "
           "check has failed. A host that is added later starts no worker before it has passed."},
      {.name = "check-file", .value = "FILE", .to = &o.check_files,
       .help = "a file that has to be the same on all hosts; may be repeated",
       .manual = "With --check or --preflight: a file that has to be the same on all hosts, such as the "
           "script. May be repeated."},
      {.name = "write-good", .value = "FILE", .to = &o.write_good,
       .help = "write the lines of the hosts that pass to this hosts file",
       .manual = "With --check: write the lines of the hosts that pass to this hosts file."},
      {.name = "json", .to = &o.json, .help = "with --check: the result as one JSON object"},
    }},
    {"Output", {
      {.name = "completion", .value = "bash", .to = io::one_of(o.completion, {"bash"}),
       .help = "print what lets this shell complete dtlaunch's and dtctl's options",
       .manual = "Print what lets this shell complete the options of dtlaunch and `dtctl`(1). In "
           "~/.bashrc: `source <(dtlaunch --completion bash)`. Debian's package brings it along."},
      {.name = "version", .help = "show the version"},
      {.name = "help", .letter = 'h', .help = "show this"},
    }},
  });
  // clang-format on
  return all;
}

const char* const kUsage = R"(Usage: dtlaunch [-n N] [options] command [arguments]
       dtlaunch --check quick|full [-H FILE] [options] [command [arguments]]
       dtlaunch --resume DIR [--detach] [--take-over] [--again]
                [--env-file FILE]
Runs a command, such as python3 train.py, as N workers: on this machine or, with
-H, on hosts over ssh. Beside them run the kvstore servers through which they
exchange gradients. Everything from the command's first word on belongs to the
command; "--" ends the options.

What the command must be, for workers that
  join and leave while the others train (--elastic-training-enabled):
      a PyTorch script with five lines of dtkv.torch (man dtlaunch), or a
      program that calls dtkv_epoch_boundary (man dtkv), such as dttrain
  restart, all at once, at each change (--on-change restart):
      any other one, such as a script for torchrun, with a snapshot of its own
  are started, watched and stopped:
      any program. It finds RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its
      environment; -s 0 leaves the servers out

Examples:
  dtlaunch -n 2 python3 train.py                    two workers on this machine
  dtlaunch -n 2 -H hosts --elastic-training-enabled python3 train.py
  echo 10.0.1.9 >> host_worker                      one more at the next epoch
  dtctl status                                      how this folder's job does
  dtlaunch --check quick -H hosts python3 train.py  which hosts are not fit
  dtlaunch -n 2 -s 0 python3 ddp.py                 with torch.distributed alone
  dtlaunch -n 2 dttrain --network lenet             with the example trainer
)";

constexpr std::pair<ExitCode, const char*> kExitCodes[] = {
    {kExitOk, "every worker of the last view ended well; --detach: supervisor is ready"},
    {kExitFailure, "a failure without a code of its own"},
    {kExitUsage, "wrong option or file, nothing was started"},
    {kExitUnreachable, "a base host could not be reached or prepared"},
    {kExitStartTimeout, "a base worker did not reach its first epoch in time"},
    {kExitServerLost, "a kvstore server was lost and there was no checkpoint to go back to"},
    {kExitJobRunning, "a job is running in this folder already"},
    {kExitSupervisorLost, "the supervisor died and could not be restarted"},
    {kExitNoProgress, "restart after restart and no epoch completed: do not requeue"},
    {kExitTooFewWorkers, "fewer workers than --min-workers for too long"},
    {kExitNoServerDevice, "a server lacks the device that --server-device asks for"},
    {kExitCheckFailed, "a host does not pass --check or --preflight"},
    {kExitStandstill, "all workers wait for each other (--hang-timeout): do not requeue"},
    {kExitHostsGone, "the job's hosts go away, as their scheduler says: start it again"},
    {kExitCommandFailed, "the command could not be executed"},
    {kExitInterrupted, "stopped by Ctrl-C, TERM or dtctl stop"}};

std::string exit_codes() {
  std::string out =
      "\nCtrl-C stops the job; a second one kills it at once; a third leaves without\n"
      "waiting. In an allocation of Slurm or SGE the first TERM, USR1, USR2 or XCPU is\n"
      "a notice (--notice-grace).\n"
      "\nExit codes:\n";
  for (const auto& [code, meaning] : kExitCodes)
    out += fmt::format("  {:<5} {}\n", static_cast<int>(code), meaning);
  return out + "  else  the first failing worker's exit code, or 128 + the signal that killed it\n";
}

io::Program program(std::string version) {
  return {.name = "dtlaunch",
          .version = std::move(version),
          .usage = kUsage,
          .more = exit_codes(),
          .free = io::Free::kCommand};
}

/// The first mistake, if there is any.
using Mistake = std::optional<Error>;

template <class... Args>
void refuse(Mistake& mistake, fmt::format_string<Args...> format, Args&&... args) {
  if (!mistake)
    mistake = Error{ErrorKind::kInvalid, fmt::format(format, std::forward<Args>(args)...)};
}

/// bash's functions are variables, too: BASH_FUNC_ml%%.
bool is_variable_name(std::string_view name) {
  const auto good = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '%';
  };
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
         std::ranges::all_of(name, good);
}

std::vector<std::pair<std::string, std::string>> variables(Mistake& mistake, const char* option,
                                                           const io::Words& words,
                                                           const Environment& env) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (!is_variable_name(name)) {
      refuse(mistake, "--{} {}: NAME or NAME=VALUE was expected", option, word);
    } else if (name.starts_with("DT_")) {
      refuse(mistake, "--{} {}: names that begin with DT_ are dtlaunch's own", option, name);
    } else if (equals != std::string::npos) {
      all.emplace_back(name, word.substr(equals + 1));
    } else if (auto value = env.variable(name)) {
      all.emplace_back(name, std::move(*value));
    } else {
      refuse(mistake, "--{} {}: {} is not set here; write {}=VALUE", option, name, name, name);
    }
  }
  return all;
}

void complete_ssh(io::SshOptions& ssh, const Environment& env) {
  // A shell leaves the ~ of --option=~/file alone; who reads the file expands it.
  const auto from_here = [&env](std::string& file) {
    if (!file.starts_with('/') && !file.starts_with("~/")) file = env.cwd + "/" + file;
  };
  for (auto& file : ssh.identities) from_here(file);
  if (!ssh.config_file.empty() && ssh.config_file != "none") from_here(ssh.config_file);
}

/// The number of workers at the start.
void check_start(Mistake& mistake, const WorkerLimits& limits, std::uint32_t num_workers) {
  if (limits.least > num_workers)
    refuse(mistake, "--min-workers {}: the job starts with -n {}; give that many or fewer",
           limits.least, num_workers);
  if (limits.most != 0 && limits.most < num_workers)
    refuse(mistake, "--max-workers {}: the job starts with -n {}; give that many or more",
           limits.most, num_workers);
}

/// The number of workers while the job runs.
void check_limits(Mistake& mistake, const Options& options, const io::Given& given) {
  const WorkerLimits& limits = options.spec.rules.limits;
  if (limits.most != 0 && limits.least > limits.most)
    refuse(mistake, "--min-workers {} is more than --max-workers {}", limits.least, limits.most);
  if (options.num_workers > 0) check_start(mistake, limits, options.num_workers);
  if (limits.most != 0 && !options.spec.elastic)
    refuse(mistake, "--max-workers needs --{}: without it no worker is ever added", kElastic);
  if (given.has("min-workers-timeout") && limits.least == 0)
    refuse(mistake, "--min-workers-timeout has no meaning without --min-workers");
}

void complete_times(Mistake& mistake, JobRules& rules, const io::Given& given) {
  if (given.has("checkpoint-every") && given.has("checkpoint-interval"))
    refuse(mistake,
           "--checkpoint-every counts epochs and knows no --checkpoint-interval: give one");
  if (given.has("checkpoint-every")) rules.checkpoint_interval = {};
  rules.is_start_timeout_set = given.has("start-timeout");
  if (rules.server_dead_after < std::chrono::seconds(1))
    refuse(mistake,
           "--server-dead-after {} s is too short: servers report twice a second, 1 s is the "
           "least",
           seconds(rules.server_dead_after));
  if (rules.liveness.suspect_after > rules.liveness.dead_after)
    refuse(mistake, "--suspect-after {} s is longer than --dead-after {} s",
           seconds(rules.liveness.suspect_after), seconds(rules.liveness.dead_after));
}

void complete_notice(Mistake& mistake, io::JobSpec& spec, const io::Given& given) {
  if (spec.rules.notice_margin < spec.notice_grace) return;
  if (given.has("notice-margin"))
    refuse(mistake,
           "--notice-margin {} s is not shorter than --notice-grace {} s: workers would be stopped "
           "at the notice",
           seconds(spec.rules.notice_margin), seconds(spec.notice_grace));
  spec.rules.notice_margin = spec.notice_grace / 2;
}

void complete_launcher(Mistake& mistake, Options& options, const io::Given& given) {
  io::JobSpec& spec = options.spec;
  const bool has_rsh = given.has("rsh");
  if (has_rsh && options.launcher.empty()) options.launcher = to_text(StarterKind::kCommand);
  const StarterKind usual = given.has("hostfile") ? StarterKind::kSsh : StarterKind::kLocal;
  spec.launcher = starter_kind(options.launcher).value_or(usual);
  const bool is_command = spec.launcher == StarterKind::kCommand;
  if (is_command && !has_rsh)
    refuse(mistake, "--launcher command needs --rsh 'COMMAND': what starts a command on a host?");
  if (given.has("rsh-binary") && !has_rsh)
    refuse(mistake, "--rsh-binary has no meaning without --rsh");
  const auto words = has_rsh ? rsh_words(spec.rsh) : std::vector<std::string>();
  if (!words) refuse(mistake, "{}", words.error().message);
}

void complete_job(Mistake& mistake, Options& options, const io::Given& given,
                  const Environment& env) {
  io::JobSpec& spec = options.spec;
  const bool has_hosts = given.has("hostfile");
  // Then the allocation has hosts and a number of workers.
  const bool may_be_inside = !has_hosts && options.launcher != "local" &&
                             (slurm_job(env.variable) || sge_hostfile(env.variable));
  const auto kind = starter_kind(options.launcher);
  if (is_scheduler(kind) && !has_hosts && !may_be_inside)
    refuse(mistake, "{}", no_allocation(*kind).message);
  if (!given.has("num-workers") && !may_be_inside && options.check.empty())
    refuse(mistake, "-n is missing: how many workers are wanted?{}",
           sge_job_folder(env.variable)
               ? " The slots of a parallel environment would say it: this SGE job has none "
                 "(qsub -pe NAME SLOTS)"
               : "");
  complete_launcher(mistake, options, given);
  if (!io::is_local(spec) && !has_hosts && !may_be_inside)
    refuse(mistake, "--launcher {} needs hosts: give -H FILE", to_text(spec.launcher));
  if (!spec.fleet.empty() && !spec.elastic)
    refuse(mistake, "--fleet needs --{}: otherwise nothing joins the job", kElastic);
  if (!spec.fleet.empty() && io::is_local(spec))
    refuse(mistake, "--fleet is for jobs on several machines: give -H FILE");
  if (!spec.fleet.empty()) spec.fleet_folder = env.cwd;
  if (spec.dmlc_roles && spec.elastic)
    refuse(mistake, "--dmlc-roles and --{} do not go together: there is no kvstore server",
           kElastic);
  if (spec.rules.on_change == OnChange::kRestart) {
    if (spec.dmlc_roles)
      refuse(mistake,
             "--dmlc-roles and --on-change restart do not go together: servers that run "
             "the command cannot be restarted with the workers");
    if (options.num_servers.value_or(0) > 0)
      refuse(mistake,
             "-s {} and --on-change restart do not go together: it is for commands that "
             "open no kvstore",
             *options.num_servers);
    options.num_servers = 0;
  } else if (given.has("change-settle")) {
    refuse(mistake, "--change-settle has no meaning without --on-change restart");
  }
  // As the launchers of the dmlc tracker have them.
  spec.ps_verbose = env.variable("PS_VERBOSE").value_or("");
  if (!given.has("interface")) spec.data.interface = env.variable("DMLC_INTERFACE").value_or("");
  if (spec.job_dir.empty()) spec.job_dir = env.cwd;
  if (!spec.job_dir.starts_with('/')) spec.job_dir = env.cwd + "/" + spec.job_dir;
}

void complete_data(Mistake& mistake, Options& options, const Environment& env) {
  io::JobSpec& spec = options.spec;
  spec.env = variables(mistake, "env", options.env, env);
  spec.env_server = variables(mistake, "env-server", options.env_server, env);
  spec.env_worker = variables(mistake, "env-worker", options.env_worker, env);
  spec.cwd = spec.sync_dst_dir.empty() ? env.cwd : spec.sync_dst_dir;
  if (!spec.cwd.starts_with('/'))
    refuse(mistake, "--sync-dst-dir {}: give the folder with its full path", spec.sync_dst_dir);
}

void complete_resume(Mistake& mistake, Options& options, const io::Given& given,
                     const Environment& env) {
  options.action = Action::kResume;
  if (!options.resume.starts_with('/')) options.resume = env.cwd + "/" + options.resume;
  const auto known = given.has("resume") + given.has("take-over") + given.has("again") +
                     given.has("env-file") + given.has("detach");
  if (given.values.size() > static_cast<std::size_t>(known) || !given.words.empty())
    refuse(mistake, "--resume takes the job as it was started: no command and no other options");
}

void complete_check(Mistake& mistake, const Options& options, const io::Given& given) {
  if (given.has("check") && given.has("preflight"))
    refuse(mistake, "--check starts no job, and --preflight is before one: give one of them");
  for (const char* name : {"write-good", "json"})
    if (given.has(name) && !given.has("check"))
      refuse(mistake, "--{} has no meaning without --check", name);
  if (given.has("check-file") && options.check.empty() && options.preflight.empty())
    refuse(mistake, "--check-file has no meaning without --check or --preflight");
}

void complete(Mistake& mistake, Options& options, const io::Given& given, const Environment& env) {
  for (const char* name : {"take-over", "again", "env-file"})
    if (given.has(name)) refuse(mistake, "--{} belongs to --resume", name);
  if (!options.check.empty()) options.action = Action::kCheck;
  if (options.dry_run) options.action = Action::kDryRun;
  complete_check(mistake, options, given);
  options.spec.command = given.words;
  options.spec.prefix = !given.has("no-prefix");
  complete_job(mistake, options, given, env);
  check_limits(mistake, options, given);
  complete_data(mistake, options, env);
  complete_ssh(options.spec.ssh, env);
  complete_times(mistake, options.spec.rules, given);
  complete_notice(mistake, options.spec, given);
  if (options.requeue && !env.variable("SLURM_JOB_ID"))
    refuse(mistake,
           "--requeue: this is no Slurm job (SLURM_JOB_ID is not set): leave it out, or submit "
           "with sbatch");
  if ((options.requeue || options.auto_resume) && options.spec.detached)
    refuse(mistake, "--{} and --detach do not go together: nobody would wait for the job's end",
           options.requeue ? "requeue" : "auto-resume");
  if (options.action == Action::kCheck && options.spec.command.empty()) return;
  if (options.spec.command.empty() || options.spec.command.front().empty())
    refuse(mistake, "the command to run is missing: dtlaunch [-n N] [options] command [arguments]");
  if (env.has_input && std::ranges::count(options.spec.command, "-") > 0)
    refuse(mistake,
           "no worker gets dtlaunch's standard input (theirs is /dev/null): instead of \"-\" give "
           "the name of a file that all hosts see");
}

}  // namespace

const char* const kFirstWords =
    R"(dtlaunch: the command to run is missing: dtlaunch -n N [options] command

Two workers on this machine:
  dtlaunch -n 2 python3 train.py
Two on the hosts of a file, one host a line; then one more while they train:
  dtlaunch -n 2 -H hosts --elastic-training-enabled python3 train.py
  echo 10.0.1.9 >> host_worker
What is wrong with which host, before anything starts:
  dtlaunch --check quick -H hosts python3 train.py

How the job of this folder is doing: dtctl status
What train.py must be, and all options: dtlaunch --help
)";

Options::Options() { spec.rules.checkpoint_interval = std::chrono::seconds(60); }

Result<Options> parse_options(const io::Words& words, const Environment& env) {
  Options options;
  const io::Flags flags = flags_of(options);
  const io::Program dtlaunch = program(env.version);
  const auto given = io::parse(dtlaunch, flags, words);
  if (!given) return tl::unexpected(given.error());
  options.answer = io::answer(dtlaunch, flags, *given);
  if (!options.answer && !options.completion.empty()) options.answer = kBashCompletion;
  if (options.answer) return options;
  Mistake mistake;
  if (given->has("resume"))
    complete_resume(mistake, options, *given, env);
  else
    complete(mistake, options, *given, env);
  if (mistake) return tl::unexpected(*mistake);
  return options;
}

Result<io::JobSpec> plan(const Options& options, const Placement& placement) {
  io::JobSpec spec = options.spec;
  if (const auto kind = starter_kind(options.launcher); !placement.allocation && is_scheduler(kind))
    return tl::unexpected(no_allocation(*kind));
  const auto num_workers = workers_to_use(placement, options.num_workers);
  if (!num_workers) return tl::unexpected(num_workers.error());
  Mistake mistake;
  check_start(mistake, spec.rules.limits, *num_workers);
  if (mistake) return tl::unexpected(*mistake);
  // Further hosts may come that are no nodes of it.
  if (placement.allocation && options.launcher.empty() && io::is_local(spec))
    spec.launcher = StarterKind::kSsh;
  if (!spec.sync_dst_dir.empty() && io::is_local(spec))
    return fail(
        ErrorKind::kInvalid,
        "--sync-dst-dir {} copies the folder to other hosts, and all of this job's are this "
        "machine: name others with -H FILE, or leave it out",
        spec.sync_dst_dir);
  spec.allocation = placement.remembered;
  const std::vector<HostLine>& lines = placement.lines;
  const bool is_check = !options.check.empty() && *num_workers == 0;
  auto workers =
      place_workers(lines, is_check ? static_cast<std::uint32_t>(lines.size()) : *num_workers);
  if (!workers)
    return tl::unexpected(options.hostfile.empty() ? workers.error()
                                                   : workers.error().at(options.hostfile));
  spec.workers = std::move(*workers);
  std::vector<Host> base;  // hosts that got a base worker
  for (const auto& host : sum_slots(lines)) {
    spec.known_hosts.push_back(host.host);
    if (std::ranges::count(spec.workers, host.host) > 0) base.push_back(host.host);
  }
  for (const Host& host : spec.known_hosts)
    if (knows_names_only(io::way_to(spec, host)) && (!host.user.empty() || host.port != 0))
      return fail(
          ErrorKind::kInvalid, "{}: {} has {}, and --launcher {} reaches a host by its name alone",
          options.hostfile, host, host.port != 0 ? "a port" : "a user", to_text(spec.launcher));
  const std::size_t servers = options.num_servers.value_or(
      static_cast<std::uint32_t>(std::min(base.size(), kMostServersByDefault)));
  for (std::size_t i = 0; i < servers; ++i) spec.servers.push_back(base[i % base.size()]);
  const std::size_t most = (servers + base.size() - 1) / base.size();
  if (spec.data.server_port != 0 && most > 1 && spec.data.server_port + most - 1 > kLastPort)
    return fail(ErrorKind::kInvalid,
                "--server-port {}: host {} gets {} servers, which need ports up to {}; give {} or "
                "less",
                spec.data.server_port, base.front(), most, spec.data.server_port + most - 1,
                kLastPort - most + 1);
  return spec;
}

}  // namespace dt::launcher
