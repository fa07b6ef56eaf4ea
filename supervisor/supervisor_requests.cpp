#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "io/clock.h"
#include "io/job/control_protocol.h"
#include "supervisor/control/request.h"
#include "supervisor/supervisor.h"

namespace dt::supervisor {

namespace {

constexpr std::uint64_t kMostSlots = 10'000;
/// "changes" is answered by then: figures change that make no event.
constexpr Duration kLongestWait = std::chrono::seconds(1);
std::string error_reply(std::string_view why) {
  return nlohmann::json{{"ok", false}, {"error", why}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string ok_reply() { return nlohmann::json{{"ok", true}}.dump(); }

}  // namespace

double Supervisor::uptime_s() const { return seconds(io::steady_now() - started_); }

std::string Supervisor::status() const {
  const Time now = io::steady_now();
  const double own = seconds(now - started_);
  const auto began = io::job_began(spec_.job);
  const double up =
      began ? std::max(own, static_cast<double>(io::wall_now()) / 1e9 - static_cast<double>(*began))
            : own;
  StatusInput in{
      .spec = spec_,
      .job = *job_,
      .processes = reports_->processes(),
      .term = term_.value,
      .stopping = end_.has_value(),
      .now = journal_room_.job_time(now),
      .pulse_now = now,
      .uptime_s = up,
      .supervisor_s = own,
      .file_refusal = host_worker_->state().refusal(),
      .no_checkpoints = job_->server_group().no_checkpoints(),
      .journal_waits_s = seconds(journal_room_.waited(now)),
      .journal_trouble = journal_room_.is_out() ? journal_room_.why() : files_.journal().shortage(),
      .volume_stalled_s = seconds(volume_.stalled_for()),
      .volume_dropped = volume_.dropped_bytes(),
      .pulse = &pulse_,
      .gpus = {},
      .kept_out = {{"control socket", control_.kept_out()}},
      .reach_command = [this](const Host& host) { return links_.at(host).reach_command; }};
  for (const auto& [host, link] : links_.all()) {
    const std::string name = to_string(host);
    if (std::string doing = backend_->doing(host); !doing.empty())
      in.reaching[name] = std::move(doing);
    const auto notes = reports_->hosts().find(host);
    if (notes == reports_->hosts().end()) continue;
    in.kept_out["agent of " + name] = notes->second.kept_out;
    if (link.link && link.link->up()) in.gpus[name] = &notes->second.gpus;
  }
  return status_json(in);
}

io::awaitable<std::string> Supervisor::answer(std::string request) {
  auto ask = control_ask_from_json(request);
  if (!ask) co_return error_reply(ask.error().message);
  if (const std::string why = ask->version_conflict(); !why.empty()) co_return error_reply(why);
  const std::string op = ask->op;
  if (op == "stop") {
    if (ask->force)
      kill(ask->why);
    else
      stop(ask->why);
    co_return ok_reply();
  }
  if (!job_) co_return error_reply("the supervisor is starting: try again");
  if (op == "status") co_return status();
  if (op == "changes") {
    const std::uint64_t number = co_await changes_.after(ask->from, kLongestWait);
    co_return nlohmann::json{{"ok", true}, {"changes", number}}.dump();
  }
  if (op == "events") co_return event_log_.events_json(ask->from);
  if (op == "add" || op == "remove") {
    if (!ask->host) co_return error_reply("\"host\" is missing");
    if (ask->slots < 1 || ask->slots > kMostSlots)
      co_return error_reply(fmt::format("\"slots\" is from 1 to {}", kMostSlots));
    auto edited =
        edit_host_worker(op, std::move(*ask->host), static_cast<std::uint32_t>(ask->slots));
    co_return co_await std::move(edited);
  }
  co_return error_reply(fmt::format("unknown request \"{}\"", op));
}

io::awaitable<std::string> Supervisor::edit_host_worker(std::string op, std::string host,
                                                        std::uint32_t slots) {
  if (!spec_.elastic)
    co_return error_reply(
        "the job was started without --elastic-training-enabled: it has no host_worker, nothing "
        "joins it and nothing leaves it");
  auto result = co_await editor_->edit(std::move(op), std::move(host), slots);
  if (!result) co_return error_reply(result.error().message);
  host_worker_->nudge();
  nlohmann::json reply{{"ok", true}};
  const std::string why_not = not_open(*job_, spec_, uptime_s());
  if (!why_not.empty()) reply["note"] = why_not;
  co_return reply.dump();
}

}  // namespace dt::supervisor
