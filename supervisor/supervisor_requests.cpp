#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "io/clock.h"
#include "io/job/control_protocol.h"
#include "supervisor/control/request.h"
#include "supervisor/supervisor.h"

namespace dt::supervisor {

using nlohmann::json;

namespace {

constexpr std::uint64_t kMostSlots = 10'000;
/// "changes" is answered by then: figures change that make no event.
constexpr Duration kLongestWait = std::chrono::seconds(1);
/// Of one request; a host_worker with more is refused as well.
constexpr std::uint64_t kMostAdded = 65'536;

std::string error_reply(std::string_view why) {
  return json{{"ok", false}, {"error", why}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

void add_lines(std::string& text, const Host& host, std::uint32_t count) {
  if (!text.empty() && !text.ends_with('\n')) text += '\n';
  text += format_host_worker(std::vector<Host>(count, host));
}

/// Takes a host out of a good host_worker, whose other lines stay as they are; how many workers it
/// had there. A line that names others as well becomes a line for each of their workers.
std::uint32_t remove_host(std::string& text, const Host& host, const std::vector<Host>& known) {
  std::string kept;
  std::uint32_t removed = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const auto hosts = adopt(parse_hosts(line, "host_worker").value(), known);
    const auto names_it = [&host](const HostLine& h) { return h.host == host; };
    if (std::none_of(hosts.begin(), hosts.end(), names_it)) {
      kept += line + "\n";
      continue;
    }
    for (const HostLine& h : hosts) {
      const std::uint32_t count = h.slots.value_or(1);
      if (names_it(h))
        removed += count;
      else
        add_lines(kept, h.host, count);
    }
  }
  text = std::move(kept);
  return removed;
}

std::string ok_reply() { return json{{"ok", true}}.dump(); }

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
      .processes = processes_,
      .term = term_.value,
      .stopping = end_.has_value(),
      .now = journal_room_.job_time(now),
      .pulse_now = now,
      .uptime_s = up,
      .supervisor_s = own,
      .file_refusal = host_worker_->state().refusal(),
      .no_checkpoints = job_->server_group().no_checkpoints(),
      .journal_waits_s = seconds(journal_room_.waited(now)),
      .journal_trouble = journal_room_.is_out() ? journal_room_.why() : store_->shortage(),
      .volume_stalled_s = seconds(volume_.stalled_for()),
      .volume_dropped = volume_.dropped_bytes(),
      .pulse = &pulse_,
      .gpus = {},
      .kept_out = {{"control socket", control_->kept_out()}},
      .reach_command = [this](const Host& host) {
        const auto known = hosts_.find(host);
        return known == hosts_.end() ? std::string() : known->second.reach_command;
      }};
  for (const auto& [host, h] : hosts_) in.kept_out["agent of " + to_string(host)] = h.kept_out;
  for (const auto& [host, h] : hosts_)
    if (std::string doing = backend_->doing(host); !doing.empty())
      in.reaching[to_string(host)] = std::move(doing);
  for (const auto& [host, h] : hosts_)
    if (h.link && h.link->up()) in.gpus[to_string(host)] = &h.gpus;
  return status_json(in);
}

io::awaitable<std::string> Supervisor::answer(std::string request) {
  auto ask = control_ask_from_json(request);
  if (!ask) co_return error_reply(ask.error().message);
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
    co_return json{{"ok", true}, {"changes", number}}.dump();
  }
  if (op == "events") co_return story_->events_json(ask->from);
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
  // One after the other: each reads what the one before has written.
  while (editing_) co_await io::sleep_for(std::chrono::milliseconds(10));
  editing_ = true;
  auto result = co_await rewrite_host_worker(std::move(op), std::move(host), slots);
  editing_ = false;
  if (!result) co_return error_reply(result.error().message);
  host_worker_->nudge();
  json reply{{"ok", true}};
  const std::string why_not = not_open(*job_, spec_, uptime_s());
  if (!why_not.empty()) reply["note"] = why_not;
  co_return reply.dump();
}

io::awaitable<Result<void>> Supervisor::rewrite_host_worker(std::string op, std::string host,
                                                            std::uint32_t slots) {
  auto wanted = parse_hosts(host, "host");
  if (!wanted) co_return tl::unexpected(wanted.error());
  if (wanted->empty()) co_return fail(ErrorKind::kInvalid, "\"{}\" names no host", host);
  auto text = co_await volume_.read(path("host_worker"));
  if (!text) co_return tl::unexpected(text.error());
  auto lines = parse_hosts(text->value_or(""), "host_worker");
  if (!lines) co_return tl::unexpected(lines.error());
  // The list in force is another one: with this one's lines it would lose all that were added.
  if (lines->empty())
    co_return fail(ErrorKind::kInvalid,
                   "{} names no host and is not in force: write the list there that dtctl status "
                   "shows, and try again",
                   path("host_worker"));
  std::string edited = std::move(**text);
  std::uint64_t added = 0;
  for (const HostLine& line : adopt(*wanted, spec_.known_hosts)) {
    if (op == "add") {
      std::uint32_t count = line.slots.value_or(slots);
      // Places whose workers have left by themselves come first: their lines are there.
      const std::uint32_t empty = std::min(count, job_->membership().empty_places(line.host));
      if (empty > 0) post(PlacesAsked{line.host, empty});
      count -= empty;
      if (count == 0) continue;
      added += count;
      if (added > kMostAdded)
        co_return fail(ErrorKind::kInvalid, "\"{}\" asks for more than {} workers", host,
                       kMostAdded);
      add_lines(edited, line.host, count);
      continue;
    }
    const auto base = job_->membership().base_count(line.host);
    const std::uint32_t removed = remove_host(edited, line.host, spec_.known_hosts);
    if (base > 0 && removed <= base)
      co_return fail(ErrorKind::kInvalid, "{} is a host of the initial launch: its workers stay",
                     line.host);
    if (removed == 0) co_return fail(ErrorKind::kInvalid, "{} is not in host_worker", line.host);
    add_lines(edited, line.host, base);
  }
  auto written = co_await volume_.replace(path("host_worker"), std::move(edited));
  co_return written;
}

}  // namespace dt::supervisor
