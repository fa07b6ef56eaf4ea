#include "supervisor/dtctl/why_text.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "core/base/quantity.h"
#include "supervisor/dtctl/file_tail.h"
#include "supervisor/dtctl/status_items.h"

namespace dt::supervisor {
namespace {

using nlohmann::json;

std::string text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool is_named(const std::string& written, const Host& wanted) {
  if (written == to_string(wanted)) return true;
  if (!wanted.user.empty() || wanted.port != 0) return false;
  const auto parsed = parse_hosts(written, "host");
  return parsed && parsed->size() == 1 && parsed->front().host.name == wanted.name;
}

/// The host's entry in status.
Result<json> find_host(const json& status, const Host& wanted) {
  std::vector<json> found;
  std::string known;
  for (json& h : items(status, "hosts")) {
    known += (known.empty() ? "" : ", ") + text(h, "host");
    if (is_named(text(h, "host"), wanted)) found.push_back(std::move(h));
  }
  if (found.size() > 1)
    return fail(ErrorKind::kInvalid, "{} is the name of several hosts: {}", wanted, known);
  if (found.empty())
    return fail(ErrorKind::kInvalid, "the job knows no host {}: {}. It knows {}", wanted,
                status.value("elastic", true)
                    ? "either its line was not accepted yet (dtctl status says why), or it was "
                      "removed"
                    : "it was started without --elastic-training-enabled, and nothing joins it",
                known.empty() ? "none" : known);
  return found.front();
}

/// How to make the failed check pass.
std::string advice(const json& entry) {
  const std::string check = text(entry, "check");
  const std::string host = text(entry, "host");
  if (check == "reach") {
    const std::string command = text(entry, "reach_command");
    return "To pass: this machine has to reach it and start an agent there." +
           (command.empty() ? "" : " Try what dtlaunch does:\n  " + command);
  }
  if (check == "preflight")
    return "To pass: mend what is named above. It is tried again by itself; at once when its line "
           "is removed from host_worker and added again. The same by hand: dtlaunch --check quick "
           "-H FILE";
  if (check == "prepare")
    return fmt::format(
        "To pass: --prepare-data has to exit with 0 there. Its whole output: dtctl logs "
        "prepare-{}",
        host);
  if (check == "start")
    return "To pass: the command has to come to its first epoch boundary there, within "
           "--start-timeout. Its whole output: dtctl logs WORKER";
  if (check == "run")
    return "To pass: its worker has to live. The last one's output: dtctl logs WORKER";
  return "";
}

/// The state of the host itself.
std::string host_state(const json& host) {
  const std::string link = text(host, "link");
  if (link == "attaching") return "it is being reached";
  if (link == "none")
    return text(host, "check") == "reach" && !text(host, "why").empty()
               ? "it could not be reached"
               : "no agent of this job is there";
  const std::string life = text(host, "life");
  const std::string silent = life == "suspect" ? ", which is silent"
                             : life == "lost"  ? ", which has been silent so long that it is lost"
                                               : "";
  return (link == "up" ? "connected to its agent" : "cut off from its agent") + silent;
}

std::string next_step(const json& host) {
  const auto cooling = host.find("cooling_until_s");
  if (host.value("given_up", false))
    return "It is given up: it has used up --max-restarts. Remove its line from host_worker and "
           "add it again to try afresh.\n";
  if (cooling != host.end() && cooling->is_number())
    return fmt::format("Next try: number {:.0f}, in {:.1f} s.\n", number(host, "attempts") + 1,
                       cooling->get<double>());
  return "";
}

std::string worker_line(const json& worker) {
  const std::string state = text(worker, "state");
  const std::string what =
      state == "SEEN"        ? "waits for the next try of its host"
      : state == "PREPARING" ? "its host is being reached, or its check runs or is waited for"
      : state == "STARTING"  ? "its process was started and has not come to an epoch boundary"
      : state == "WARM"      ? "ready: it joins at the next epoch boundary"
      : state == "MEMBER"    ? "a member"
      : state == "LEAVING"   ? "leaves at the next epoch, or has been released"
                             : "being stopped";
  std::string line = fmt::format("worker {:.0f}: {} ({})", number(worker, "id"), state, what);
  if (const std::string why = text(worker, "why"); !why.empty()) line += "; " + why;
  if (const std::string slowest = text(worker, "slowest"); !slowest.empty()) line += "; " + slowest;
  if (const std::string stall = stall_text(worker, 3); !stall.empty()) line += "; " + stall;
  if (const auto waits = worker.find("waits"); waits != worker.end() && waits->is_object())
    line += fmt::format("; it waits {}, and all others wait, too ({})", text(*waits, "text"),
                        duration_text(number(*waits, "for_s")));
  return line + "\n";
}

}  // namespace

Result<std::string> why_text(std::string_view status_json, const Host& wanted) {
  const json status = json::parse(status_json, nullptr, false);
  if (!status.is_object()) return fail(ErrorKind::kProtocol, "the supervisor's status is no JSON");
  const auto host = find_host(status, wanted);
  if (!host) return tl::unexpected(host.error());
  const std::string name = text(*host, "host");
  const double count = number(*host, "wanted");
  std::string out =
      fmt::format("{}: {} wanted, {}\n", name,
                  count_text(static_cast<std::uint64_t>(count), "worker"), host_state(*host));
  const double beyond = number(*host, "beyond_limit");
  if (beyond > 0)
    out += fmt::format(
        "{:.0f} more that host_worker asks for is beyond --max-workers {:.0f}: hosts that the file "
        "names first come first. It starts when others go.\n",
        beyond, number(status, "max_workers"));
  if (const auto leaving = host->find("leaving"); leaving != host->end() && leaving->is_object()) {
    const bool has_deadline = leaving->contains("in_s") && leaving->at("in_s").is_number();
    const std::string when =
        has_deadline ? fmt::format("it goes away in {}, ", duration_text(number(*leaving, "in_s")))
                     : "";
    out += fmt::format("LEAVING: {}{} ({}). It stays by: dtctl leave {} --cancel\n", when,
                       text(*leaving, "text"), text(*leaving, "why"), name);
  } else if (number(*host, "empty_places") > 0) {
    out += fmt::format(
        "empty: {}. To fill: dtctl add {}\n",
        count_text(static_cast<std::uint64_t>(number(*host, "empty_places")), "place"), name);
  } else if (count == 0 && beyond == 0) {
    out += "host_worker does not ask for it: it is let go.\n";
  }
  std::size_t there = 0;
  for (const json& worker : items(status, "workers")) {
    if (text(worker, "host") != name) continue;
    ++there;
    out += worker_line(worker);
  }
  const std::string why = text(*host, "why");
  const std::string not_open = text(status, "not_open");
  if (!why.empty()) out += fmt::format("Last failure: {}\n", why);
  if (const std::string death = text(*host, "last_death"); !death.empty() && death != why)
    out +=
        fmt::format("Started again since {}: {}\n", death,
                    count_text(static_cast<std::uint64_t>(number(*host, "restarts")), "restart"));
  out += next_step(*host);
  const std::string hint = advice(*host);
  if (!why.empty() && !hint.empty()) out += hint + "\n";
  if (static_cast<double>(there) < count && why.empty())
    out += not_open.empty() ? "Its worker is about to be started.\n" : not_open + ".\n";
  const std::string waiting = text(status, "waiting");
  if (!waiting.empty())
    out += (restarts_group(status) ? "" : "The next boundary waits: ") + waiting + "\n";
  return screen_text(out);
}

}  // namespace dt::supervisor
