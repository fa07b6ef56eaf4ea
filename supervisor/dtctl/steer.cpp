#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "core/files/hosts.h"
#include "io/job/control_protocol.h"
#include "io/job/job_owner.h"
#include "io/job/spec.h"
#include "io/log.h"
#include "launcher/job_programs.h"
#include "launcher/last_job.h"
#include "launcher/shell_word.h"
#include "launcher/supervisor_process.h"
#include "supervisor/dtctl/commands.h"
#include "supervisor/dtctl/connection.h"
#include "supervisor/dtctl/job_standing.h"

namespace dt::supervisor::ctl {

using namespace std::chrono_literals;
using nlohmann::json;

namespace {

/// How an ended job goes on, if the volume tells at once.
void tell_way_on(const Arguments& args, const io::JobPointer& job, int exit_code) {
  const auto spec = io::read_spec(job.state_dir + "/spec.json");
  const bool may_go_on = exit_code == kExitInterrupted || exit_code == kExitHostsGone;
  if (may_go_on && spec && args.volume->answers(1s) && launcher::can_go_on(*spec))
    fmt::print("go on: dtlaunch --resume {}\n", launcher::shell_word(spec->job_dir));
}

/// Waits for JobEnded; shows the console before it if `show`.
io::awaitable<int> watch_console(Arguments args, Connected to, bool show) {
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
    tell_way_on(args, to.job, ended.exit_code);
    co_return kExitOk;
  }
}

/// Restarts a supervisor that died without a dtlaunch to restart it. Its lock keeps a second one
/// from getting ready. Returns the job; with `lives`, whether none was needed.
io::awaitable<io::JobPointer> revive(Arguments args, bool* lives = nullptr) {
  io::JobPointer job = need(find_job(*args.volume), kExitNoJob);
  auto client = co_await io::ControlClient::connect(job.socket);
  if (client) {
    // One that is just being killed still has its socket: only an answer counts.
    const Connected to{job, std::move(*client)};
    auto reply = co_await ask(to, "status");
    const bool answers = reply || reply.error().kind == ErrorKind::kDenied;
    if (lives != nullptr) *lives = answers;
    if (answers) co_return job;
    if (reply.error().kind != ErrorKind::kClosed) throw Failed{reply.error(), kExitNoJob};
  }
  if (job.ended || other_owner(args.job_dir)) throw Failed{no_answer(args, job), kExitNoJob};
  need(io::check_job_owner(args.job_dir, job), kExitFailure);
  const std::string file = job.state_dir + "/spec.json";
  if (::access(file.c_str(), R_OK) != 0) throw Failed{no_answer(args, job), kExitNoJob};
  const io::JobSpec spec = need(io::read_spec(file), kExitNoJob);
  auto started =
      co_await launcher::SupervisorProcess::start(spec, launcher::SupervisorStart::kRevive);
  if (!started) throw Failed{{ErrorKind::kUnavailable, started.error().why}, kExitNoJob};
  fmt::print("The supervisor of job {} had died; it is back (pid {})\n", job.job,
             (*started)->pid());
  if ((*started)->is_of_job()) fmt::print("{}\n", launcher::kOwnPrograms);
  job.pid = (*started)->pid();
  job.socket = (*started)->socket();
  co_return job;
}

/// "dtctl stop by root on pts/3".
std::string by_whom(std::string_view command) {
  std::string who = io::user_name(::getuid());
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

/// What the supervisor says besides, after `before`, or nothing.
std::string note_in(const std::string& reply, std::string_view before) {
  const json answer = json::parse(reply, nullptr, false);
  const std::string note = answer.is_object() ? answer.value("note", "") : "";
  return note.empty() ? "" : fmt::format("{}{}", before, io::printable(note));
}

}  // namespace

io::awaitable<int> console(Arguments args) {
  Connected to = need(co_await connect(args), kExitNoJob);
  need_reply(co_await ask(to, "console"));
  co_return co_await watch_console(args, std::move(to), true);
}

io::awaitable<int> resume(Arguments args) {
  bool lives = false;
  const io::JobPointer job = co_await revive(args, &lives);
  if (lives) fmt::print("The supervisor of job {} lives: there is nothing to do\n", job.job);
  co_return kExitOk;
}

io::awaitable<int> stop(Arguments args) {
  const io::JobPointer job = co_await revive(args);
  Connected follower = need(co_await connect(args, job), kExitNoJob);
  const Connected to = need(co_await connect(args, job), kExitNoJob);
  need_reply(co_await ask(follower, "console"));
  json request{{"force", args.force},
               {"why", by_whom(args.force ? "stop --force" : "stop")},
               {"control", io::kControlVersion}};
  need_reply(co_await ask(to, "stop", std::move(request)));
  co_return co_await watch_console(args, std::move(follower), false);
}

io::awaitable<int> edit(Arguments args) {
  constexpr std::size_t kMostWords = 4;
  if (args.words.empty() || args.words.size() > kMostWords) throw wrong_words(args);
  const std::string line = fmt::format("{}", fmt::join(args.words, " "));
  need(parse_hosts(line, args.command), kExitUsage);
  const Connected to = need(co_await connect(args), kExitNoJob);
  json request{{"host", line}, {"control", io::kControlVersion}};
  const std::string note =
      note_in(need_reply(co_await ask(to, args.command, std::move(request), kEditLimit)), "");
  fmt::print("host_worker was changed; {}\n",
             note.empty() ? "it takes effect at the next epoch" : note);
  co_return kExitOk;
}

io::awaitable<int> replace(Arguments args) {
  if (args.words.size() != 2) throw wrong_words(args);
  for (const std::string& word : args.words) need(parse_hosts(word, args.command), kExitUsage);
  const Connected to = need(co_await connect(args), kExitNoJob);
  json request{{"host", args.words[0]}, {"to", args.words[1]}, {"control", io::kControlVersion}};
  const std::string reply =
      need_reply(co_await ask(to, args.command, std::move(request), kEditLimit));
  fmt::print("{} gets the places of {} at the first epoch for which it is ready{}\n",
             io::printable(args.words[1]), io::printable(args.words[0]), note_in(reply, "; "));
  co_return kExitOk;
}

io::awaitable<int> leave(Arguments args) {
  if (args.words.size() != 1) throw wrong_words(args);
  need(parse_hosts(args.words[0], args.command), kExitUsage);
  const Connected to = need(co_await connect(args), kExitNoJob);
  json request{{"host", args.words[0]},
               {"why", args.why.empty() ? by_whom("leave") : args.why},
               {"cancel", args.cancel},
               {"control", io::kControlVersion}};
  if (args.has_deadline) request["deadline_s"] = seconds(args.in);
  const std::string reply = need_reply(co_await ask(to, args.command, std::move(request)));
  fmt::print("{} {}{}\n", io::printable(args.words[0]), args.cancel ? "stays" : "leaves",
             note_in(reply, ": "));
  co_return kExitOk;
}

}  // namespace dt::supervisor::ctl
