#include "io/job/job_flags.h"

#include <utility>

#include "core/base/number.h"
#include "core/fleet/fleet_word.h"

namespace dt::io {
namespace {

const std::vector<std::pair<const char*, HostKeyPolicy>> kPolicies = {
    {"strict", HostKeyPolicy::kStrict},
    {"accept-new", HostKeyPolicy::kAcceptNew},
    {"off", HostKeyPolicy::kOff},
    {"config", HostKeyPolicy::kFromConfig}};

const std::vector<std::pair<const char*, OnChange>> kOnChange = {{"refuse", OnChange::kRefuse},
                                                                 {"restart", OnChange::kRestart}};

const std::vector<std::pair<const char*, std::optional<ShownOutput>>> kShownOutput = {
    {"all", ShownOutput::kAll}, {"lead", ShownOutput::kLead}, {"none", ShownOutput::kNone}};

Result<void> check_gpus(const std::string& text) {
  constexpr std::uint32_t kMostGpus = 1024;
  const auto number = parse_number<std::uint32_t>(text);
  if (text == "auto" || text == "all" || (number && *number > 0 && *number <= kMostGpus)) return {};
  return fail(ErrorKind::kInvalid, "a number 1 to {}, auto or all was expected", kMostGpus);
}

Result<void> check_fleet(const std::string& text) {
  return parse_fleet(text).map([](const auto&) {});
}

}  // namespace

Flags job_flags(JobSpec& spec) {
  JobRules& rules = spec.rules;
  SshOptions& ssh = spec.ssh;
  // clang-format off
  return {
    {"Job", {
      {.name = "dmlc-roles", .to = &spec.dmlc_roles,
       .help = "for programs with roles of their own (ps-lite): servers, and a scheduler on the "
           "first host, run the command too, with DMLC_ROLE=server and scheduler",
       .manual = "For programs that have the roles of dmlc's tracker themselves, such as those "
           "of ps-lite: the servers, and a scheduler on the first base host, run *command* too. "
           "`DMLC_ROLE` is then worker, server or scheduler, and `DMLC_PS_ROOT_URI` and "
           "`DMLC_PS_ROOT_PORT` are where the scheduler may listen. Servers and scheduler that "
           "have not ended --stop-timeout after the last worker are stopped; one that fails ends "
           "the job with 67. Not with --elastic-training-enabled.", .json = "dmlc_roles"},
      {.name = "elastic-training-enabled", .value = "[True|False]", .to = &spec.elastic,
       .help = "watch host_worker in the job folder: editing it adds and removes workers",
       .manual = "Watch host_worker. True, False, 1 or 0 (any case) is the value only when "
           "another word follows it.", .json = "elastic"},
      {.name = "fleet", .value = "PROVIDER", .to = &spec.fleet, .check = check_fleet,
       .help = "who has further machines for an elastic job: command:PROGRAM prints HOST or "
           "HOST:SLOTS a line, each 5 s",
       .manual = "Who has further machines for an elastic job; they join and leave as they come "
           "and go, beside the lines that people write into host_worker. *command:PROGRAM*: "
           "/bin/sh runs it each 5 s in the present folder, as Horovod runs "
           "--host-discovery-script; it prints a line *HOST* or *HOST:SLOTS* for each machine "
           "that there is, *leave=SECONDS* behind one that goes away then. A host that two "
           "outputs in a row lack is left at the next epoch; a failure, no output or one that "
           "takes more than 10 s changes nothing. Hosts of the launch stay, whatever it prints; "
           "one that a person took out of host_worker is not put back until the program has "
           "dropped it. *kubernetes:STATEFULSET*, and --namespace and --context behind it: the pods "
           "of that StatefulSet, by kubectl (packaging/doc/kubernetes.md). A path with a /, and arguments: a program that speaks the protocol of "
           "packaging/doc/provider.md. *slurm*: what `dtctl grow` asks for, which needs no such option.",
       .json = "fleet"},
      {.name = "on-change", .value = "refuse|restart", .to = one_of(rules.on_change, kOnChange),
       .help = "for a command that opens no kvstore, such as a torchrun script: restart all its "
           "workers as a new group when one died or host_worker changed; default: refuse",
       .manual = "For a command that opens no kvstore, such as a script for torchrun. *refuse*, the "
           "default: its workers cannot change, and one that fails ends the job. *restart*: after "
           "an accepted edit of host_worker, or when a worker died, all workers are restarted as "
           "a new group, with dense ranks, another `MASTER_PORT` and a higher "
           "`TORCHELASTIC_RESTART_COUNT`; the script goes on from its own snapshot. Added hosts "
           "are reached and prepared before, while the others train. Then all workers get TERM, "
           "and KILL after --leave-timeout; one that exits with 0 after TERM has ended well. A "
           "host that is lost, or needs more restarts than --max-restarts allows, is left out, "
           "and joins again by a restart. When a worker dies within 60 s of its group's begin, "
           "more than --max-restarts times in a row, the job ends with exit status 70. "
           "--hang-timeout and --boundary-timeout have no meaning, and there are no servers. When "
           "all workers exit with 0 by themselves the job has finished.",
       .json = "on_change"},
      {.name = "change-settle", .value = "TIME", .to = &rules.change_settle,
       .help = "with --on-change restart: edits within so long are one restart ({})",
       .manual = "With --on-change restart: the group restarts so long after the last edit ({}), "
           "so that several edits cost one restart.", .json = "change_settle_s"},
      {.name = "min-workers", .value = "N", .to = &rules.limits.least, .least = 1,
       .most = kMostWorkers,
       .help = "fewest workers with which an epoch begins; with fewer the job waits for restarts "
           "and added hosts",
       .manual = "An epoch begins with at least so many workers; at most -n. When members died "
           "and are not replaced yet, those that are left go on to the end of their epoch with "
           "the work of those alone, and wait there for restarts and added hosts; status, the "
           "events and the causes of lost time (below-min-workers) show it. A worker that is to "
           "leave stays meanwhile if it is needed. After --min-workers-timeout the job ends "
           "with exit code 71. The job's last epoch, once a worker has come to the end of the "
           "program, is not held up.", .json = "min_workers"},
      {.name = "max-workers", .value = "N", .to = &rules.limits.most, .least = 1,
       .most = kMostWorkers,
       .help = "most workers at a time, whatever host_worker asks for; its first lines come first",
       .manual = "No more workers are wanted at a time; at least -n. What host_worker asks for "
           "beyond it is accepted and waits: base workers come first, then hosts in the order in "
           "which the file first names them, and the next one is started when lines before it "
           "are removed. A host that is given up or cannot be reached keeps its place until its "
           "line is removed. `dtctl status` and `dtctl why` name who waits.",
       .json = "max_workers"},
      {.name = "job-dir", .value = "DIR", .to = &spec.job_dir,
       .help = "folder of host_worker, host_worker_log and logs, on a volume that all hosts see; "
           "default: the present folder",
       .manual = "Folder of host_worker and host_worker_log, and of .dtlaunch with everything "
           "else; by default the present one. On a cluster it lies on a volume all hosts see."},
      {.name = "detach", .to = &spec.detached,
       .help = "return as soon as the job's supervisor is ready; see dtctl",
       .manual = "Return 0 as soon as the job's supervisor is ready; follow the job with "
           "`dtctl`(1). Nobody then starts a supervisor again that has died.", .json = "detached"},
    }},
    {"Data and environment", {
      {.name = "sync-dst-dir", .value = "DIR", .to = &spec.sync_dst_dir,
       .help = "copy the present folder to DIR on all hosts and run there",
       .manual = "Copy the present folder to *DIR* on every host first, and run the command "
           "there.", .json = "sync_dst_dir"},
      {.name = "no-shared-folder", .to = &spec.no_shared_folder,
       .help = "hosts need not have the present folder: workers start in the home folder where "
           "it is missing",
       .manual = "Hosts need not have the present folder: a process starts in the home folder "
           "where it is missing. Otherwise such a host is refused; a base host ends the job with "
           "65.", .json = "no_shared_folder"},
      {.name = "gpus-per-worker", .value = "N|auto|all", .to = &spec.gpus_per_worker,
       .check = check_gpus,
       .help = "GPUs of its host that a worker sees, and no other one does ({}: an equal part)",
       .manual = "With kvstore servers, where the host's driver lists GPUs, each worker sees only "
           "its own: `CUDA_VISIBLE_DEVICES` has their unique ids, by the worker's slot, and "
           "`LOCAL_RANK` is 0, since they count from 0. *auto*: the host's GPUs divided by its "
           "workers at its start, at least one. With more workers than GPUs they begin again with "
           "the first one, and a WARN says so. *all*: every worker sees all GPUs, and its "
           "`LOCAL_RANK` is its slot, as without servers, or with a CUDA_VISIBLE_DEVICES by "
           "--env. One in the environment of a host's agent, as a scheduler sets it, is the list "
           "that is dealt, and so is *gpus=* of a hosts file (FILES).", .json = "gpus_per_worker"},
      {.name = "no-python", .to = &spec.no_python,
       .help = "do not bring the Python package dtkv to the processes: use what is installed",
       .manual = "Do not put this version's Python package `dtkv`, which is brought to the hosts with "
           "the agent, before others in `PYTHONPATH`: programs use the installed one. The same "
           "where `DTKV_LIBRARY` is set.", .json = "no_python", .variable = "DT_NO_PYTHON"},
      {.name = "prepare-data", .value = "CMD", .to = &spec.prepare_data,
       .help = "run by a shell on each host before its first worker",
       .manual = "Run by a shell on every host before its first worker. A host whose preparation "
           "fails gets no worker; it is tried again later. `dtgpucheck`(1) is there for it: "
           "'dtgpucheck --count 8'.", .json = "prepare_data"},
      {.name = "require-prepared", .to = &spec.require_prepared,
       .help = "without --prepare-data: an added host waits for its prepare_data_success file",
       .manual = "Without --prepare-data: an added host waits for its file "
           "prepare_data_success_*address*.", .json = "require_prepared"},
    }},
    {"Other ways to reach hosts", {
      {.name = "rsh", .value = "COMMAND", .to = &spec.rsh,
       .help = "with --launcher command: what starts a shell on a host, as in "
           "'docker exec -i {host} {command}'",
       .manual = "With --launcher command, and without --launcher it means that: the command that "
           "starts another one on a host, with its stdin and stdout. *{host}* is the host's name, "
           "and *{command}* what is started there. Quotes and backslashes are as in a shell, and "
           "nothing else is.", .json = "rsh"},
      {.name = "rsh-binary", .to = &spec.rsh_binary,
       .help = "the command of --rsh passes every byte on at once, not lines only",
       .manual = "The command of --rsh passes on every byte at once. Without it what is sent is "
           "wrapped, so that it also comes through a program that passes on whole lines only, as "
           "`srun`(1) does.", .json = "rsh_binary"},
      {.name = "pod-namespace", .value = "NAME", .to = &spec.pod_namespace,
       .help = "of pods (via=kubernetes); default: that of kubectl's context",
       .manual = "The namespace of pods (*via=kubernetes*); by default that of kubectl's context.",
       .json = "pod_namespace"},
      {.name = "pod-container", .value = "NAME", .to = &spec.pod_container,
       .help = "of pods; default: each pod's first one",
       .manual = "The container of each pod in which processes start; by default its first one.",
       .json = "pod_container"},
    }},
    {"ssh", {
      {.name = "ssh-port", .value = "PORT", .to = &ssh.port, .least = 1,
       .help = "for hosts that give none", .json = "ssh/port"},
      {.name = "ssh-user", .value = "USER", .to = &ssh.user, .help = "for hosts that give none",
       .json = "ssh/user"},
      {.name = "ssh-identity", .letter = 'i', .value = "FILE", .to = &ssh.identities,
       .help = "private key; may be given again",
       .manual = "A private key; may be repeated.", .json = "ssh/identities"},
      {.name = "ssh-config", .value = "FILE", .to = &ssh.config_file,
       .help = "instead of ~/.ssh/config; \"none\": no file",
       .manual = "Instead of ~/.ssh/config; \"none\" for no file.", .json = "ssh/config_file"},
      {.name = "ssh-known-hosts", .value = "strict|accept-new|off|config",
       .to = one_of(ssh.known_hosts, kPolicies),
       .help = "what to do with a host's key that is not known; default: what the ssh config "
           "says, else accept-new",
       .manual = "A host whose key is unknown is refused, remembered, or accepted without a "
           "word. A changed key is refused by the first two. *config*, the default, is what "
           "StrictHostKeyChecking of the ssh config says, and *accept-new* where it says "
           "nothing. Nobody is asked: *ask* is *strict*.", .json = "ssh/known_hosts"},
      {.name = "forward-agent", .letter = 'A', .to = &ssh.forward_agent,
       .help = "forward the ssh agent to the hosts",
       .manual = "Forward the ssh agent.", .json = "ssh/forward_agent"},
      {.name = "ssh-connect-timeout", .value = "TIME", .to = &ssh.connect_timeout,
       .help = "{}; twice that for key exchange and login",
       .manual = "For looking up a host and connecting to it ({}), and twice that for key "
           "exchange and login.", .json = "ssh/connect_timeout_s"},
    }},
    data_flags(spec.data),
    {"Time and failure (TIME: seconds, or with ms, s, m, h)", {
      {.name = "max-restarts", .value = "N", .to = &rules.max_restarts, .most = 1'000'000,
       .help = "how often a host's failed workers are started again, for each of its workers ({})",
       .manual = "Restarts of workers that failed as members, for each worker a host is to have "
           "({}). A host that needs more is given up until its line is removed and added again. "
           "Before each restart it cools for a second; for twice as long each time, up to a "
           "minute, while its workers fail within a minute of their join, or within "
           "--restart-refill if that is shorter.", .json = "max_restarts"},
      {.name = "restart-refill", .value = "TIME", .to = &rules.restart_refill,
       .help = "without a failure gives a host one of its restarts back ({})",
       .json = "restart_refill_s"},
      {.name = "max-futile-restarts", .value = "N", .to = &rules.max_futile_restarts, .least = 1,
       .most = 1'000'000,
       .help = "restarts without a completed epoch between them, before the job ends with code "
           "70 (10, or 3 per worker)",
       .manual = "Restarts in the whole job without a completed epoch between them; one more "
           "failure then ends it with exit status 70. By default 10, or three for each worker if "
           "that is more.", .json = "max_futile_restarts"},
      {.name = "min-workers-timeout", .value = "TIME", .to = &rules.min_workers_timeout,
       .help = "with fewer than --min-workers, before the job ends with code 71 ({})",
       .manual = "How long the start of an epoch waits for --min-workers ({}). A supervisor that "
           "is started again counts from zero.", .json = "min_workers_timeout_s"},
      {.name = "start-timeout", .value = "TIME", .to = &rules.start_timeout,
       .help = "from a base worker's start to its first epoch ({})",
       .manual = "From a base worker's start to its first epoch ({}). A command that never opens "
           "a kvstore has no epochs and may run for ever, unless this option is given. A script "
           "that opens one and calls no epoch boundary is late when it has not used its store "
           "for so long.", .json = "start_timeout_s", .variable = "DT_START_TIMEOUT"},
      {.name = "prepare-timeout", .value = "TIME", .to = &spec.prepare_timeout,
       .help = "for --prepare-data on a host ({})",
       .manual = "For the preparation of a host ({}).", .json = "prepare_timeout_s"},
      {.name = "boundary-timeout", .value = "TIME", .to = &rules.boundary_timeout,
       .help = "waiting for a member at an epoch's start ({})",
       .manual = "For a member to reach the start of the next epoch when the others have ({}).",
       .json = "boundary_timeout_s", .variable = "DT_BOUNDARY_TIMEOUT"},
      {.name = "hang-timeout", .value = "TIME", .to = &rules.hang_timeout,
       .help = "for a member that does nothing while others wait for it in a step ({})",
       .manual = "For a member that does nothing in the middle of an epoch while others wait for "
           "its gradients ({}). It is named in `dtctl status` and in the events at half of that "
           "time, with what the kernel says of its process; then it is killed, logged REMOVED "
           "and restarted as after any failure. If all members wait for each other for so long, "
           "the job ends with exit status 74. Between a worker's last step of an epoch and its "
           "arrival at the next --boundary-timeout rules.", .json = "hang_timeout_s"},
      {.name = "leave-timeout", .value = "TIME", .to = &rules.leave_timeout,
       .help = "for a removed worker to end by itself ({})", .json = "leave_timeout_s"},
      {.name = "stop-timeout", .value = "TIME", .to = &rules.stop_grace,
       .help = "between TERM and KILL when the job is stopped ({})",
       .manual = "From TERM to KILL when the job is stopped ({}).", .json = "stop_timeout_s"},
      {.name = "notice-grace", .value = "TIME", .to = &spec.notice_grace,
       .help = "in a scheduler's allocation: from TERM, USR1, USR2 or XCPU to a host's end ({})",
       .manual = "In an allocation of Slurm or Grid Engine TERM, USR1, USR2 and XCPU, to an agent "
           "or to dtlaunch, say that the host, or all hosts, go away after so long ({}).",
       .json = "notice_grace_s"},
      {.name = "notice-margin", .value = "TIME", .to = &rules.notice_margin,
       .help = "workers on a host that goes away are stopped so long before it does ({})",
       .manual = "Workers on a host that is known to go away (`dtctl leave`, or a notice of its "
           "scheduler) leave at the next epoch if that begins in time; otherwise they get TERM so "
           "long before the host is gone ({}, or half of --notice-grace if that is shorter).",
       .json = "notice_margin_s"},
      {.name = "suspect-after", .value = "TIME", .to = &rules.liveness.suspect_after,
       .help = "a host that is silent for so long gets no new processes ({})",
       .manual = "A host whose agent says nothing for so long is suspect ({}), and none of its "
           "newcomers is waited for. Agents say something twice in that time, at most every 5 s: a longer "
           "one makes large jobs cheaper.", .json = "suspect_after_s"},
      {.name = "dead-after", .value = "TIME", .to = &rules.liveness.dead_after,
       .help = "a host that is silent for so long counts as lost ({})",
       .manual = "A host whose agent says nothing for so long counts as lost ({}) unless its "
           "workers' gradients still flow. A lost host that comes back is stopped, and may join "
           "again.", .json = "dead_after_s"},
      {.name = "server-dead-after", .value = "TIME", .to = &rules.server_dead_after,
       .help = "a kvstore server that is silent for so long counts as lost ({})",
       .manual = "A kvstore server that says nothing for so long is lost ({}, at least 1 s), "
           "whether its host is heard or not, unless a worker still gets data from it. A server "
           "that shows some sign of life and yet does not go on (one of its loops does not turn, "
           "or it does not acknowledge a commit) is lost after ten times as long, and so is a "
           "server that nobody else could see: all servers' hosts are silent, or no worker is "
           "connected to it. While a server is silent no worker counts as hung. A worker's "
           "connection that leaves a heartbeat unanswered for so long, while nothing moves on it, "
           "is made anew.",
       .json = "server_dead_after_s", .variable = "DT_SERVER_DEAD_AFTER"},
      {.name = "checkpoint-interval", .value = "TIME", .to = &rules.checkpoint_interval,
       .help = "time between checkpoints ({}), at least 20 times what one takes; only at the end of "
           "an epoch, and where all base hosts see the job folder",
       .manual = "The servers save what they have, while training goes on: at the end of the "
           "first epoch, then at the first epoch's end after so long ({}), or after 20 times "
           "what the last one took. The job folder has to be a place for it: every base host "
           "sees it, which is tried, and there is room for three of them. Where it is none, a "
           "line at the start and `dtctl status` say why, and that the loss of a host with a "
           "server ends the job.", .json = "checkpoint_interval_s"},
      {.name = "checkpoint-every", .value = "N", .to = &rules.checkpoint_every, .most = 1'000'000,
       .help = "instead, before every so many epochs; 0: never",
       .manual = "Instead, before every epoch whose number is a multiple of N, whatever the time "
           "(0: never). When a server is lost the job goes back to the newest checkpoint by "
           "itself: new servers begin with it, and the same workers run its epoch again. A "
           "checkpoint that turns out to be damaged then is passed over for the one before it; "
           "events and `dtctl status` name it. A checkpoint that cannot be written, because the "
           "volume is full or stalls, costs nothing but itself; events and `dtctl status` tell "
           "why.", .json = "checkpoint_every"},
      {.name = "keep-checkpoints", .value = "N", .to = &rules.keep_checkpoints, .least = 1,
       .most = 1'000'000, .help = "how many of the newest are kept ({})", .json = "keep_checkpoints"},
      {.name = "orphan-timeout", .value = "TIME", .to = &rules.orphan_timeout,
       .help = "hosts stop everything after so long unsupervised ({})",
       .manual = "A host on its own for so long stops everything ({}).",
       .json = "orphan_timeout_s", .variable = "DT_ORPHAN_TIMEOUT"},
      {.name = "poll-interval", .value = "TIME", .to = &spec.poll_interval,
       .help = "between looks at host_worker ({})",
       .manual = "Between two looks at host_worker ({}).", .json = "poll_interval_s"},
    }},
    {"Output", {
      {.name = "output", .value = "all|lead|none",
       .to = one_of(spec.shown_output, kShownOutput),
       .help = "show all workers' lines, rank 0's (lead), or none; default: all, beyond 4 workers "
           "lead",
       .manual = "Whose lines the terminal shows (all, from the fifth worker on lead); the files "
           "in the job folder are always whole (`dtctl logs`). *all*: every process's. *lead*: of "
           "the workers that of rank 0, and the last lines of one that fails. *none*: no "
           "process's. In a job of more than 4 workers equal lines that come within half a second "
           "are one line: [workers 0-999].",
       .json = "output"},
      {.name = "no-prefix", .help = "show processes' lines as they are",
       .manual = "Processes' lines without \"[worker 1 10.0.0.7]\"; equal ones are not folded."},
      {.name = "log-limit", .value = "SIZE", .to = Bytes{&spec.log_limit},
       .help = "a process's output in the job folder, 500M or 2G: the older half goes (no limit)",
       .manual = "A process's output in the job folder has at most about so many bytes (500M, "
           "2G; no limit): at half of it the file is set aside as *name*.log.1, and what was set "
           "aside before goes.", .json = "log_limit"},
      {.name = "quiet", .letter = 'q', .to = &spec.quiet,
       .help = "only warnings and errors on the terminal",
       .manual = "Only warnings and errors: neither processes' lines nor the job's own INFO "
           "lines.", .json = "quiet"},
    }},
  };
  // clang-format on
}

}  // namespace dt::io
