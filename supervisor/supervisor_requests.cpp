#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "io/control.h"
#include "supervisor/supervisor.h"

namespace dt::supervisor {

using nlohmann::json;

namespace {

constexpr std::uint64_t kMostSlots = 10'000;

std::string error_reply(std::string_view why) {
  return json{{"ok", false}, {"error", why}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// What another type than the expected one says is not an exception's business.
bool flag(const json& ask, const char* name) { return ask.value(name, json()) == true; }
std::uint64_t number(const json& ask, const char* name, std::uint64_t otherwise) {
  const json value = ask.value(name, json());
  return value.is_number_unsigned() ? value.get<std::uint64_t>() : otherwise;
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

std::string Supervisor::status() const {
  const Time now = steady_now();
  const StatusInput in{
      .spec = spec_,
      .job = *job_,
      .processes = processes_,
      .term = term_.value,
      .stopping = end_.has_value(),
      .now = now,
      .uptime_s = std::chrono::duration<double>(now - started_).count(),
      .file_refusal = host_worker_->state().refusal(),
      .volume_stalled_s = std::chrono::duration<double>(volume_.stalled_for()).count(),
      .volume_dropped = volume_.dropped_bytes()};
  return status_json(in);
}

io::awaitable<std::string> Supervisor::answer(std::string request) {
  const json ask = json::parse(request, nullptr, false);
  if (!ask.is_object() || !ask.contains("op") || !ask["op"].is_string())
    co_return error_reply("a request is a JSON object with a text \"op\"");
  const std::string op = ask["op"];
  if (op == "stop") {
    if (flag(ask, "force"))
      kill("on request");
    else
      stop("on request");
    co_return ok_reply();
  }
  if (!job_) co_return error_reply("the supervisor is starting: try again");
  if (op == "status") co_return status();
  if (op == "events") co_return story_->events_json(number(ask, "from", 0));
  if (op == "add" || op == "remove") {
    const json& host = ask.contains("host") ? ask["host"] : json();
    if (!host.is_string()) co_return error_reply("\"host\" is missing");
    std::string name = host.get<std::string>();
    const std::uint64_t slots = number(ask, "slots", 1);
    if (slots < 1 || slots > kMostSlots)
      co_return error_reply(fmt::format("\"slots\" is from 1 to {}", kMostSlots));
    auto edited = edit_host_worker(op, std::move(name), static_cast<std::uint32_t>(slots));
    co_return co_await std::move(edited);
  }
  co_return error_reply(fmt::format("unknown request \"{}\"", op));
}

io::awaitable<std::string> Supervisor::edit_host_worker(std::string op, std::string host,
                                                        std::uint32_t slots) {
  if (!spec_.elastic)
    co_return error_reply("the job was started without --elastic-training-enabled");
  // One after the other: each reads what the one before has written.
  while (editing_) co_await io::sleep_for(std::chrono::milliseconds(10));
  editing_ = true;
  auto result = co_await rewrite_host_worker(std::move(op), std::move(host), slots);
  editing_ = false;
  if (!result) co_return error_reply(result.error().message);
  host_worker_->nudge();
  co_return ok_reply();
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
  for (const HostLine& line : adopt(*wanted, spec_.known_hosts)) {
    if (op == "add") {
      add_lines(edited, line.host, line.slots.value_or(slots));
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
