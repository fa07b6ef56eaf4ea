/// dtctl: a person's hand on a running job, from any shell. Finds the job by its folder.

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/use_future.hpp>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/number.h"
#include "core/base/version.h"
#include "core/files/hosts.h"
#include "core/launch/holder_plan.h"
#include "core/protocol/exit_code.h"
#include "io/asio.h"
#include "io/descriptor_limit.h"
#include "io/flags.h"
#include "io/job/control_client.h"
#include "io/job/control_protocol.h"
#include "io/job/job_pointer.h"
#include "io/job/spec.h"
#include "io/line_prefixer.h"
#include "io/log.h"
#include "io/spelling.h"
#include "io/subprocess.h"
#include "launcher/cli/supervisor_process.h"
#include "supervisor/dtctl/clean.h"
#include "supervisor/dtctl/exec.h"
#include "supervisor/dtctl/file_tail.h"
#include "supervisor/dtctl/hosts_choice.h"
#include "supervisor/dtctl/job_wait.h"
#include "supervisor/dtctl/metrics_text.h"
#include "supervisor/dtctl/status_text.h"
#include "supervisor/dtctl/why_text.h"
#include "supervisor/fleet/slurm_queue.h"

namespace dt::supervisor {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::size_t kLongestEvent = std::size_t{16} << 20;
constexpr auto kLook = 500ms;  ///< Between looks at a growing file.

constexpr const char* kHelp =
    "Usage: dtctl [--job-dir DIR] COMMAND\n"
    "Looks at and steers the job of the present folder, or of DIR.\n\n"
    "  status [--json] [--watch] [--all]\n"
    "                                members, newcomers, servers, host_worker; --watch: every "
    "second;\n"
    "                                --all: a line for each, also of many that say the same\n"
    "  metrics                       the status for Prometheus, in its text format\n"
    "  why HOST                      its state, what failed there, the next try, what would help\n"
    "  add HOST [slots=N] [via=KIND] one more worker (or N) on HOST, from the next epoch on\n"
    "  remove HOST                   HOST's added workers leave at the next epoch\n"
    "  leave HOST [--in TIME] [--why TEXT] [--cancel]\n"
    "                                HOST goes away in TIME: its workers, base workers too, leave "
    "at\n"
    "                                the next epoch, or before it is gone; --cancel: it stays\n"
    "  grow N [slots=S] [--keep] [-- SBATCH WORDS]\n"
    "                                ask Slurm for N nodes more, each for one worker (or S); they "
    "join\n"
    "                                as they come: dtctl grow 2 -- -p gpu -t 4:00:00; --keep: ask "
    "for\n"
    "                                another one whenever Slurm takes one of them away\n"
    "  shrink [N|HOST]               give a node (or N) back that grow has asked for: first those\n"
    "                                that have not come, then the newest; or HOST\n"
    "  stop [--force]                stop the job and wait for its end; --force: kill at once\n"
    "  resume                        start the job's supervisor again if it died\n"
    "  logs [NAME] [-f]              a process's output: 3 or worker-3, server-0, prepare-HOST;\n"
    "                                without NAME the last lines of all; -f: go on as it grows\n"
    "  events [-f] [--json]          the job's story; --json: a JSON object per line\n"
    "  console                       follow the terminal output of the job\n"
    "  wait CONDITION... [--timeout TIME] [--start]\n"
    "                                until all hold at once: epoch>=3, workers=2, newcomers=0,\n"
    "                                members=0,2, servers=1, checkpoint>=2, state=running,\n"
    "                                \"worker 3 member\", \"server 0 listening\", \"host H "
    "lost\",\n"
    "                                \"event worker_added\", ended, ended=0, or a field of the\n"
    "                                status: .hosts[host=H].attempts>2. --timeout 30, 500ms, 10m;\n"
    "                                --start: also for a job that has not started yet\n"
    "  exec [-H FILE | -w HOSTS] [-b] -- COMMAND\n"
    "                                COMMAND on all hosts of the job, or on others: dtctl exec "
    "--help\n"
    "  clean [--job JOB | --all-jobs] [--dry-run]\n"
    "                                end what a job left on hosts after a crash: dtctl clean "
    "--help\n"
    "  version\n\n"
    "Exit codes: 0 done; 1 refused or failed; 2 wrong usage; 3 no job is running there; 4 wait: "
    "not\n"
    "in time.\n"
    "console and stop end with 0 when they saw the job's end.\n";

struct Arguments {
  std::string job_dir = ".";
  std::string command;
  std::vector<std::string> words;  ///< The arguments after the command.
  bool json = false;
  bool watch = false;
  bool all = false;
  bool force = false;
  bool follow = false;
  bool start = false;
  bool cancel = false;
  bool keep = false;
  bool has_deadline = false;  ///< `in` was given.
  Duration in{};
  std::string why;
  Duration timeout{};  ///< 0: none.
};

/// The command line is wrong.
struct Usage {
  std::string why;
};
/// The command cannot go on.
struct Failed {
  Error error;
  int exit_code;
};

template <class T>
T need(Result<T> result, int exit_code = kExitFailure) {
  if (!result) throw Failed{result.error(), exit_code};
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// ---------------------------------------------------------------- command line

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

/// What is left to do after the options: the command and its folder.
Arguments complete(Arguments args, const io::Given& given) {
  if (given.words.empty()) throw Usage{"a command is missing"};
  args.command = given.words.front();
  args.has_deadline = given.has("in");
  args.words.assign(given.words.begin() + 1, given.words.end());
  args.job_dir = absolute_folder(args.job_dir);
  return args;
}

// ---------------------------------------------------------------- finding the job

int complain(const Error& error, int code = kExitFailure) {
  fmt::print(stderr, "dtctl: {}\n", screen_text(error.message));
  return code;
}

std::string user_name(uid_t id) {
  const passwd* user = ::getpwuid(id);
  return user ? user->pw_name : fmt::format("user {}", id);
}

/// The name of the job's user, if it is another one; root may look at any job.
std::optional<std::string> other_owner(const std::string& job_dir) {
  struct stat st {};
  if (::geteuid() == 0 || ::stat(io::pointer_file(job_dir).c_str(), &st) != 0 ||
      st.st_uid == ::geteuid())
    return std::nullopt;
  return user_name(st.st_uid);
}

/// Why no supervisor answers on a job's control socket, and the remedy.
Error no_answer(const Arguments& args, const io::JobPointer& job) {
  if (const auto owner = other_owner(args.job_dir); owner && !job.ended)
    return {ErrorKind::kDenied,
            fmt::format("job {} in {} belongs to {}, who alone can look at it and steer it; its "
                        "files are there for all: dtctl events, dtctl logs",
                        job.job, args.job_dir, *owner)};
  if (job.ended)
    return {ErrorKind::kUnavailable,
            fmt::format("no job is running in {}; the last one, {}, ended with exit code {} ({})",
                        args.job_dir, job.job, job.ended->exit_code, job.ended->message)};
  return {ErrorKind::kUnavailable,
          fmt::format("job {} in {} has not ended, but its supervisor (pid {} on {}) does not "
                      "answer. On another machine: use dtctl there. If it died: \"dtctl resume\" "
                      "takes the job up again, \"dtctl stop\" ends it; without either the hosts "
                      "stop everything by themselves after --orphan-timeout",
                      job.job, args.job_dir, job.pid, job.master)};
}

struct Connected {
  io::JobPointer job;
  std::unique_ptr<io::ControlClient> client;
};

io::awaitable<Result<Connected>> connect(Arguments args) {
  auto job = io::read_job_pointer(args.job_dir);
  if (!job) co_return tl::unexpected(job.error());
  if (job->ended) co_return tl::unexpected(no_answer(args, *job));
  auto client = co_await io::ControlClient::connect(job->socket);
  if (!client) co_return tl::unexpected(no_answer(args, *job));
  Connected connected{std::move(*job), std::move(*client)};
  co_return std::move(connected);
}

/// The reply to a request; a refusal, kDenied, has the supervisor's own words.
io::awaitable<Result<std::string>> ask(io::ControlClient& client, std::string op,
                                       json request = json::object()) {
  request["op"] = std::move(op);
  auto reply = co_await client.ask(request.dump());
  if (!reply) co_return reply;
  const json answer = json::parse(*reply, nullptr, false);
  if (answer.is_object() && answer.value("ok", true) == false)
    co_return fail(ErrorKind::kDenied, "{}", answer.value("error", "the supervisor refused"));
  co_return reply;
}

/// The line, in a way that no terminal obeys.
std::string event_json(const std::string& line) {
  const auto is_plain = [](char c) { return c >= 0x20 && c < 0x7f; };
  if (std::all_of(line.begin(), line.end(), is_plain)) return line;
  const auto event = nlohmann::ordered_json::parse(line, nullptr, false);
  if (event.is_discarded()) return io::printable(line);
  return event.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

// ---------------------------------------------------------------- commands

/// The status of a folder in which no job answers, as `status --json` prints it.
std::string no_status(const Arguments& args, const Error& why) {
  json out{{"ok", false}, {"state", "none"}, {"error", why.message}};
  if (const auto job = io::read_job_pointer(args.job_dir)) {
    out["job"] = job->job;
    out["state"] = job->ended ? "ended" : "unreachable";
    if (job->ended) out["exit_code"] = job->ended->exit_code;
    if (job->ended) out["message"] = job->ended->message;
  }
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

int complain_of_status(const Arguments& args, const Error& why) {
  if (args.json) fmt::print("{}\n", no_status(args, why));
  return complain(why, kExitNoJob);
}

io::awaitable<int> status(Arguments args) {
  for (;;) {
    auto connected = co_await connect(args);
    if (!connected) co_return complain_of_status(args, connected.error());
    auto reply = co_await ask(*connected->client, "status");
    if (!reply && reply.error().kind == ErrorKind::kClosed)
      co_return complain_of_status(args, no_answer(args, connected->job));
    const std::string status = need(std::move(reply));
    const std::string text =
        args.json ? event_json(status) + "\n" : need(status_text(status, args.all));
    const bool is_screen = args.watch && !args.json && ::isatty(STDOUT_FILENO) != 0;
    fmt::print("{}{}", is_screen ? "\x1b[H\x1b[2J" : "", text);
    std::fflush(stdout);
    if (!args.watch) co_return kExitOk;
    co_await io::sleep_for(1s);
  }
}

io::awaitable<int> metrics(Arguments args) {
  const Connected to = need(co_await connect(args), kExitNoJob);
  auto reply = co_await ask(*to.client, "status");
  if (!reply && reply.error().kind == ErrorKind::kClosed)
    throw Failed{no_answer(args, to.job), kExitNoJob};
  const std::string status = need(std::move(reply));
  fmt::print("{}", need(metrics_text(status)));
  co_return kExitOk;
}

io::awaitable<int> why(Arguments args) {
  if (args.words.size() != 1) throw Usage{"why HOST"};
  const auto parsed = need(parse_hosts(args.words[0], "why"), kExitUsage);
  if (parsed.size() != 1) throw Usage{"why takes one host"};
  const Connected to = need(co_await connect(args), kExitNoJob);
  const std::string status = need(co_await ask(*to.client, "status"));
  fmt::print("{}", need(why_text(status, parsed.front().host)));
  co_return kExitOk;
}

/// Waits for JobEnded; shows the console before it if `show`.
io::awaitable<int> watch_console(Connected to, bool show) {
  for (;;) {
    auto frame = co_await to.client->receive();
    if (!frame) co_return complain(frame.error().at("job " + to.job.job));
    if (frame->type == io::Console::kType && show) {
      const auto text = need(wire::parse<io::Console>(frame->body));
      FILE* out = text.is_stderr ? stderr : stdout;
      std::fwrite(text.bytes.data(), 1, text.bytes.size(), out);
      std::fflush(out);
    }
    if (frame->type != io::JobEnded::kType) continue;
    const auto ended = need(wire::parse<io::JobEnded>(frame->body));
    fmt::print("job {} ended with exit code {}: {}\n", to.job.job, ended.exit_code,
               io::printable(ended.message));
    co_return kExitOk;
  }
}

io::awaitable<int> console(Arguments args) {
  Connected to = need(co_await connect(args), kExitNoJob);
  need(co_await ask(*to.client, "console"));
  co_return co_await watch_console(std::move(to), true);
}

/// Restarts a supervisor that died without a dtlaunch to restart it. Its lock keeps a second one
/// from getting ready.
io::awaitable<void> revive(Arguments args) {
  const io::JobPointer job = need(io::read_job_pointer(args.job_dir), kExitNoJob);
  if (job.ended || other_owner(args.job_dir)) throw Failed{no_answer(args, job), kExitNoJob};
  auto client = co_await io::ControlClient::connect(job.socket);
  if (client) {
    // One that is just being killed still has its socket: only an answer counts.
    auto reply = co_await ask(**client, "status");
    if (reply || reply.error().kind == ErrorKind::kDenied) co_return;
    if (reply.error().kind != ErrorKind::kClosed) throw Failed{reply.error(), kExitNoJob};
  }
  const std::string file = job.state_dir + "/spec.json";
  if (::access(file.c_str(), R_OK) != 0) throw Failed{no_answer(args, job), kExitNoJob};
  const io::JobSpec spec = need(io::read_spec(file), kExitNoJob);
  auto started =
      co_await launcher::SupervisorProcess::start(spec, launcher::SupervisorStart::kRevive);
  if (!started) throw Failed{{ErrorKind::kUnavailable, started.error().why}, kExitNoJob};
  fmt::print("The supervisor of job {} had died; it is back (pid {})\n", job.job,
             (*started)->pid());
}

io::awaitable<int> resume(Arguments args) {
  co_await revive(args);
  co_return kExitOk;
}

/// "dtctl stop by root on pts/3".
std::string by_whom(std::string_view command) {
  std::string who = user_name(::getuid());
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    const char* terminal = ::ttyname(fd);
    if (terminal == nullptr) continue;
    std::string_view name = terminal;
    if (name.starts_with("/dev/")) name.remove_prefix(std::string_view("/dev/").size());
    who += fmt::format(" on {}", name);
    break;
  }
  return fmt::format("dtctl {} by {}", command, who);
}

io::awaitable<int> stop(Arguments args) {
  co_await revive(args);
  Connected follower = need(co_await connect(args), kExitNoJob);
  const Connected to = need(co_await connect(args), kExitNoJob);
  need(co_await ask(*follower.client, "console"));
  json request{{"force", args.force},
               {"why", by_whom(args.force ? "stop --force" : "stop")},
               {"control", io::kControlVersion}};
  need(co_await ask(*to.client, "stop", std::move(request)));
  co_return co_await watch_console(std::move(follower), false);
}

io::awaitable<int> edit(Arguments args) {
  constexpr std::size_t kMostWords = 3;
  if (args.words.empty() || args.words.size() > kMostWords)
    throw Usage{fmt::format("{} HOST{}", args.command,
                            args.command == "add" ? " [slots=N] [via=KIND]" : "")};
  const std::string line = fmt::format("{}", fmt::join(args.words, " "));
  need(parse_hosts(line, args.command), kExitUsage);
  const Connected to = need(co_await connect(args), kExitNoJob);
  json request{{"host", line}, {"control", io::kControlVersion}};
  const std::string reply = need(co_await ask(*to.client, args.command, std::move(request)));
  const json answer = json::parse(reply, nullptr, false);
  const std::string note = answer.is_object() ? answer.value("note", "") : "";
  fmt::print("host_worker was changed; {}\n",
             note.empty() ? "it takes effect at the next epoch" : io::printable(note));
  co_return kExitOk;
}

io::awaitable<int> leave(Arguments args) {
  if (args.words.size() != 1) throw Usage{"leave HOST [--in TIME] [--why TEXT] [--cancel]"};
  need(parse_hosts(args.words[0], args.command), kExitUsage);
  const Connected to = need(co_await connect(args), kExitNoJob);
  json request{{"host", args.words[0]},
               {"why", args.why.empty() ? by_whom("leave") : args.why},
               {"cancel", args.cancel},
               {"control", io::kControlVersion}};
  if (args.has_deadline) request["deadline_s"] = seconds(args.in);
  const std::string reply = need(co_await ask(*to.client, args.command, std::move(request)));
  const json answer = json::parse(reply, nullptr, false);
  const std::string note = answer.is_object() ? answer.value("note", "") : "";
  fmt::print("{} {}{}{}\n", io::printable(args.words[0]), args.cancel ? "stays" : "leaves",
             note.empty() ? "" : ": ", io::printable(note));
  co_return kExitOk;
}

// ---------------------------------------------------------------- nodes of a scheduler

constexpr std::uint32_t kMostNodes = 10'000;

/// Before anything is asked for.
void need_slurm(const std::string& command, const std::string& program) {
  if (io::in_path(program)) return;
  throw Failed{{ErrorKind::kUnavailable,
                fmt::format("{}: {} is not in PATH: it is for jobs where Slurm has the machines "
                            "(Debian's package slurm-client); elsewhere: dtctl {}",
                            command, program, command == "grow" ? "add HOST" : "remove HOST")},
               kExitFailure};
}

std::uint32_t count_of(const std::string& word, const char* command) {
  const auto count = parse_number<std::uint32_t>(word);
  if (!count || *count == 0 || *count > kMostNodes)
    throw Usage{fmt::format("{}: \"{}\" is no number of nodes: 1 to {}", command,
                            io::printable(word), kMostNodes)};
  return *count;
}

/// The job's holders. One whose host is in host_worker has joined, though its comment may not say
/// so yet.
io::awaitable<std::vector<Holder>> holders_now(const Connected& to, const SlurmQueue& queue) {
  std::vector<Holder> holders = need(queue.list());
  const json status = json::parse(need(co_await ask(*to.client, "status")));
  const json& in_file = status.at("file").at("accepted");
  for (Holder& holder : holders)
    if (std::ranges::find(in_file, json(holder.node)) != in_file.end()) holder.is_joined = true;
  co_return holders;
}

io::awaitable<int> grow(Arguments args) {
  if (args.words.empty()) throw Usage{"grow N [slots=S] [--keep] [-- SBATCH WORDS]"};
  constexpr std::string_view kSlots = "slots=";
  const std::uint32_t nodes = count_of(args.words[0], "grow");
  HolderOrder order;
  auto words = args.words.begin() + 1;
  if (words != args.words.end() && words->starts_with(kSlots))
    order.slots = count_of((words++)->substr(kSlots.size()), "grow: slots");
  order.words.assign(words, args.words.end());
  order.is_kept = args.keep;
  need_slurm("grow", "sbatch");
  const Connected to = need(co_await connect(args), kExitNoJob);
  order.job = to.job.job;
  const SlurmQueue queue(order.job);
  std::uint32_t asked = 0;
  for (const Holder& holder : co_await holders_now(to, queue))
    if (!holder.is_joined && holder.state != HolderState::kEnding) asked += holder.slots;
  json request{{"slots", std::uint64_t{nodes} * order.slots},
               {"asked", asked},
               {"control", io::kControlVersion}};
  const json answer = json::parse(need(co_await ask(*to.client, "grow", std::move(request))));
  order.log = answer.at("log").get<std::string>();
  order.agent = answer.at("agent").get<std::string>();
  order.excluded = answer.at("excluded").get<std::vector<std::string>>();
  std::vector<std::string> ids;
  Result<std::string> id;
  while (ids.size() < nodes && (id = queue.submit(order))) ids.push_back(std::move(*id));
  if (!ids.empty())
    fmt::print("asked for {} node{}, Slurm job{} {}: {} when Slurm has {} (dtctl status)\n",
               ids.size(), ids.size() == 1 ? "" : "s", ids.size() == 1 ? "" : "s",
               io::printable(fmt::format("{}", fmt::join(ids, ", "))),
               ids.size() == 1 ? "it joins" : "they join", ids.size() == 1 ? "it" : "them");
  need(std::move(id));
  co_return kExitOk;
}

Holder without_keep(Holder holder) {
  holder.kept.reset();
  return holder;
}

/// Takes the host out of the job; its holder ends when its workers have left.
io::awaitable<void> let_host_go(const Connected& to, const std::string& host) {
  json request{{"host", host}, {"control", io::kControlVersion}};
  need(co_await ask(*to.client, "remove", std::move(request)));
  fmt::print("{} leaves at the next epoch; then its node is given back\n", io::printable(host));
}

io::awaitable<int> shrink(Arguments args) {
  if (args.words.size() > 1) throw Usage{"shrink [N|HOST]"};
  const std::string word = args.words.empty() ? "1" : args.words[0];
  const bool is_count = word.find_first_not_of("0123456789") == word.npos;
  const std::uint32_t count = is_count ? count_of(word, "shrink") : 1;
  if (!is_count) need(parse_hosts(word, "shrink"), kExitUsage);
  need_slurm("shrink", "scancel");
  const Connected to = need(co_await connect(args), kExitNoJob);
  const SlurmQueue queue(to.job.job);
  const std::vector<Holder> holders = co_await holders_now(to, queue);
  if (!is_count) {
    bool is_held = false;
    for (const Holder& holder : holders) {
      if (holder.node != word || holder.state != HolderState::kRunning) continue;
      is_held = true;
      if (holder.is_joined) need(queue.mark(without_keep(holder)));
    }
    co_await let_host_go(to, word);  // of a host of the initial launch the supervisor says why not
    if (!is_held) fmt::print("no Slurm job of dtctl grow holds {}\n", io::printable(word));
    co_return kExitOk;
  }
  const std::vector<Holder> chosen = newest_holders(holders, count);
  for (const Holder& holder : chosen) {
    if (holder.state == HolderState::kPending) {
      need(queue.cancel_pending(holder.id));
      fmt::print("Slurm job {} is taken out of the queue\n", holder.id);
    } else if (holder.is_joined) {
      // A dtfleet that was killed before it could would take the node for a new one.
      need(queue.mark(without_keep(holder)));
      co_await let_host_go(to, holder.node);
    } else {
      need(queue.cancel(holder.id));
      fmt::print("Slurm job {} ({}) is given back\n", holder.id, io::printable(holder.node));
    }
  }
  if (chosen.size() < count)
    throw Failed{{ErrorKind::kInvalid,
                  fmt::format("dtctl grow has asked for {} nodes that are not given back yet: not "
                              "{} (other hosts: dtctl remove HOST)",
                              chosen.size(), count)},
                 kExitFailure};
  co_return kExitOk;
}

io::awaitable<int> wait(Arguments args) {
  if (args.words.empty()) throw Usage{"wait CONDITION..."};
  WaitOptions options;
  options.job_dir = args.job_dir;
  if (args.timeout > Duration{}) options.timeout = args.timeout;
  options.for_start = args.start;
  for (const std::string& word : args.words)
    options.conditions.push_back(need(Condition::parse(word), kExitUsage));
  const Waited waited = co_await wait_for_conditions(std::move(options));
  if (waited.exit_code != kExitOk) fmt::print(stderr, "dtctl: {}\n", waited.why);
  co_return waited.exit_code;
}

// ---------------------------------------------------------------- files of the job folder

/// Passes a file's text to `show`, piece by piece, and follows it while the job runs if wanted. A
/// log's rotated part (--log-limit) comes first.
io::awaitable<int> show_file(Arguments args, std::string path,
                             std::function<void(std::string)> show) {
  const std::string older = path + io::kOlder;
  std::error_code ec;
  const bool has_older = fs::exists(older, ec);
  if (!has_older && !fs::exists(path, ec)) co_return complain(errno_error(ENOENT, path));
  if (has_older) {
    FileTail tail(older);
    for (std::string piece = tail.more(); !piece.empty(); piece = tail.more())
      show(std::move(piece));
  }
  FileTail tail(path);
  for (;;) {
    const auto job = io::read_job_pointer(args.job_dir);
    const bool goes_on = args.follow && job && !job->ended;
    for (std::string piece = tail.more(); !piece.empty(); piece = tail.more())
      show(std::move(piece));
    std::fflush(stdout);
    if (!goes_on) co_return kExitOk;
    co_await io::sleep_for(kLook);
  }
}

std::string last_lines(const std::string& path, int lines) {
  constexpr std::streamoff kMost = 16 << 10;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kMost));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::size_t at = text.size();
  for (int i = 0; at != 0 && at != text.npos && i <= lines; ++i) {
    at = text.rfind('\n', at - 1);
    if (at == text.npos) return text;
  }
  return text.substr(at == 0 ? 0 : at + 1);
}

int show_all_logs(const std::string& folder) {
  std::error_code ec;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, ec)) files.push_back(entry.path());
  if (ec) return complain(errno_error(ec.value(), folder));
  std::sort(files.begin(), files.end());
  for (const auto& file : files)
    fmt::print("==> {} <==\n{}\n", io::printable(file.string()),
               screen_text(last_lines(file.string(), 10)));
  return kExitOk;
}

io::awaitable<int> logs(Arguments args) {
  const io::JobPointer job = need(io::read_job_pointer(args.job_dir), kExitNoJob);
  const std::string folder = fmt::format("{}/{}/logs", io::marker_dir(args.job_dir), job.job);
  if (args.words.size() > 1) throw Usage{"logs takes one name at most"};
  if (args.words.empty()) co_return show_all_logs(folder);
  std::string name = args.words[0];
  if (name.find('/') != name.npos) throw Usage{fmt::format("{}: a name such as worker-3", name)};
  if (name.find_first_not_of("0123456789") == name.npos) name = "worker-" + name;
  if (name.ends_with(".log")) name.resize(name.size() - 4);
  ScreenText screen;
  const auto show = [&screen](std::string text) { fmt::print("{}", screen.feed(std::move(text))); };
  auto shown = show_file(args, fmt::format("{}/{}.log", folder, name), show);
  const int code = co_await std::move(shown);
  fmt::print("{}", screen.finish());
  co_return code;
}

/// "2026-11-20 22:46:47 epoch 3: text" of an event's line; the line itself if it is no event.
std::string event_text(const std::string& line) {
  const json event = json::parse(line, nullptr, false);
  if (!event.is_object() || !event.value("text", json("")).is_string() ||
      !event.value("time_ns", json(0)).is_number_integer())
    return io::printable(line);
  const std::int64_t ns = event.value("time_ns", std::int64_t{0});
  const auto seconds = static_cast<std::time_t>(ns / 1'000'000'000);
  char when[32] = "";
  std::tm local{};
  if (::localtime_r(&seconds, &local)) std::strftime(when, sizeof when, "%F %T", &local);
  const std::string text = io::printable(event.value("text", line));
  const auto epoch = event.find("epoch");
  if (epoch != event.end() && epoch->is_number())
    return fmt::format("{} epoch {}: {}", when, epoch->dump(), text);
  return fmt::format("{} {}", when, text);
}

io::awaitable<int> events(Arguments args) {
  const io::JobPointer job = need(io::read_job_pointer(args.job_dir), kExitNoJob);
  std::string rest;
  const auto show = [&](const std::string& text) {
    rest += text;
    for (std::size_t end; (end = rest.find('\n')) != std::string::npos;) {
      const std::string line = rest.substr(0, end);
      rest.erase(0, end + 1);
      fmt::print("{}\n", args.json ? event_json(line) : event_text(line));
    }
    if (rest.size() > kLongestEvent) rest.clear();  // not a line of ours: those are shorter
  };
  auto shown = show_file(args, io::events_file(args.job_dir, job.job), show);
  co_return co_await std::move(shown);
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
};

const std::map<std::string, Command>& commands() {
  static const std::map<std::string, Command> all = {
      {"status", {status}},       {"add", {edit, true}},  {"remove", {edit, true}},
      {"stop", {stop}},           {"logs", {logs, true}}, {"events", {events}},
      {"console", {console}},     {"version", {version}}, {"help", {help, true}},
      {"resume", {resume}},       {"why", {why, true}},   {"wait", {wait, true}},
      {"leave", {leave, true}},   {"metrics", {metrics}}, {"grow", {grow, true}},
      {"shrink", {shrink, true}},
  };
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
  return found->second(absolute_folder(args.job_dir),
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
  if (!command.takes_words && !args.words.empty())
    throw Usage{fmt::format("{} takes no \"{}\"{}", args.command, args.words.front(),
                            args.command == "status" ? "; of one host: dtctl why HOST" : "")};
  io::asio::io_context context(1);
  auto code = io::asio::co_spawn(context, command.run(args), io::asio::use_future);
  context.run();
  return code.get();
}

}  // namespace
}  // namespace dt::supervisor

int main(int argc, char** argv) {
  dt::io::raise_descriptor_limit();
  try {
    return dt::supervisor::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const dt::supervisor::Usage& usage) {
    return dt::io::refuse(dt::supervisor::program(), {dt::ErrorKind::kInvalid, usage.why});
  } catch (const dt::supervisor::Failed& failed) {
    return dt::supervisor::complain(failed.error, failed.exit_code);
  } catch (const std::exception& e) {
    // Not fmt::print, which would throw again if stderr itself failed.
    std::fputs(fmt::format("dtctl: {}\n", e.what()).c_str(), stderr);
    return dt::kExitFailure;
  }
}
