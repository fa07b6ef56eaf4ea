#include "core/job/server_group.h"

#include <utility>

#include "core/protocol/exit_code.h"

namespace dt {
namespace {

/// After so many failed tries to reach its host a server is placed on another one.
constexpr std::uint32_t kTries = 3;

std::string how_it_ended(ServerId id, const Host& host, const ProcessEnded& e) {
  return fmt::format("server {} on {} ended ({})", id, host, e.reason());
}

}  // namespace

void ServerGroup::replayed() {
  for (auto& [id, s] : servers_) s.started = hosts_.row(s.host).has_agent();
}

// ---------------------------------------------------------------- events

void ServerGroup::attached(const Host& host, const std::vector<ProcessReport>& there) {
  for (const ServerId id : on(host)) {
    ServerState& s = servers_.at(id);
    const ProcessId process{Role::kServer, id.value};
    const bool runs = std::ranges::count(there, process, &ProcessReport::process) > 0;
    s.started = s.started || runs;
    if (!runs) start(id);
    tell_commit(id);
  }
  if (job_.options.opaque_servers) start_waiting();
  stop_retired(host, there);
}

bool ServerGroup::listening(const FromServer<ServerReady>& e) {
  ServerState* s = find_in(servers_, e.server);
  if (!s) return false;
  s->started = true;
  if (s->address == e.message.address && s->port == e.message.port) return false;
  listening_ += !e.message.address.empty();
  listening_ -= !s->address.empty();
  s->address = e.message.address;
  s->port = e.message.port;
  return all_listen();
}

void ServerGroup::acked(const FromServer<CommitAck>& e) {
  if (!has(e.server)) return;
  job_.boundary.acked(e.server, e.message.generation);
  watch_.acked(e.server);
}

void ServerGroup::data_seen(const FromWorker<ServersHeard>& e) {
  for (const ServerId id : e.message.servers)
    if (has(id)) watch_.data_seen(id, job_.now());
}

void ServerGroup::ended(const ProcessEnded& e) {
  const ServerId id(e.process.id);
  if (const ServerState* s = find_in(servers_, id)) {
    const Host host = s->host;
    job_.note(Note::kMeasure, "server_ended",
              fmt::format("server {} on {}: {}", id, host, e.reason()), host, {},
              {{"code", e.status.shell_code()}});
    if (job_.options.opaque_servers)
      opaque_ended(id, e);
    else if (!job_.ending && e.status.code == kExitNoServerDevice)
      // A new server on this host would lack it, too.
      job_.end(
          kExitNoServerDevice,
          fmt::format("server {} on {} cannot use the device that --server-device asks for{}{}", id,
                      host, e.why.empty() ? "" : ": ", e.why));
    else
      lost({how_it_ended(id, host, e), e.never_ran ? kExitCommandFailed : kExitServerLost});
  }
  const auto was = retired_.find(id);
  if (job_.ending || was == retired_.end()) return;
  job_.add(Acknowledge{e.process, was->second});
  retired_.erase(was);
}

void ServerGroup::opaque_ended(ServerId id, const ProcessEnded& e) {
  ServerState& s = servers_.at(id);
  s.ended = !e.never_ran && e.status.clean();
  if (!s.ended)
    job_.end(e.never_ran ? kExitCommandFailed : kExitServerLost, how_it_ended(id, s.host, e));
}

void ServerGroup::saved(const FromServer<Saved>& e) {
  if (has(e.server)) checkpoints_.saved(e, servers_.at(e.server).host, servers_.size());
}

void ServerGroup::checkpoint_unusable(const FromServer<GivingUp>& e) {
  const ServerState* s = find_in(servers_, e.server);
  if (!s) return;  // it was replaced meanwhile
  const Loss loss{
      .why = inherits_ ? std::string("the checkpoint that the job began with could not be used")
                       : fmt::format("the checkpoint of epoch {} could not be used", epoch_),
      .code = kExitServerLost,
      .is_checkpoint = true};
  checkpoints_.damaged(
      fmt::format("{}: server {} on {}: {}", loss.why, e.server, s->host, e.message.why), s->host);
  lost(loss);
}

void ServerGroup::host_failed(const Host& host, const std::string& why) {
  if (job_.ending || job_.initial()) return;
  std::uint32_t attempts = 0;
  for (const ServerId id : on(host)) attempts = ++servers_.at(id).attempts;
  if (attempts == 0) return;
  if (attempts >= kTries)
    return lost({fmt::format("no server can be started on {}", at_host(host, why)),
                 kExitServerLost,
                 {host}});
  hosts_.cool(host, attempts);
}

void ServerGroup::host_lost(const Host& host, const std::string& why,
                            const std::set<Host>& unreachable) {
  const auto& there = on(host);
  const auto lost_one = std::ranges::find_if(
      there, [&](ServerId id) { return servers_.at(id).started || unreachable.contains(host); });
  if (lost_one == there.end()) return;
  lost({fmt::format("server {} is lost with its host {}: {}", *lost_one, host, why),
        kExitServerLost, unreachable});
}

void ServerGroup::tick() {
  if (job_.ending || job_.options.opaque_servers) return;
  std::vector<ServerWatch::Sight> sights;
  sights.reserve(servers_.size());
  const bool have_acked = all_acked();
  for (const auto& [id, s] : servers_)
    sights.push_back({id, s.started, !s.address.empty(), hosts_.is_heard(s.host, *s.its_host),
                      have_acked || job_.boundary.has_acked(id)});
  const auto findings = watch_.tick(sights, job_.now());
  if (const auto since = watch_.silent_since()) lost_time_.server_silent(*since);
  for (const auto& [id, is_lost, why] : findings) {
    const Host host = servers_.at(id).host;
    const std::string text = fmt::format("server {} on {} {}", id, host, why);
    if (is_lost) return lost({text, kExitServerLost});
    job_.note(Note::kFailure, "server_silent", text, host);
    job_.add(Inspect{{Role::kServer, id.value}, host});
  }
}

// ---------------------------------------------------------------- losses

std::optional<ServerGroup::Origin> ServerGroup::checkpoint_to_use(const Loss& loss) const {
  if (!job_.options.rolls_back || job_.initial() || job_.finishing()) return std::nullopt;
  const bool is_own = loss.is_checkpoint && !inherits_;
  if (const auto own = checkpoints_.newest(is_own ? std::optional(epoch_) : std::nullopt))
    return Origin{*own, false};
  const bool is_inherited = loss.is_checkpoint && inherits_;
  if (!job_.options.first_epoch || is_inherited) return std::nullopt;
  return Origin{*job_.options.first_epoch, true};
}

void ServerGroup::lost(const Loss& loss) {
  if (job_.ending) return;
  if (job_.options.is_adopted && is_resumed_ && !hosts_.found_an_agent())
    return job_.end(loss.code, loss.why + ", and nothing of the job was found that runs");
  const bool no_such_command = loss.code == kExitCommandFailed;
  const auto origin = checkpoint_to_use(loss);
  if (origin && !no_such_command) return roll_back(loss, *origin);
  const bool could = job_.options.rolls_back && job_.finishing();
  job_.end(
      loss.code,
      loss.why + (job_.options.opaque_servers ? ""
                  : could ? ": the job is finishing and cannot go back to a checkpoint any more"
                  : loss.is_checkpoint ? ", and no other one is there to go back to"
                  : job_.initial()     ? ""
                                       : " and no checkpoint is there to go back to"));
}

void ServerGroup::roll_back(const Loss& loss, const Origin& origin) {
  std::set<Host> avoid = loss.avoid;
  for (const auto& [host, why] : job_.leaving) avoid.insert(host);
  auto hosts = hosts_for_new(avoid);
  if (!hosts) hosts = hosts_for_new(loss.avoid);
  if (!hosts)
    return job_.end(kExitServerLost,
                    fmt::format("{}; {} cannot have a server, and no other host of the initial "
                                "launch is there to take it",
                                loss.why, fmt::join(loss.avoid, ", ")));
  lost_time_.recovery_begins();
  const auto old = servers_;
  const bool is_damaged = loss.is_checkpoint && !inherits_;
  job_.record(RolledBack{.generation = job_.boundary.generation().next(),
                         .epoch = origin.epoch,
                         .is_inherited = origin.is_inherited,
                         .first = next_,
                         .servers = std::move(*hosts),
                         .why = loss.why,
                         .damaged = is_damaged ? std::optional(epoch_) : std::nullopt});
  job_.note(Note::kFailure, "rolling_back",
            fmt::format("{}: back to the checkpoint of epoch {}, with new servers", loss.why,
                        origin.epoch),
            {}, {}, {{"to_epoch", origin.epoch.value}});
  // Their values are not needed any more, and new servers may need their ports.
  for (const auto& [id, s] : old)
    if (s.started) job_.add(Stop{{Role::kServer, id.value}, s.host});
  if (!job_.options.opaque_servers) start_waiting();
}

std::optional<std::vector<Host>> ServerGroup::hosts_for_new(const std::set<Host>& lost) const {
  std::vector<Host> out;
  for (const auto& [id, s] : servers_) out.push_back(s.host);
  const auto is_lost = [&lost](const Host& host) { return lost.contains(host); };
  if (std::ranges::none_of(out, is_lost)) return out;
  std::vector<Host> living;
  std::map<Host, std::size_t> load;
  const auto add = [&](const Host& host) {
    if (is_lost(host) || !hosts_.is_heard(host)) return;
    if (load.try_emplace(host).second) living.push_back(host);
  };
  for (const Host& host : homes_) add(host);
  for (const Host& host : base_hosts_) add(host);
  if (living.empty()) return std::nullopt;
  for (const Host& host : out)
    if (!is_lost(host)) ++load[host];
  for (Host& host : out) {
    if (!is_lost(host)) continue;
    host = *std::ranges::min_element(living, {}, [&load](const Host& h) { return load.at(h); });
    ++load[host];
  }
  return out;
}

// ---------------------------------------------------------------- starts

void ServerGroup::start(ServerId id) {
  ServerState& s = servers_.at(id);
  // The ports are in an opaque server's environment.
  if (job_.is_doubtful || (job_.options.opaque_servers && !hosts_.knows_ports())) return;
  s.started = true;
  StartServer start{.server = id, .host = s.host, .index = s.index};
  if (!inherits_) start.checkpoint = epoch_;
  job_.add(std::move(start));
  job_.note(Note::kLaunch, "server_launched",
            fmt::format("Launching server node at ip: {}", s.host.name), s.host);
}

void ServerGroup::start_waiting() {
  for (const auto& [id, s] : servers_) {
    if (s.started || !hosts_.is_up(s.host)) continue;
    start(id);
    tell_commit(id);
  }
}

void ServerGroup::reach_hosts() {
  if (job_.ending) return;
  std::set<ServerId> due;
  for (const Host& host : job_.agenda.hosts()) due.insert(on(host).begin(), on(host).end());
  for (const ServerId id : due) {
    const ServerState& s = servers_.at(id);
    const bool waits = (s.attempts > 0 || job_.initial()) && hosts_.is_cooling(s.host);
    if (!waits) hosts_.reach(s.host);
  }
  if (!job_.options.opaque_servers || hosts_.knows_ports()) return;
  if (any([this](const ServerState& s) { return !s.started && hosts_.is_up(s.host); }))
    hosts_.reach_first();
}

void ServerGroup::stop_retired(const Host& host, const std::vector<ProcessReport>& there) {
  std::erase_if(retired_, [&](const auto& one) {
    if (one.second != host) return false;
    const ProcessId process{Role::kServer, one.first.value};
    const auto report = std::ranges::find(there, process, &ProcessReport::process);
    if (report == there.end()) return true;
    if (!report->exit) job_.add(Stop{process, host});
    return false;
  });
}

void ServerGroup::tell_commit() {
  for (const auto& [id, s] : servers_) tell_commit(id);
}

void ServerGroup::tell_commit(ServerId id) {
  if (job_.options.opaque_servers) return;
  const Boundary& view = job_.boundary;
  job_.add(SendCommit{id,
                      servers_.at(id).host,
                      {.term = term_,
                       .generation = view.generation(),
                       .epoch = view.returns_to().value_or(view.epoch().value_or(Epoch(0))),
                       .boundary = view.members() == view.contributors(),
                       .contributors = view.contributors(),
                       .checkpoint = checkpoints_.commit_that_saves()}});
}

// ---------------------------------------------------------------- records

void ServerGroup::apply(const JobBegan& r) {
  homes_ = r.servers;
  base_hosts_ = {r.workers.begin(), r.workers.end()};
  add(r.servers);
}

void ServerGroup::apply(const BaseReplaced& r) {
  std::ranges::replace(homes_, r.from, r.to);
  base_hosts_.insert(r.to);
}

void ServerGroup::apply(const RolledBack& r) {
  for (const auto& [id, s] : servers_) retired_[id] = s.host;
  for (const auto& [host, ids] : on_host_) job_.agenda.add(host);
  servers_.clear();
  on_host_.clear();
  listening_ = 0;
  next_ = r.first;
  add(r.servers);
  since_ = r.generation;
  epoch_ = r.epoch;
  inherits_ = r.is_inherited;
  why_ = r.why;
  if (!job_.boundary.returns_to()) interrupted_ = job_.boundary.epoch();
  watch_.replaced();
  if (!r.damaged) job_.futile.add_rollback();  // there are only so many checkpoints
}

void ServerGroup::add(const std::vector<Host>& hosts) {
  std::uint32_t index = 0;
  for (const Host& host : hosts) {
    ServerState& s = servers_[next_];
    s.host = host;
    s.index = index++;
    s.its_host = &hosts_.row(host);
    on_host_[host].push_back(next_);
    job_.agenda.add(host);
    next_ = next_.next();
  }
}

// ---------------------------------------------------------------- questions

std::set<Host> ServerGroup::hosts() const {
  std::set<Host> out;
  for (const auto& [id, s] : servers_) out.insert(s.host);
  return out;
}

bool ServerGroup::awaits_start_on(const Host& host) const {
  return std::ranges::any_of(on(host), [this](ServerId id) { return !servers_.at(id).started; });
}

Servers ServerGroup::list() const {
  Servers list{{}, since_, epoch_};
  for (const auto& [id, s] : servers_) list.servers.push_back({id, s.address, s.port});
  return list;
}

bool ServerGroup::are_unseen() const {
  return !servers_.empty() &&
         !any([this](const ServerState& s) { return hosts_.is_heard(s.host, *s.its_host); });
}

bool ServerGroup::awaits_opaque(Time last_worker) const {
  const bool one_runs = any([](const ServerState& s) { return !s.ended; });
  return job_.options.opaque_servers && one_runs &&
         job_.now() - last_worker < job_.options.stop_grace;
}

std::optional<Duration> ServerGroup::patience_with(const Host& host, bool is_seen) const {
  Duration longest = job_.options.server_dead_after;
  for (const ServerId id : on(host)) {
    if (watch_.gives_data(id, job_.now())) return std::nullopt;
    longest =
        std::max(longest, is_seen && !are_unseen() ? watch_.gives_up_after(id) : watch_.patience());
  }
  return longest;
}

bool ServerGroup::index_holds() const {
  std::size_t listening = 0;
  std::map<Host, std::vector<ServerId>> on_host;
  for (const auto& [id, s] : servers_) {
    listening += !s.address.empty();
    on_host[s.host].push_back(id);
    if (s.its_host != &hosts_.row(s.host)) return false;
  }
  return listening == listening_ && on_host == on_host_;
}

}  // namespace dt
