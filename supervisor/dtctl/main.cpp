/// dtctl: a person's hand on a running job, from any shell. Finds the job by its folder.

#include <boost/asio/use_future.hpp>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>

#include "core/base/version.h"
#include "io/asio.h"
#include "io/descriptor_limit.h"
#include "io/flags.h"
#include "io/spelling.h"
#include "supervisor/dtctl/clean.h"
#include "supervisor/dtctl/commands.h"
#include "supervisor/dtctl/exec.h"
#include "supervisor/dtctl/find_job.h"
#include "supervisor/dtctl/hosts_choice.h"

namespace dt::supervisor::ctl {
namespace {

constexpr const char* kHelp = R"(Usage: dtctl [--job-dir DIR] COMMAND
Looks at and steers the job of the present folder, or of DIR.

  status [--json] [--watch] [--all]
                   members, newcomers, servers, host_worker; --watch: every
                   second; --all: a line for each, also of many that are alike
  metrics          the status for Prometheus, in its text format
  why HOST         its state, what failed there, the next try, what would help
  add HOST [slots=N] [gpus=LIST] [via=KIND]
                   one more worker (or N) on HOST, from the next epoch on
  remove HOST      HOST's added workers leave at the next epoch
  leave HOST [--in TIME] [--why TEXT] [--cancel]
                   HOST goes away in TIME: its workers, base workers too, leave
                   at the next epoch, or before it is gone; --cancel: it stays
  grow N [slots=S] [--keep] [-- SBATCH WORDS]
                   ask Slurm for N nodes more, each for one worker (or S); they
                   join as they come: dtctl grow 2 -- -p gpu -t 4:00:00;
                   --keep: ask for another one whenever Slurm takes one away
  shrink [N|HOST]  give back one node (or N, or HOST) that grow has asked for:
                   the pending ones first, then the newest
  stop [--force]   stop the job and wait for its end; --force: kill at once
  resume           start the job's supervisor again if it died
  logs [NAME] [-f]
                   a process's output: 3 or worker-3, server-0, prepare-HOST;
                   without NAME the last lines of all; -f: go on as it grows
  events [-f] [--json]
                   the job's story; --json: a JSON object per line
  console          follow the terminal output of the job
  wait CONDITION... [--timeout TIME] [--start]
                   until all hold at once: epoch>=3, workers=2, newcomers=0,
                   members=0,2, servers=1, checkpoint>=2, state=running,
                   "worker 3 member", "server 0 listening", "host H lost",
                   "event worker_added", ended, ended=0, or a field of the
                   status: .hosts[host=H].attempts>2. --timeout 30, 500ms, 10m;
                   --start: also for a job that has not started yet
  exec [-H FILE | -w HOSTS] [-b] -- COMMAND
                   COMMAND on all hosts of the job, or on others: see
                   dtctl exec --help
  clean [--job JOB | --all-jobs] [--dry-run]
                   end what a job left on hosts after a crash: see
                   dtctl clean --help
  version

Exit codes: 0 done; 1 refused or failed; 2 wrong usage; 3 no job is running
there; 4 wait: not in time. console and stop end with 0 when they saw the job's
end; exec and clean have further ones: see their --help.
)";

const io::Program& program() {
  static const io::Program kProgram{.name = "dtctl",
                                    .version = version_text("dtctl"),
                                    .usage = kHelp,
                                    .free = io::Free::kAnywhere};
  return kProgram;
}

/// The commands' lines of kHelp say what they do.
io::Flags flags_of(Arguments& args) {
  // clang-format off
  return {{"Options", {
      {.name = "job-dir", .value = "DIR", .to = &args.job_dir},
      {.name = "json", .to = &args.json},
      {.name = "watch", .letter = 'w', .to = &args.watch},
      {.name = "all", .to = &args.all},
      {.name = "force", .to = &args.force},
      {.name = "follow", .letter = 'f', .to = &args.follow},
      {.name = "start", .to = &args.start},
      {.name = "cancel", .to = &args.cancel},
      {.name = "keep", .to = &args.keep},
      {.name = "in", .value = "TIME", .to = &args.in},
      {.name = "why", .value = "TEXT", .to = &args.why},
      {.name = "timeout", .value = "TIME", .to = &args.timeout},
      {.name = "version"},
      {.name = "help", .letter = 'h'},
  }}};
  // clang-format on
}

/// Of the job folder.
std::shared_ptr<io::VolumeQuestion> volume_of(const Arguments& args, const io::Given& given) {
  const std::string folder = absolute_folder(args.job_dir);
  auto volume = std::make_shared<io::VolumeQuestion>(folder, "job folder " + folder);
  const Duration patience =
      args.timeout > Duration{} ? std::min(args.timeout, kVolumePatience) : kVolumePatience;
  std::error_code ec;
  // While the volume stalls, the command does without it or reports that.
  if (given.has("job-dir") && volume->answers(patience) &&
      !std::filesystem::is_directory(folder, ec))
    throw Failed{
        {ErrorKind::kInvalid, fmt::format("--job-dir {}: there is no such folder", folder)},
        kExitUsage};
  return volume;
}

/// What is left to do after the options: the command and its folder.
Arguments complete(Arguments args, const io::Given& given) {
  if (given.words.empty()) throw Usage{"a command is missing"};
  args.command = given.words.front();
  args.has_deadline = given.has("in");
  args.words.assign(given.words.begin() + 1, given.words.end());
  args.volume = volume_of(args, given);
  args.job_dir = args.volume->path();
  return args;
}

io::awaitable<int> help(Arguments) {
  fmt::print("{}", kHelp);
  co_return kExitOk;
}

io::awaitable<int> version(Arguments) {
  fmt::print("{}", version_text("dtctl"));
  co_return kExitOk;
}

struct Command {
  io::awaitable<int> (*run)(Arguments);
  bool takes_words = false;
  io::Words options = {};  ///< Those that it has, besides --job-dir.
};

const std::map<std::string, Command>& commands() {
  // clang-format off
  static const std::map<std::string, Command> all = {
      {"status", {status, false, {"json", "watch", "all"}}},
      {"metrics", {metrics}},
      {"why", {why, true}},
      {"add", {edit, true}},
      {"remove", {edit, true}},
      {"leave", {leave, true, {"in", "why", "cancel"}}},
      {"grow", {grow, true, {"keep"}}},
      {"shrink", {shrink, true}},
      {"stop", {stop, false, {"force"}}},
      {"resume", {resume}},
      {"logs", {logs, true, {"follow"}}},
      {"events", {events, false, {"follow", "json"}}},
      {"console", {console}},
      {"wait", {wait, true, {"timeout", "start"}}},
      {"version", {version}},
      {"help", {help, true}},
  };
  // clang-format on
  return all;
}

/// Commands with options of their own, by their words after the command.
const std::map<std::string, int (*)(const std::string& job_dir, const io::Words&)>& programs() {
  static const std::map<std::string, int (*)(const std::string&, const io::Words&)> all = {
      {"clean", clean_main},
      {"exec", exec_main},
  };
  return all;
}

Usage unknown_command(const std::string& given) {
  std::vector<std::string> names;
  for (const auto& [name, command] : commands()) names.push_back(name);
  for (const auto& [name, main] : programs()) names.push_back(name);
  const auto meant = io::nearest_name(given, names);
  return {fmt::format("unknown command {}{}", given,
                      meant ? fmt::format("; did you mean {}?", *meant) : "")};
}

/// The exit code of a command with options of its own; nothing if `words` has none.
std::optional<int> run_program(const io::Words& words) {
  Arguments args;
  const io::Flags flags = flags_of(args);
  io::Program until_command = program();
  until_command.free = io::Free::kCommand;
  const auto given = io::parse(until_command, flags, words);
  if (!given || given->words.empty()) return std::nullopt;
  const auto found = programs().find(given->words.front());
  if (found == programs().end()) return std::nullopt;
  return found->second(volume_of(args, *given)->path(),
                       io::Words(given->words.begin() + 1, given->words.end()));
}

int run(const io::Words& words) {
  if (const auto code = run_program(words)) return *code;
  Arguments given_args;
  const io::Flags flags = flags_of(given_args);
  const auto given = io::parse(program(), flags, words);
  if (!given) return io::refuse(program(), given.error());
  if (const auto text = io::answer(program(), flags, *given)) {
    fmt::print("{}", *text);
    return kExitOk;
  }
  const Arguments args = complete(std::move(given_args), *given);
  const auto found = commands().find(args.command);
  if (found == commands().end()) throw unknown_command(args.command);
  const Command& command = found->second;
  for (const auto& [option, values] : given->values)
    if (option != "job-dir" && std::ranges::find(command.options, option) == command.options.end())
      throw Usage{fmt::format("{} takes no --{}", args.command, option)};
  if (!command.takes_words && !args.words.empty())
    throw Usage{fmt::format("{} takes no \"{}\"{}", args.command, args.words.front(),
                            args.command == "status" ? "; of one host: dtctl why HOST" : "")};
  io::asio::io_context context(1);
  auto code = io::asio::co_spawn(context, command.run(args), io::asio::use_future);
  context.run();
  return code.get();
}

}  // namespace
}  // namespace dt::supervisor::ctl

int main(int argc, char** argv) {
  dt::io::raise_descriptor_limit();
  try {
    return dt::supervisor::ctl::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const dt::supervisor::ctl::Usage& usage) {
    return dt::io::refuse(dt::supervisor::ctl::program(), {dt::ErrorKind::kInvalid, usage.why});
  } catch (const dt::supervisor::ctl::Failed& failed) {
    return dt::supervisor::ctl::complain(failed.error, failed.exit_code);
  } catch (const std::exception& e) {
    // Not fmt::print, which would throw again if stderr itself failed.
    std::fputs(fmt::format("dtctl: {}\n", e.what()).c_str(), stderr);
    return dt::kExitFailure;
  }
}
