/// dtctl: a person's hand on a running job, from any shell. Finds the job by its folder.

#include <boost/algorithm/string/replace.hpp>
#include <boost/asio/use_future.hpp>
#include <cctype>
#include <cstdio>
#include <filesystem>

#include "core/base/version.h"
#include "io/asio.h"
#include "io/descriptor_limit.h"
#include "io/flags.h"
#include "io/job/status_fields.h"
#include "io/spelling.h"
#include "supervisor/dtctl/commands.h"
#include "supervisor/dtctl/hosts_choice.h"
#include "supervisor/dtctl/job_standing.h"

namespace dt::supervisor::ctl {
namespace {

constexpr const char* kUsage = R"(Usage: dtctl [--job-dir DIR] COMMAND
Looks at and steers the job of the present folder, or of DIR.

)";
constexpr const char* kMore = R"(
Exit codes: 0 done; 1 refused or failed; 2 wrong usage; 3 no job is running
there; 4 wait: not in time. console and stop end with 0 when they saw the job's
end; exec and clean have further ones: see their --help.
)";

io::awaitable<int> version(Arguments) {
  fmt::print("{}", version_text("dtctl"));
  co_return kExitOk;
}

/// A row each: from it come the reading of a command's words, --help, the manual's list and
/// completion.
struct Command {
  const char* name;
  const char* words;  ///< Behind the name: "HOST [--cancel]". Those that are no options come first.
  const char* help;   ///< In lines of at most 61 columns.
  std::vector<io::Flag> flags;  ///< Besides common_flags.
  io::awaitable<int> (*run)(Arguments);
  /// In place of `run`: has options of its own, which it finds in the words behind the name.
  int (*program)(io::Program, const std::string& job_dir, const io::Words& words) = nullptr;
};

/// Their options fill `args`.
std::vector<Command> commands(Arguments& args) {
  // clang-format off
  return {
      {"status", "[--json] [--watch] [--all]", "members, newcomers, servers, host_worker", {
          {.name = "json", .to = &args.json, .help = "all of it, as JSON"},
          {.name = "watch", .letter = 'w', .to = &args.watch, .help = "every second"},
          {.name = "all", .to = &args.all, .help = "a line for each, also of many that are alike"},
      }, status},
      {"metrics", "", "the status for Prometheus, in its text format", {}, metrics},
      {"why", "HOST", "its state, what failed there, the next try, what would help", {}, why},
      {"add", "HOST [slots=N] [gpus=LIST] [via=KIND]",
       "one more worker (or N) on HOST, from the next epoch on", {}, edit},
      {"remove", "HOST", "HOST's added workers leave at the next epoch", {}, edit},
      {"replace", "OLD NEW",
       "NEW gets the places of OLD, a host of the initial launch, at\n"
       "the first epoch for which it is ready", {}, replace},
      {"leave", "HOST [--in TIME] [--why TEXT] [--cancel]",
       "HOST goes away in TIME: its workers, base workers too, leave\n"
       "at the next epoch, or before it is gone", {
          {.name = "in", .value = "TIME", .to = &args.in, .may_be_zero = true,
           .help = "gone after so long (10m, 0)"},
          {.name = "why", .value = "TEXT", .to = &args.why, .help = "what the status shows of it"},
          {.name = "cancel", .to = &args.cancel, .help = "it stays"},
      }, leave},
      {"grow", "N [slots=S] [--keep] [-- SBATCH WORDS]",
       "ask Slurm, or the provider of --fleet, for N nodes more, each\n"
       "for one worker (or S); they join as they come:\n"
       "dtctl grow 2 -- -p gpu -t 4:00:00", {
          {.name = "keep", .to = &args.keep,
           .help = "ask for another one whenever Slurm takes one away"},
      }, grow},
      {"shrink", "[N|HOST]",
       "give back one node (or N, or HOST) that grow has asked for:\n"
       "the pending ones first, then the newest", {}, shrink},
      {"stop", "[--force]", "stop the job and wait for its end", {
          {.name = "force", .to = &args.force, .help = "kill at once"},
      }, stop},
      {"resume", "", "start the job's supervisor again if it died", {}, resume},
      {"logs", "[NAME] [-f]",
       "a process's output: 3 or worker-3, server-0, prepare-HOST;\n"
       "without NAME the last lines of all", {
          {.name = "follow", .letter = 'f', .to = &args.follow, .help = "go on as it grows"},
      }, logs},
      {"events", "[-f] [--json]", "the job's story", {
          {.name = "follow", .letter = 'f', .to = &args.follow, .help = "go on as it grows"},
          {.name = "json", .to = &args.json, .help = "a JSON object per line"},
      }, events},
      {"console", "", "follow the terminal output of the job", {}, console},
      {"wait", "CONDITION... [--timeout TIME] [--start]",
       "until all hold at once: epoch>=3, workers=2, newcomers=0,\n"
       "members=0,2, servers=1, checkpoint>=2, state=running,\n"
       "\"worker 3 member\", \"server 0 listening\", \"host H lost\",\n"
       "\"event worker_added\", ended, ended=0, or a field of the\n"
       "status: .hosts[host=H].attempts>2", {
          {.name = "timeout", .value = "TIME", .to = &args.timeout,
           .help = "at most so long (30, 500ms, 10m)"},
          {.name = "start", .to = &args.start, .help = "also for a job that has not started yet"},
      }, wait},
      {"exec", "[-H FILE | -w HOSTS] [-b] -- COMMAND",
       "COMMAND on all hosts of the job, or on others: see\ndtctl exec --help",
       {}, nullptr, exec_main},
      {"clean", "[--job JOB | --all-jobs] [--dry-run]",
       "end what a job left on hosts after a crash: see\ndtctl clean --help",
       {}, nullptr, clean_main},
      {"version", "", "print the version", {}, version},
  };
  // clang-format on
}

/// "leave HOST [--cancel]".
std::string synopsis(const Command& command) {
  return fmt::format("{}{}{}", command.name, *command.words ? " " : "", command.words);
}

/// As --help lists it: the text from column 19 on.
std::string paragraph(const Command& command) {
  constexpr const char* kNextLine = "\n                   ";
  const std::string head = synopsis(command);
  std::string text = command.help;
  for (const io::Flag& flag : command.flags)
    text += fmt::format("\n--{}: {}", flag.name, flag.help);
  boost::replace_all(text, "\n", kNextLine);
  return head.size() > 15 ? fmt::format("  {}{}{}\n", head, kNextLine, text)
                          : fmt::format("  {:<17}{}\n", head, text);
}

io::Program program() {
  Arguments args;
  io::Program all{.name = "dtctl",
                  .version = version_text("dtctl"),
                  .usage = kUsage,
                  .more = kMore,
                  .free = io::Free::kCommand};
  for (const Command& command : commands(args)) all.usage += paragraph(command);
  return all;
}

/// The list of commands as roff.
std::string manual() {
  Arguments args;
  io::Given asked;
  asked.values["manual"];
  std::string out;
  for (const Command& command : commands(args)) {
    std::string text = fmt::format("{}.\n", command.help);
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    out += boost::replace_all_copy(".SS " + synopsis(command) + "\n" + text, "-", "\\-");
    out += io::answer({}, {{"", command.flags}}, asked).value();
  }
  return out;
}

/// The fields of the status as roff.
std::string status_manual() {
  std::string out;
  for (const io::StatusPath& field : io::status_paths())
    out += fmt::format(".TP\n\\fB{}\\fR\n{}\n", field.path,
                       boost::replace_all_copy(std::string(field.text), "-", "\\-"));
  return out;
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

Command find_command(const std::string& name, Arguments& args) {
  std::vector<std::string> names;
  for (Command& command : commands(args)) {
    if (command.name == name) return std::move(command);
    names.emplace_back(command.name);
  }
  const auto meant = io::nearest_name(name, names);
  throw Usage{fmt::format("unknown command {}{}", name,
                          meant ? fmt::format("; did you mean {}?", *meant) : "")};
}

int print(const std::string& text) { return std::fputs(text.c_str(), stdout) < 0; }

int run(const io::Words& words) {
  Arguments args;
  const io::Flags common = {common_flags(args.job_dir)};
  auto before = io::parse(program(), common, words);
  if (!before) return io::refuse(program(), before.error());
  if (before->has("manual")) return print(manual());
  if (!before->words.empty() && before->words.front() == "help") before->values["help"];
  if (const auto text = io::answer(program(), common, *before)) return print(*text);
  if (before->words.empty()) throw Usage{"a command is missing"};
  const Command command = find_command(before->words.front(), args);
  before->words.erase(before->words.begin());
  io::Program own{.name = fmt::format("dtctl {}", command.name),
                  .version = program().version,
                  .usage = fmt::format("Usage: dtctl [--job-dir DIR] {}\n", synopsis(command))};
  if (command.program) return command.program(own, volume_of(args, *before)->path(), before->words);
  own.usage += fmt::format("{}\n", command.help);
  own.free = io::Free::kAnywhere;
  own.unknown = fmt::format("{} takes no", command.name);
  const io::Flags flags = {{"Options", command.flags}, common[0]};
  auto given = io::parse(own, flags, before->words);
  if (!given) return io::refuse(program(), given.error());
  if (given->has("manual") && command.run == status) return print(status_manual());
  if (const auto text = io::answer(own, flags, *given)) return print(*text);
  given->values.merge(before->values);
  if (before->has("job-dir")) throw Usage{"--job-dir is given twice"};
  const bool takes_words = *command.words && !std::string_view(command.words).starts_with("[-");
  if (!given->words.empty() && !takes_words)
    throw Usage{fmt::format(
        "{} takes no \"{}\"{}", command.name, given->words.front(),
        command.name == std::string_view("status") ? "; of one host: dtctl why HOST" : "")};
  args.command = command.name;
  args.synopsis = synopsis(command);
  args.words = given->words;
  args.has_deadline = given->has("in");
  args.volume = volume_of(args, *given);
  args.job_dir = args.volume->path();
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
