/// dtlaunch: parse, check, write the spec, run the job.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <random>
#include <ranges>
#include <set>
#include <sstream>

#include "core/base/quantity.h"
#include "core/base/version.h"
#include "core/protocol/exit_code.h"
#include "io/clock.h"
#include "io/descriptor_limit.h"
#include "io/fd.h"
#include "io/job/control_protocol.h"
#include "io/job/job_owner.h"
#include "io/job/master_folders.h"
#include "io/log.h"
#include "io/stop_signals.h"
#include "io/subprocess.h"
#include "io/volume_answers.h"
#include "launcher/bundle_use.h"
#include "launcher/check/check_command.h"
#include "launcher/cli/console.h"
#include "launcher/cli/launch_options.h"
#include "launcher/environment.h"
#include "launcher/job_programs.h"
#include "launcher/last_job.h"
#include "launcher/placement/allocation_probe.h"
#include "launcher/placement/hosts_file.h"
#include "launcher/placement/placement.h"
#include "launcher/placement/scheduler_program.h"
#include "launcher/prune.h"
#include "launcher/shell_word.h"
#include "launcher/supervisor_process.h"

namespace dt::launcher {
namespace {

namespace fs = std::filesystem;
using io::variable;

/// Longest time from a supervisor's report of the job's end to its exit.
constexpr std::chrono::seconds kLastWord{20};

/// The folder as the user came there, which other hosts may know only by that name.
Result<std::string> present_folder() {
  std::error_code ec;
  const std::string logical = variable("PWD").value_or("");
  const std::string physical = fs::current_path(ec).string();
  if (ec == std::errc::no_such_file_or_directory)
    return fail(ErrorKind::kInvalid, "the present folder has been removed: cd into another one");
  if (auto there = io::volume_answers(".", physical); !there) return tl::unexpected(there.error());
  return logical.starts_with('/') && fs::equivalent(logical, ".", ec) ? logical : physical;
}

Result<void> check_folder(io::JobSpec& spec) {
  spec.job_dir = fs::path(spec.job_dir).lexically_normal().string();
  if (spec.job_dir.size() > 1 && spec.job_dir.back() == '/') spec.job_dir.pop_back();
  const std::string place = "job folder " + spec.job_dir;
  if (auto there = io::volume_answers(spec.job_dir, place); !there) return there;
  std::error_code ec;
  if (!fs::is_directory(spec.job_dir, ec))
    return fail(ErrorKind::kInvalid, "{}: there is no such folder", place);
  if (::access(spec.job_dir.c_str(), W_OK | X_OK) != 0)
    return tl::unexpected(errno_error(errno, place));
  return io::check_folder_owner(spec.job_dir);
}

void name_job(io::JobSpec& spec) {
  spec.job = io::make_job_name(io::wall_now(), std::random_device{}());
  spec.state_dir = io::default_state_dir(spec.job);
  spec.socket = io::default_runtime_dir(spec.job) + "/control";
}

/// Makes the folders of the job's state and sockets; prints a notice where their place is unusual.
Result<void> make_folders(const io::JobSpec& spec) {
  const std::string name = fs::path(spec.state_dir).filename().string();
  for (const auto& [home, folder] : {std::pair(io::state_home(), name),
                                     std::pair(io::runtime_home(spec.job.size()), spec.job)}) {
    if (auto made = io::make_job_folder(home, folder); !made) return made;
    if (!home.notice.empty()) fmt::print(stderr, "dtlaunch: {}\n", home.notice);
  }
  return {};
}

/// A new file that only its owner reads.
Result<void> write_file(const std::string& path, const std::string& text) {
  const io::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file || !io::write_all(file.get(), text) || ::fsync(file.get()) != 0)
    return tl::unexpected(errno_error(errno, "write " + path));
  return {};
}

/// It holds --env values.
Result<void> write_spec(const io::JobSpec& spec) {
  return write_file(spec_file(spec), to_json(spec) + "\n");
}

std::string quoted(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words | std::views::transform(shell_word), " "));
}

ProcessFacts example(const io::JobSpec& spec, Role role, const Host& host) {
  ProcessFacts facts;
  facts.process = {role, 0};
  facts.host = host;
  facts.address = host.name;
  facts.secret = "(made at the start)";
  facts.num_workers = static_cast<std::uint32_t>(spec.workers.size());
  facts.num_servers = static_cast<std::uint32_t>(spec.servers.size());
  facts.root.address = spec.workers.front().name;
  facts.master.address = spec.workers.front().name;
  return facts;
}

void print_environment(const io::JobSpec& spec, Role role, const Host& host) {
  fmt::print("environment of {}:\n", to_string(ProcessId{role, 0}));
  for (const auto& [name, value] : environment(spec, example(spec, role, host)))
    fmt::print("  {}={}\n", name, shell_word(value));
}

/// For the first host: "over ssh", or the words that start a shell there; where that is this
/// machine, for the first other one, too.
std::string how_reached(const io::JobSpec& spec) {
  Host first = spec.workers.front();
  const StarterKind way = io::way_to(spec, first);
  if (way == StarterKind::kLocal) return "on this machine, without ssh";
  if (way == StarterKind::kSsh) return "over ssh";
  const Starter starter = io::starter_for(spec, way);
  std::string out;
  if (starter.here == first.name) {
    out = fmt::format("{} is this machine", first);
    const auto other = std::ranges::find_if(spec.workers, [&](const Host& host) {
      return host.name != starter.here && io::way_to(spec, host) == way;
    });
    if (other == spec.workers.end()) return out;
    first = *other;
    out += ", ";
  }
  const auto command = starter_command(starter, first.name);
  if (!command) return command.error().message;
  return out + fmt::format("{} by {}", first, quoted(command->argv));
}

void print_plan(const io::JobSpec& spec) {
  fmt::print("job folder  {}\nstarted in  {}\n{}, {}\n", spec.job_dir, spec.cwd, how_reached(spec),
             spec.elastic ? "elastic: host_worker is watched" : "not elastic");
  if (!spec.prepare_data.empty())
    fmt::print("on each host first: {}\n", quoted({"/bin/sh", "-c", spec.prepare_data}));
  for (std::size_t i = 0; i < spec.servers.size(); ++i)
    fmt::print("server {:<4} {}  {}\n", i, spec.servers[i],
               spec.dmlc_roles ? quoted(spec.command) : "dtserver");
  if (spec.dmlc_roles)
    fmt::print("scheduler   {}  {}\n", spec.workers.front(), quoted(spec.command));
  for (std::size_t i = 0; i < spec.workers.size(); ++i)
    fmt::print("worker {:<4} {}  {}\n", i, spec.workers[i], quoted(spec.command));
  print_environment(spec, Role::kWorker, spec.workers.front());
  if (!spec.servers.empty()) print_environment(spec, Role::kServer, spec.servers.front());
}

void print_line(const std::string& line) { fmt::print(stderr, "dtlaunch: {}\n", line); }

int refuse(const Error& error, int exit_code) {
  fmt::print(stderr, "dtlaunch: {}\n", error.message);
  return exit_code;
}

int refuse(const Error& error) {
  return refuse(error, error.kind == ErrorKind::kTimeout ? kExitFailure : kExitUsage);
}

/// What the supervisor opens for `spec`: a connection and files for each host, and some logs and
/// links.
std::string lacking_descriptors(const io::JobSpec& spec) {
  constexpr std::size_t kBeside = 64;
  constexpr std::size_t kPerHost = 4;
  std::set<Host> hosts(spec.workers.begin(), spec.workers.end());
  hosts.insert(spec.servers.begin(), spec.servers.end());
  return io::lacking_descriptors(kBeside + kPerHost * hosts.size(),
                                 "a job of " + count_text(hosts.size(), "host"));
}

/// Why a Python program may not find the package dtkv on the hosts; empty: it is brought there.
std::string lacking_package(const io::JobSpec& spec) {
  const bool is_python = fs::path(spec.command.front()).filename().string().starts_with("python");
  std::error_code ec;
  if (!is_python || spec.servers.empty() || spec.no_python ||
      fs::exists(io::program_folder() / kPythonPackage, ec))
    return {};
  return "this build has no dtkv.zip (cmake --build ... --target dt_python_zip): `import dtkv` "
         "needs "
         "an installation on the hosts";
}

/// After a stop that was asked for, how the job goes on; returns the exit code.
int tell_way_on(const io::JobSpec& spec, int exit_code) {
  // The job has ended: the same order by another way, a moment later, does not change that.
  io::ignore_stop_signals();
  if ((exit_code == kExitInterrupted || exit_code == kExitHostsGone) && can_go_on(spec))
    print_line("go on: dtlaunch --resume " + shell_word(spec.job_dir));
  return exit_code;
}

/// Names the job, writes its spec and runs it.
int start(io::JobSpec spec) {
  for (const std::string& lacking : {lacking_descriptors(spec), lacking_package(spec)})
    if (!lacking.empty())
      fmt::print(stderr, "{}\n", io::console_line(io::Level::kWarning, lacking));
  prune_ended_jobs();
  name_job(spec);
  if (auto made = make_folders(spec); !made) return refuse(made.error());
  if (auto written = write_spec(spec); !written) return refuse(written.error(), kExitFailure);
  keep_programs(spec, bundle_files());
  return tell_way_on(spec, run_job(spec).exit_code);
}

/// Stops what still runs of a job of another master, and takes its folder over. kExitOk, or why
/// not.
int end_job_of_other_master(const LastJob& job, bool take_over) {
  fmt::print(stderr,
             "dtlaunch: job {} was run by the master {} and its journal is not on this machine: "
             "its processes cannot be taken over, and are stopped first\n",
             job.spec.job, job.pointer.master);
  const io::JobSpec spec = spec_to_end(job);
  const auto journal = journal_to_end(spec);
  if (!journal) return refuse(journal.error(), kExitFailure);
  std::error_code ignored;
  fs::remove_all(spec.state_dir, ignored);
  if (auto made = make_folders(spec); !made) return refuse(made.error());
  auto written = write_spec(spec);
  if (written) written = write_file(spec.state_dir + "/journal", *journal);
  if (!written) return refuse(written.error(), kExitFailure);
  const JobRun ran =
      run_job(spec, take_over ? SupervisorStart::kTakeOver : SupervisorStart::kResume);
  fs::remove_all(spec.state_dir, ignored);
  if (ran.ordered) return *ran.ordered;
  return ran.exit_code == kExitInterrupted ? static_cast<int>(kExitOk) : ran.exit_code;
}

/// Adopts or ends what lives of a job that has not come to its end, or waits for the end of one
/// that has. Nothing: it can go on with a checkpoint. Otherwise dtlaunch's exit code.
std::optional<int> bring_to_end(const LastJob& job, bool take_over) {
  const auto& ended = job.pointer.ended;
  if (ended && job.is_running) wait_for_end(job, kLastWord);
  if (ended) return std::nullopt;
  if (job.is_running) {
    fmt::print(stderr, "dtlaunch: job {} is running: see dtctl status\n", job.spec.job);
    return kExitJobRunning;
  }
  if (job.has_journal) {
    io::JobSpec spec = job.spec;
    spec.detached = spec.detached && !job.is_failing;  // its end is waited for
    const auto [code, ordered] =
        run_job(spec, take_over ? SupervisorStart::kTakeOver : SupervisorStart::kAdopt);
    const bool goes_on = code != kExitJobRunning && (code == kExitServerLost || job.is_failing);
    return goes_on ? ordered : std::optional(tell_way_on(spec, code));
  }
  const int code = end_job_of_other_master(job, take_over);
  return code == kExitOk ? std::nullopt : std::optional(code);
}

/// Stops what lives of a job that is left: two jobs of one folder never run at once. Nothing:
/// another one may begin. Otherwise dtlaunch's exit code.
std::optional<int> stop_left_job(LastJob& job, const std::string& why) {
  if (!job.is_left()) return std::nullopt;
  if (auto decided = decide_end(job, why); !decided)
    return refuse(decided.error(), kExitJobRunning);
  if (const auto code = bring_to_end(job, false)) return code;
  job.pointer.ended = {kExitInterrupted, why};
  return std::nullopt;
}

/// What the job that begins again goes on with, in one line.
Result<std::string> find_beginning(io::JobSpec& spec) {
  if (spec.rules.on_change == OnChange::kRestart)
    return std::string("The command begins again, with its own snapshot (--on-change restart)");
  const auto found = begin_with_checkpoint(spec, print_line);
  if (!found) return tl::unexpected(found.error());
  return fmt::format("Going on with epoch {} from {}", spec.restore_epoch, spec.restore);
}

/// A job that was started with --preflight: its hosts may be others now, and so may its program.
int check_again(io::JobSpec& spec) {
  if (!spec.preflight) return kExitOk;
  CheckRequest request;
  request.is_before_launch = true;
  for (const auto* hosts : {&spec.workers, &spec.servers})
    for (const Host& host : *hosts) request.lines.push_back({host, 1});
  for (const preflight::FileFacts& file : spec.preflight->command.files)
    request.files.push_back(file.name);
  const CheckOutcome outcome = run_check(spec, request);
  spec.preflight = outcome.reference;
  return outcome.exit_code;
}

int resume(const Options& options) {
  std::string job_dir = fs::path(options.resume).lexically_normal().string();
  if (job_dir.size() > 1 && job_dir.back() == '/') job_dir.pop_back();
  auto job = find_last_job(job_dir);
  if (!job && job.error().kind == ErrorKind::kIo) return refuse(job.error(), kExitFailure);
  if (!job) return refuse(job.error());
  job->spec.detached |= options.spec.detached;
  const auto& ended = job->pointer.ended;
  if (ended && ended->exit_code == 0 && !options.again) {
    fmt::print(
        "job {} has finished: nothing is left to be done (--again begins it again, from its "
        "newest checkpoint or the command's own snapshot)\n",
        job->spec.job);
    return kExitOk;
  }
  if (auto found = find_env_values(*job, options.env_file, variable); !found)
    return refuse(found.error());
  if (const auto code = bring_to_end(*job, options.take_over)) return *code;
  take_hosts(*job, job->spec);
  if (const int code = check_again(job->spec); code != kExitOk) return code;
  const auto beginning = find_beginning(job->spec);
  if (!beginning) return refuse(beginning.error());
  if (!job->spec.quiet) fmt::print("{}\n", *beginning);
  if (!job->spec.quiet && !job->spec.added.empty())
    fmt::print("Workers on {} were added before and join again\n",
               fmt::join(job->spec.added, ", "));
  std::fflush(stdout);
  return start(std::move(job->spec));
}

/// --auto-resume: lets the spec begin with the checkpoint of the folder's last job where that fits.
/// Nothing: start it. Otherwise dtlaunch's exit code.
std::optional<int> go_on_from_last(io::JobSpec& spec) {
  auto last = find_last_job(spec.job_dir);
  if (!last && last.error().kind != ErrorKind::kInvalid) return refuse(last.error());
  io::JobSpec next = spec;
  Result<LastJob> now = last;
  if (last) {
    take_hosts(*last, next);
    take_hosts(*last, now->spec);
  }
  const AutoResume decided = auto_resume(now, next);
  const auto begins = [](const std::string& why) { print_line(fmt::format("{}: it begins", why)); };
  if (!decided.goes_on) {
    begins(decided.why);
    return last ? stop_left_job(*last, "another job begins in its folder") : std::nullopt;
  }
  if (last->is_left())
    print_line(decided.why + (decided.is_changed ? ": it is stopped, and goes on with that"
                                                 : ": it is taken up"));
  if (decided.is_changed)
    if (const auto code = stop_left_job(*last, "it goes on with other options")) return code;
  last->spec.detached = spec.detached;
  const bool is_over = was_ended_by_scheduler(last->spec, spec, variable);
  if (const auto code = bring_to_end(*last, is_over)) return code;
  io::JobSpec past = last->spec;
  if (const auto found = begin_with_checkpoint(past, print_line); !found) {
    begins(
        fmt::format("{}, and left nothing to go on with: {}", decided.why, found.error().message));
    return std::nullopt;
  }
  spec.restore = past.restore;
  spec.restore_epoch = past.restore_epoch;
  if (next.workers == now->spec.workers) take_hosts(*last, spec);
  print_line(fmt::format("{}: it goes on with epoch {} from {}", decided.why, spec.restore_epoch,
                         spec.restore));
  return std::nullopt;
}

/// A new job: what lives of the folder's last one is stopped before it.
std::optional<int> stop_last(const io::JobSpec& spec) {
  auto last = find_last_job(spec.job_dir);
  if (!last && last.error().kind == ErrorKind::kDenied)
    if (const auto other = io::read_job_pointer(spec.job_dir); !other || !other->ended)
      return refuse(last.error());
  if (!last || !last->is_left()) return std::nullopt;
  print_line(fmt::format(
      "job {} here has not ended, and its supervisor is gone: what lives of it is stopped first "
      "(dtlaunch --resume {} goes on with it)",
      last->spec.job, shell_word(spec.job_dir)));
  return stop_left_job(*last, "another job begins in its folder");
}

/// Asks Slurm for another allocation for this batch job.
void requeue() {
  const auto job = variable("SLURM_JOB_ID");
  if (!job) return;
  const Answer answer = ask_scheduler("scontrol", {"requeue", *job});
  print_line(answer.is_there ? fmt::format("Slurm job {} is queued again", *job)
                             : fmt::format("scontrol requeue {} failed: {}", *job, answer.text));
}

/// Where the default is fewer servers than hosts.
void tell_servers(const Options& options, const io::JobSpec& spec) {
  if (options.num_servers || spec.servers.empty()) return;
  const std::set<Host> hosts(spec.workers.begin(), spec.workers.end());
  if (hosts.size() > spec.servers.size())
    fmt::print(stderr, "dtlaunch: {} kvstore servers, on the first of {} hosts (-s)\n",
               spec.servers.size(), hosts.size());
}

/// The Python environment that was activated here, if the command's program lies in it.
void find_activated(io::JobSpec& spec) {
  const auto is_path = [](const auto& given) { return given.first == "PATH"; };
  if (spec.command.empty() || spec.command.front().find('/') != std::string::npos ||
      std::ranges::any_of(spec.env, is_path) || std::ranges::any_of(spec.env_worker, is_path))
    return;
  std::istringstream folders(variable("PATH").value_or(""));
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((folder + "/" + spec.command.front()).c_str(), X_OK) != 0) continue;
    for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
      if (const auto prefix = variable(name); prefix && folder == *prefix + "/bin")
        spec.activated = {name, *prefix};
    return;
  }
}

/// From a file, or another program; a terminal and /dev/null are devices.
bool is_redirected(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && !S_ISCHR(info.st_mode);
}

/// What the options ask for, where it is planned.
struct Planned {
  io::JobSpec spec;
  std::vector<HostLine> lines;  ///< All hosts that it may use.
};

/// The job that the options ask for. Else the exit code: why is printed.
tl::expected<Planned, int> planned(const Options& options) {
  auto lines = read_hosts_file(options.hostfile);
  if (!lines) return tl::unexpected(refuse(lines.error()));
  auto placement = find_placement({options.launcher, options.hostfile, std::move(*lines)},
                                  surroundings(variable));
  if (!placement) return tl::unexpected(refuse(placement.error()));
  auto spec = plan(options, *placement);
  if (!spec) return tl::unexpected(refuse(spec.error()));
  find_activated(*spec);
  if (spec->allocation)
    if (auto starts = check_starts(*placement->allocation, variable); !starts)
      return tl::unexpected(refuse(starts.error()));
  const std::string line = placement_line(*placement, *spec);
  if (!line.empty() && (!spec->quiet || options.dry_run)) fmt::print(stderr, "{}\n", line);
  if (auto usable = check_nodes(*placement, *spec); !usable)
    return tl::unexpected(refuse(usable.error(), kExitUnreachable));
  return Planned{std::move(*spec), std::move(placement->lines)};
}

/// --check: all hosts; --preflight: those that get processes.
CheckOutcome check(const Options& options, const Planned& job) {
  CheckRequest request;
  request.is_before_launch = options.check.empty();
  request.is_full = (request.is_before_launch ? options.preflight : options.check) == "full";
  request.files = options.check_files;
  request.write_good = options.write_good;
  request.as_json = options.json;
  request.lines = job.lines;
  const auto is_idle = [&job](const HostLine& line) {
    const auto& workers = job.spec.workers;
    return std::ranges::count(workers, line.host) == 0;
  };
  if (request.is_before_launch) std::erase_if(request.lines, is_idle);
  return run_check(job.spec, request);
}

int run(const std::vector<std::string>& words) {
  const auto cwd = present_folder();
  if (!cwd) return refuse(cwd.error());
  const Environment environment{.cwd = *cwd,
                                .variable = variable,
                                .version = version_text("dtlaunch"),
                                .has_input = is_redirected(STDIN_FILENO)};
  if (words.empty()) {
    fmt::print(stderr, "{}", kFirstWords);
    return kExitUsage;
  }
  auto options = parse_options(words, environment);
  if (!options) return refuse(options.error());
  if (options->answer) {
    fmt::print("{}", *options->answer);
    return kExitOk;
  }
  if (const auto step = larger_step(variable)) {
    if (step->is_speaker) fmt::print(stderr, "dtlaunch: {}\n", step->why);
    return kExitUsage;
  }
  if (options->action == Action::kResume) return resume(*options);
  auto job = planned(*options);
  if (!job) return job.error();
  io::JobSpec* const spec = &job->spec;
  if (auto folder = check_folder(*spec); !folder) return refuse(folder.error());
  if (options->action == Action::kDryRun) {
    print_plan(*spec);
    return kExitOk;
  }
  if (auto usable = check_starters(*spec, variable); !usable) return refuse(usable.error());
  if (options->action == Action::kCheck) return check(*options, *job).exit_code;
  if (!options->preflight.empty()) {
    const CheckOutcome outcome = check(*options, *job);
    if (outcome.exit_code != kExitOk) return outcome.exit_code;
    spec->preflight = outcome.reference;
  }
  if (!spec->allocation)
    if (const std::string forgotten = forget_ended_jobs(variable); !forgotten.empty())
      print_line(forgotten);
  tell_servers(*options, *spec);
  const auto of_last = options->auto_resume ? go_on_from_last(*spec) : stop_last(*spec);
  const int code = of_last ? *of_last : start(std::move(*spec));
  if (code == kExitHostsGone && options->requeue) requeue();
  return code;
}

}  // namespace
}  // namespace dt::launcher

int main(int argc, char** argv) {
  // A closed stdin, stdout or stderr would be the next file's number, and that file written to.
  int standard = 0;
  while ((standard = ::open("/dev/null", O_RDWR)) >= 0 && standard <= STDERR_FILENO) continue;
  ::close(standard);
  dt::io::raise_descriptor_limit();
  try {
    return dt::launcher::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& e) {
    // Not fmt::print, which would throw again if stderr itself is what failed.
    std::fputs(fmt::format("dtlaunch: {}\n", e.what()).c_str(), stderr);
    return dt::kExitFailure;
  }
}
