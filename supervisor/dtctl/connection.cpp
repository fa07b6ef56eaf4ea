#include "supervisor/dtctl/connection.h"

#include "io/job/spec.h"
#include "supervisor/dtctl/file_tail.h"
#include "supervisor/dtctl/job_standing.h"

namespace dt::supervisor::ctl {

using nlohmann::json;

namespace {

Error no_reply(const io::JobPointer& job, Duration limit) {
  const std::string pid = job.pid != 0 ? fmt::to_string(job.pid) : "unknown: the volume stalls";
  return {ErrorKind::kTimeout,
          fmt::format("the supervisor of job {} (pid {}) does not answer within {:.0f} s: if it is "
                      "stopped, kill -CONT lets it go on; if it hangs, kill -KILL ends it, and "
                      "\"dtctl resume\" takes the job up again",
                      job.job, pid, seconds(limit))};
}

}  // namespace

int complain(const Error& error, int code) {
  fmt::print(stderr, "dtctl: {}\n", screen_text(error.message));
  return code;
}

Error no_answer(const Arguments& args, const io::JobPointer& job) {
  if (auto refusal = not_ours(args.job_dir, job)) return std::move(*refusal);
  if (job.ended)
    return {ErrorKind::kUnavailable,
            fmt::format("no job is running in {}; the last one, {}, ended with exit code {} ({})",
                        args.job_dir, job.job, job.ended->exit_code, job.ended->message)};
  const std::string what =
      fmt::format("job {} in {} has not ended, but its supervisor (pid {} on {})", job.job,
                  args.job_dir, job.pid, job.master);
  constexpr const char* kRemedy =
      "\"dtctl resume\" takes the job up again, and what runs goes on; \"dtctl stop\" ends it; "
      "without either the hosts stop everything by themselves";
  const auto spec = io::read_spec(job.state_dir + "/spec.json");
  if (spec && look_at_job(job.job).standing == Standing::kLeft)
    return {ErrorKind::kUnavailable,
            fmt::format("{} is dead. {} {:.0f} s after its death (--orphan-timeout)", what, kRemedy,
                        seconds(spec->rules.orphan_timeout))};
  return {
      ErrorKind::kUnavailable,
      fmt::format("{} does not answer. On another machine: use dtctl there. If it died: {} after "
                  "--orphan-timeout",
                  what, kRemedy)};
}

io::awaitable<Result<Connected>> connect(Arguments args) {
  auto job = find_job(*args.volume);
  if (!job) co_return tl::unexpected(job.error());
  co_return co_await connect(std::move(args), std::move(*job));
}

io::awaitable<Result<Connected>> connect(Arguments args, io::JobPointer job) {
  if (job.ended) co_return tl::unexpected(no_answer(args, job));
  auto client = co_await io::ControlClient::connect(job.socket);
  if (!client) co_return tl::unexpected(no_answer(args, job));
  Connected connected{std::move(job), std::move(*client)};
  co_return std::move(connected);
}

io::awaitable<Result<std::string>> ask(const Connected& to, std::string op, json request,
                                       Duration limit) {
  request["op"] = std::move(op);
  auto reply = co_await to.client->ask(request.dump(), limit);
  if (!reply && reply.error().kind == ErrorKind::kTimeout)
    co_return tl::unexpected(no_reply(to.job, limit));
  if (!reply) co_return reply;
  const json answer = json::parse(*reply, nullptr, false);
  if (answer.is_object() && answer.value("ok", true) == false)
    co_return fail(ErrorKind::kDenied, "{}", answer.value("error", "the supervisor refused"));
  co_return reply;
}

std::string need_reply(Result<std::string> reply) {
  const bool is_late = !reply && reply.error().kind == ErrorKind::kTimeout;
  return need(std::move(reply), is_late ? kExitNoJob : kExitFailure);
}

}  // namespace dt::supervisor::ctl
