#include "supervisor/dtctl/why_text.h"

#include <algorithm>
#include <vector>

#include "core/base/quantity.h"
#include "core/base/time.h"
#include "io/job/status_fields.h"
#include "supervisor/dtctl/file_tail.h"
#include "supervisor/dtctl/status_text.h"

namespace dt::supervisor {
namespace {

bool is_named(const std::string& written, const Host& wanted) {
  if (written == to_string(wanted)) return true;
  if (!wanted.user.empty() || wanted.port != 0) return false;
  const auto parsed = parse_hosts(written, "host");
  return parsed && parsed->size() == 1 && parsed->front().host.name == wanted.name;
}

/// The host's entry in status.
Result<io::HostStatus> find_host(const io::Status& status, const Host& wanted) {
  std::vector<io::HostStatus> found;
  std::string known;
  for (const io::HostStatus& h : status.hosts) {
    known += (known.empty() ? "" : ", ") + h.host;
    if (is_named(h.host, wanted)) found.push_back(h);
  }
  if (found.size() > 1)
    return fail(ErrorKind::kInvalid, "{} is the name of several hosts: {}", wanted, known);
  if (found.empty())
    return fail(ErrorKind::kInvalid, "the job knows no host {}: {}. It knows {}", wanted,
                status.elastic.value_or(true)
                    ? "either its line was not accepted yet (dtctl status says why), or it was "
                      "removed"
                    : "it was started without --elastic-training-enabled, and nothing joins it",
                known.empty() ? "none" : known);
  return found.front();
}

/// How to make the failed check pass.
std::string advice(const io::HostStatus& host) {
  const std::string& check = host.check;
  if (check == "reach") {
    const std::string command = host.reach_command.value_or("");
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
        host.host);
  if (check == "start")
    return "To pass: the command has to come to its first epoch boundary there, within "
           "--start-timeout. Its whole output: dtctl logs WORKER";
  if (check == "run")
    return "To pass: its worker has to live. The last one's output: dtctl logs WORKER";
  return "";
}

/// The state of the host itself.
std::string host_state(const io::HostStatus& host) {
  const auto& [link, life] = std::tie(host.link, host.life);
  if (link == "attaching") return "it is being reached";
  if (link == "none")
    return host.check == "reach" && !host.why.empty() ? "it could not be reached"
                                                      : "no agent of this job is there";
  const std::string silent = life == "suspect" ? ", which is silent"
                             : life == "lost"  ? ", which has been silent so long that it is lost"
                                               : "";
  return (link == "up" ? "connected to its agent" : "cut off from its agent") + silent;
}

std::string next_step(const io::HostStatus& host, bool is_base) {
  if (host.given_up)
    return fmt::format(
        "It is given up: it has used up --max-restarts. {}\n",
        is_base ? fmt::format("Another host can have its places: dtctl replace {} NEW", host.host)
                : "Remove its line from host_worker and add it again to try afresh.");
  if (!host.cooling_until_s) return "";
  return fmt::format("Next try: number {}, in {:.1f} s.\n", host.attempts.value_or(0) + 1,
                     *host.cooling_until_s);
}

std::string worker_line(const io::WorkerStatus& worker) {
  const std::string& state = worker.state;
  const std::string what =
      state == "SEEN"        ? "waits for the next try of its host"
      : state == "PREPARING" ? "its host is being reached, or its check runs or is waited for"
      : state == "STARTING"  ? "its process was started and has not come to an epoch boundary"
      : state == "WARM"      ? "ready: it joins at the next epoch boundary"
      : state == "MEMBER"    ? "a member"
      : state == "LEAVING"   ? "leaves at the next epoch, or has been released"
                             : "being stopped";
  std::string line = fmt::format("worker {}: {} ({})", worker.id.value_or(0), state, what);
  if (!worker.why.empty()) line += "; " + worker.why;
  if (const std::string slow = worker.slowest.value_or(""); !slow.empty()) line += "; " + slow;
  if (const std::string stall = stall_text(worker, 3); !stall.empty()) line += "; " + stall;
  if (worker.waits)
    line += fmt::format("; it waits {}, and all others wait, too ({})", worker.waits->text,
                        duration_text(worker.waits->for_s.value_or(0)));
  return line + "\n";
}

}  // namespace

Result<std::string> why_text(std::string_view status_json, const Host& wanted) {
  const auto status = io::status_from(status_json);
  if (!status) return tl::unexpected(status.error());
  const auto found = find_host(*status, wanted);
  if (!found) return tl::unexpected(found.error());
  const io::HostStatus& host = *found;
  const std::uint64_t count = host.wanted.value_or(0);
  const std::uint64_t beyond = host.beyond_limit.value_or(0);
  const std::uint64_t empty = host.empty_places.value_or(0);
  std::string out =
      fmt::format("{}: {} wanted, {}\n", host.host, count_text(count, "worker"), host_state(host));
  if (beyond > 0)
    out += fmt::format(
        "{} more that host_worker asks for is beyond --max-workers {}: hosts that the file "
        "names first come first. It starts when others go.\n",
        beyond, status->max_workers.value_or(0));
  if (const auto& leaving = host.leaving) {
    const std::string when =
        leaving->in_s ? fmt::format("it goes away in {}, ", duration_text(*leaving->in_s)) : "";
    out += fmt::format("LEAVING: {}{} ({}). It stays by: dtctl leave {} --cancel\n", when,
                       leaving->text, leaving->why, host.host);
  } else if (empty > 0) {
    out += fmt::format("empty: {}. To fill: dtctl add {}\n", count_text(empty, "place"), host.host);
  } else if (count == 0 && beyond == 0) {
    out += "host_worker does not ask for it: it is let go.\n";
  }
  std::size_t there = 0;
  for (const io::WorkerStatus& worker : status->workers) {
    if (worker.host != host.host) continue;
    ++there;
    out += worker_line(worker);
  }
  if (!host.why.empty()) out += fmt::format("Last failure: {}\n", host.why);
  if (!host.last_death.empty() && host.last_death != host.why)
    out += fmt::format("Started again since {}: {}\n", host.last_death,
                       count_text(host.restarts.value_or(0), "restart"));
  out += next_step(host, std::ranges::count(status->file.base, host.host) > 0);
  const std::string hint = advice(host);
  if (!host.why.empty() && !hint.empty()) out += hint + "\n";
  if (there < count && host.why.empty())
    out += status->not_open.empty() ? "Its worker is about to be started.\n"
                                    : status->not_open + ".\n";
  if (!status->waiting.empty())
    out += (restarts_group(*status) ? "" : "The next boundary waits: ") + status->waiting + "\n";
  return screen_text(out);
}

}  // namespace dt::supervisor
