#include <algorithm>

#include "core/job/job.h"
#include "core/job/job_text.h"
#include "core/protocol/exit_code.h"

namespace dt {

namespace {

/// After so many failed tries to reach its host a server is placed on another one.
constexpr std::uint32_t kTries = 3;

}  // namespace

std::optional<Job::Origin> Job::checkpoint_to_use(const Loss& loss) const {
  if (!job_.options.rolls_back || job_.initial() || job_.finishing()) return std::nullopt;
  const bool is_own = loss.is_checkpoint && !servers_inherit_;
  const auto own = is_own ? checkpoints_.newest_but(servers_epoch_) : checkpoints_.newest();
  if (own) return Origin{*own, false};
  const bool is_inherited = loss.is_checkpoint && servers_inherit_;
  if (!job_.options.first_epoch || is_inherited) return std::nullopt;
  return Origin{*job_.options.first_epoch, true};
}

void Job::servers_lost(const Loss& loss) {
  const auto& [why, code, avoid, is_checkpoint] = loss;
  if (job_.ending) return;
  if (job_.options.is_adopted && is_resumed_ && !hosts_.found_an_agent())
    return job_.end(code, why + ", and nothing of the job was found that runs");
  const bool no_such_command = code == kExitCommandFailed;
  const auto origin = checkpoint_to_use(loss);
  if (origin && !no_such_command) return roll_back(loss, *origin);
  const bool could = job_.options.rolls_back && job_.finishing();
  job_.end(code,
           why + (job_.options.opaque_servers ? ""
                  : could ? ": the job is finishing and cannot go back to a checkpoint any more"
                  : is_checkpoint ? ", and no other one is there to go back to"
                                  : " and no checkpoint is there to go back to"));
}

void Job::on(const CheckpointUnusable& e) {
  const auto s = servers_.find(e.server);
  if (s == servers_.end()) return;  // it was replaced meanwhile
  Loss loss;
  loss.why = servers_inherit_
                 ? std::string("the checkpoint that the job began with could not be used")
                 : fmt::format("the checkpoint of epoch {} could not be used", servers_epoch_);
  loss.code = kExitServerLost;
  loss.is_checkpoint = true;
  checkpoint_trouble_ =
      fmt::format("{}: server {} on {}: {}", loss.why, e.server, s->second.host, e.why);
  job_.out.note(Note::Kind::kFailure, "checkpoint_damaged", checkpoint_trouble_, std::nullopt,
                s->second.host);
  servers_lost(loss);
}

void Job::roll_back(const Loss& loss, const Origin& origin) {
  const auto& [why, code, avoid, is_checkpoint] = loss;
  auto hosts = hosts_for_servers(avoid);
  if (!hosts)
    return job_.end(
        kExitServerLost,
        fmt::format("{}; {} cannot have a server, and no other host of the initial launch "
                    "is there to take it",
                    why, *avoid));
  lost_time_.recovery_begins();
  const auto old = servers_;
  RolledBack r;
  r.generation = job_.boundary.generation().next();
  r.epoch = origin.epoch;
  r.is_inherited = origin.is_inherited;
  r.first = next_server_;
  r.servers = std::move(*hosts);
  r.why = why;
  if (is_checkpoint && !servers_inherit_) r.damaged = servers_epoch_;
  job_.out.record(r);
  Note told;
  told.kind = Note::Kind::kFailure;
  told.what = "rolling_back";
  told.text = fmt::format("{}: back to the checkpoint of epoch {}, with new servers", why, r.epoch);
  told.numbers.emplace_back("to_epoch", r.epoch.value);
  job_.out.add(std::move(told));
  // They hold nothing that is wanted any more, and what one has, another may need: its port.
  for (const auto& [id, s] : old)
    if (s.started) job_.out.add(Stop{{Role::kServer, id.value}, s.host, Duration{}});
  for (const ServerId id : server_ids()) {
    if (!hosts_.is_up(servers_.at(id).host)) continue;
    start_server(id);
    tell_commit(id);
  }
}

std::optional<std::vector<Host>> Job::hosts_for_servers(const std::optional<Host>& lost) const {
  std::vector<Host> out;
  for (const auto& [id, s] : servers_) out.push_back(s.host);
  if (!lost || std::find(out.begin(), out.end(), *lost) == out.end()) return out;
  std::vector<Host> living;
  const auto add = [&](const Host& host) {
    const bool is_there = std::find(living.begin(), living.end(), host) != living.end();
    if (!is_there && host != *lost && hosts_.is_heard(host)) living.push_back(host);
  };
  for (const Host& host : server_homes_) add(host);
  for (const Host& host : membership_.hosts())
    if (membership_.base_count(host) > 0) add(host);
  if (living.empty()) return std::nullopt;
  for (Host& host : out) {
    if (host != *lost) continue;
    const auto load = [&out](const Host& h) { return std::count(out.begin(), out.end(), h); };
    host = *std::min_element(living.begin(), living.end(),
                             [&](const Host& a, const Host& b) { return load(a) < load(b); });
  }
  return out;
}

void Job::start_opaque_servers() {
  if (!job_.options.opaque_servers || !hosts_.knows_ports()) return;
  for (const auto& [id, s] : servers_)
    if (!s.started && hosts_.is_up(s.host)) start_server(id);
}

void Job::opaque_server_ended(ServerId id, const ProcessEnded& e) {
  ServerState& s = servers_.at(id);
  s.ended = !e.never_ran && e.status.clean();
  if (s.ended) return;
  job_.end(e.never_ran ? kExitCommandFailed : kExitServerLost,
           fmt::format("server {} on {} ended ({})", id, s.host,
                       e.why.empty() ? to_string(e.status) : e.why));
}

bool Job::awaits_opaque_servers() const {
  if (!job_.options.opaque_servers) return false;
  const bool all_ended =
      std::all_of(servers_.begin(), servers_.end(), [](const auto& s) { return s.second.ended; });
  Time last_worker{};
  for (const auto& [id, w] : membership_.workers()) last_worker = std::max(last_worker, w.since);
  return !all_ended && job_.now() - last_worker < job_.options.stop_grace;
}

void Job::start_server(ServerId id) {
  ServerState& s = servers_.at(id);
  if (job_.options.opaque_servers && !hosts_.knows_ports()) return;  // they are in its environment
  s.started = true;
  StartServer start;
  start.server = id;
  start.host = s.host;
  start.index = s.index;
  if (!servers_inherit_) start.checkpoint = servers_epoch_;
  job_.out.add(std::move(start));
  job_.out.note(Note::Kind::kLaunch, "server_launched",
                fmt::format("Launching server node at ip: {}", s.host.name), std::nullopt, s.host);
}

void Job::reach_server_hosts() {
  if (job_.ending) return;
  for (const auto& [id, s] : servers_) {
    const bool waits = (s.attempts > 0 || job_.initial()) && hosts_.is_cooling(s.host);
    if (!waits) hosts_.reach(s.host);
  }
  if (!job_.options.opaque_servers || hosts_.knows_ports()) return;
  const bool one_waits = std::any_of(servers_.begin(), servers_.end(), [this](const auto& s) {
    return !s.second.started && hosts_.is_up(s.second.host);
  });
  if (one_waits) reach_first_host();
}

void Job::server_start_failed(const Host& host, const std::string& why) {
  if (job_.ending || job_.initial()) return;
  std::uint32_t attempts = 0;
  for (auto& [id, s] : servers_)
    if (s.host == host) attempts = ++s.attempts;
  if (attempts == 0) return;
  if (attempts >= kTries)
    return servers_lost(
        {fmt::format("no server can be started on {}", at_host(host, why)), kExitServerLost, host});
  hosts_.cool(host, attempts);
}

void Job::stop_retired(const Host& host, const std::vector<ProcessReport>& there) {
  std::erase_if(retired_, [&](const auto& one) {
    if (one.second != host) return false;
    const ProcessId process{Role::kServer, one.first.value};
    const auto report = std::find_if(there.begin(), there.end(),
                                     [process](const auto& p) { return p.process == process; });
    if (report == there.end()) return true;
    if (!report->exit) job_.out.add(Stop{process, host, Duration{}});
    return false;
  });
}

}  // namespace dt
