#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/files/hosts.h"
#include "io/log.h"
#include "supervisor/dtctl/commands.h"
#include "supervisor/dtctl/connection.h"
#include "supervisor/dtctl/file_tail.h"
#include "supervisor/dtctl/job_standing.h"
#include "supervisor/dtctl/metrics_text.h"
#include "supervisor/dtctl/status_text.h"
#include "supervisor/dtctl/why_text.h"

namespace dt::supervisor::ctl {

using namespace std::chrono_literals;
using nlohmann::json;

namespace {

/// The status of a folder in which no job answers, as `status --json` prints it.
std::string no_status(const Arguments& args, const Error& why) {
  json out{{"ok", false}, {"state", "none"}, {"error", why.message}};
  if (const auto job = read_pointer(*args.volume)) {
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

}  // namespace

io::awaitable<int> status(Arguments args) {
  for (;;) {
    auto connected = co_await connect(args);
    if (!connected) co_return complain_of_status(args, connected.error());
    auto reply = co_await ask(*connected, "status");
    if (!reply && reply.error().kind == ErrorKind::kClosed)
      co_return complain_of_status(args, no_answer(args, connected->job));
    if (!reply && reply.error().kind == ErrorKind::kTimeout)
      co_return complain_of_status(args, reply.error());
    const std::string status = need(std::move(reply));
    const std::string text =
        args.json ? screen_json(status) + "\n" : need(status_text(status, args.all));
    const bool is_screen = args.watch && !args.json && ::isatty(STDOUT_FILENO) != 0;
    fmt::print("{}{}", is_screen ? "\x1b[H\x1b[2J" : "", text);
    std::fflush(stdout);
    if (!args.watch) co_return kExitOk;
    co_await io::sleep_for(1s);
  }
}

io::awaitable<int> metrics(Arguments args) {
  const Connected to = need(co_await connect(args), kExitNoJob);
  auto reply = co_await ask(to, "status");
  if (!reply && reply.error().kind == ErrorKind::kClosed)
    throw Failed{no_answer(args, to.job), kExitNoJob};
  const std::string status = need_reply(std::move(reply));
  fmt::print("{}", need(metrics_text(status)));
  co_return kExitOk;
}

io::awaitable<int> why(Arguments args) {
  if (args.words.size() != 1) throw wrong_words(args);
  const auto parsed = need(parse_hosts(args.words[0], "why"), kExitUsage);
  if (parsed.size() != 1) throw wrong_words(args);
  const Connected to = need(co_await connect(args), kExitNoJob);
  const std::string status = need_reply(co_await ask(to, "status"));
  fmt::print("{}", need(why_text(status, parsed.front().host)));
  co_return kExitOk;
}

}  // namespace dt::supervisor::ctl
