#include "supervisor/hosts/prepare_runs.h"

#include <algorithm>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <chrono>
#include <utility>

#include "io/last_words.h"
#include "supervisor/hosts/host_gate.h"
#include "supervisor/hosts/links.h"
#include "supervisor/hosts/process_facts.h"
#include "supervisor/volume/output.h"
#include "supervisor/volume/volume_client.h"

namespace dt::supervisor {

using io::awaitable;

namespace {

/// Output kept of a data check, to report why it failed.
constexpr std::size_t kTail = 2000;
constexpr std::size_t kWords = 300;  ///< Of it, in the reason.

}  // namespace

void PrepareRuns::forget(const Host& host) {
  for (auto& [id, run] : runs_) {
    if (run.host != host) continue;
    run.forgotten = true;
    run.ended->cancel();
  }
}

void PrepareRuns::admitted(const Host& host, const std::vector<ProcessReport>& there) {
  // A data check whose start got lost with the link, or that died with its agent.
  const bool lost = std::ranges::any_of(runs_, [&](const auto& entry) {
    const auto& [id, run] = entry;
    const ProcessId process{Role::kPrepare, id};
    return run.host == host && run.is_started && !run.forgotten && !run.exit &&
           std::ranges::count(there, process, &ProcessReport::process) == 0;
  });
  if (!lost) return;
  forget(host);
  context_.post(PrepareEnded{host, false, "the agent does not know of it"});
}

void PrepareRuns::output(ProcessId process, std::string_view bytes) {
  const auto run = runs_.find(process.id);
  if (run == runs_.end()) return;
  std::string& tail = run->second.tail;
  tail += bytes;
  if (tail.size() > kTail) tail.erase(0, tail.size() - kTail);
}

void PrepareRuns::ended(ProcessId process, ExitStatus status, std::string why, bool never_ran) {
  const auto run = runs_.find(process.id);
  if (run == runs_.end()) return;
  if (never_ran)
    run->second.failed = std::move(why);
  else
    run->second.exit = status;
  run->second.ended->cancel();
}

awaitable<void> PrepareRuns::run(Host host) {
  const io::JobSpec& spec = context_.spec;
  const std::string mark = context_.path("prepare_data_success_" + links_.at(host).address);
  const std::uint32_t id = next_id();
  take_id();
  Run& run = runs_[id];
  run.host = host;
  run.ended = std::make_unique<io::asio::steady_timer>(context_.executor,
                                                       io::asio::steady_timer::time_point::max());
  const bool has_passed = co_await enter(id);
  if (has_passed && !spec.prepare_data.empty()) co_return co_await prepare(id, mark);
  runs_.erase(id);
  if (!has_passed) co_return;
  if (spec.require_prepared)
    co_await wait_for(std::move(host), mark);
  else
    context_.post(PrepareEnded{host, true, ""});
}

awaitable<bool> PrepareRuns::enter(std::uint32_t id) {
  using namespace io::asio::experimental::awaitable_operators;
  Run& run = runs_.at(id);
  const Host host = run.host;
  if (!gate_.is_for(host)) co_return true;
  context_.note(Note::kInfo, "preflight", fmt::format("{}: it is checked (--preflight)", host),
                host);
  auto race = gate_.pass(host) || run.ended->async_wait(io::tok);
  const auto first = co_await std::move(race);
  if (run.forgotten || first.index() == 1) co_return false;
  const launcher::GateReply& reply = std::get<0>(first);
  for (const std::string& warning : reply.warnings)
    context_.note(Note::kInfo, "preflight_warning", fmt::format("{}: {}", host, warning), host);
  if (reply.failed.empty()) co_return true;
  context_.post(PrepareEnded{host, false, fmt::format("{}", fmt::join(reply.failed, "; ")), true});
  co_return false;
}

awaitable<void> PrepareRuns::prepare(std::uint32_t id, std::string mark) {
  Run& run = runs_.at(id);
  const Host host = run.host;
  run.ended->expires_after(context_.spec.prepare_timeout);
  run.is_started = true;
  start(host, {Role::kPrepare, id});
  auto [ec] = co_await run.ended->async_wait(io::tok);
  if (run.forgotten) {
    output_.close({Role::kPrepare, id});
    runs_.erase(id);
    co_return;
  }
  PrepareEnded result = co_await result_of(host, id, mark, !ec);
  links_.send(host, AckExit{{Role::kPrepare, id}});
  runs_.erase(id);
  context_.post(std::move(result));
}

awaitable<void> PrepareRuns::wait_for(Host host, std::string mark) {
  const auto& trusted = context_.spec.workers;
  const bool is_base = std::ranges::find(trusted, host) != trusted.end();
  for (;;) {
    auto there = co_await context_.volume.exists(mark);
    if (is_base || (there && *there)) break;
    if (!links_.at(host).is_kept())
      co_return context_.post(PrepareEnded{host, false, "no longer wanted"});
    if (waits_noted_.insert(host).second)
      context_.note(Note::kInfo, "prepare_waits", fmt::format("{} waits for {}", host, mark), host);
    co_await io::sleep_for(std::chrono::seconds(1));
  }
  context_.post(PrepareEnded{host, true, ""});
}

void PrepareRuns::start(const Host& host, ProcessId process) {
  const auto facts = process_facts(context_, links_, process, host);
  output_.open(process, host);
  links_.send(host, StartProcess{.process = process,
                                 .argv = {"/bin/sh", "-c", context_.spec.prepare_data},
                                 .env = launcher::environment(context_.spec, facts),
                                 .cwd = context_.folder()});
  context_.note(Note::kInfo, "preparing", fmt::format("{}: prepare-data runs", host), host);
}

awaitable<PrepareEnded> PrepareRuns::result_of(Host host, std::uint32_t id, std::string mark,
                                               bool is_timeout) {
  const Run& run = runs_.at(id);
  PrepareEnded result{host, false, run.failed};
  if (run.exit && run.exit->clean()) {
    auto marked = co_await context_.volume.write_new(mark, "");
    result.ok = marked.has_value();
    if (!marked) result.why = marked.error().message;
  } else if (run.exit) {
    result.why = to_string(*run.exit);
  } else if (is_timeout) {
    links_.send(host, StopProcess{{Role::kPrepare, id}, 0});
    result.why = fmt::format("not done within {:.0f} s (--prepare-timeout)",
                             seconds(context_.spec.prepare_timeout));
  }
  const std::string words = io::on_one_line(run.tail, kWords);
  if (!result.ok && !words.empty()) result.why += ": " + words;
  co_return result;
}

}  // namespace dt::supervisor
