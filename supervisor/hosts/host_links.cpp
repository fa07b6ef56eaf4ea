#include "supervisor/hosts/host_links.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "io/clock.h"

namespace dt::supervisor {

using io::awaitable;
using namespace std::chrono_literals;

namespace {

constexpr Duration kLateTick = 500ms;
/// How long the agent of an earlier stay may take to end before the host counts as failed.
constexpr Duration kFarewell = 30s;
/// After the processes' own grace: how long agents may take to report that all have ended.
constexpr Duration kGoodbye = 10s;
constexpr Duration kLastReach = 5s;  ///< Least time at the end for hosts whose link is not up.

std::uint32_t milliseconds(Duration d) {
  return static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(d).count());
}

/// The folder that every host needs before processes start there; empty if none is needed.
std::string folder_to_check(const io::JobSpec& spec) {
  const bool is_shared = !spec.local && !spec.no_shared_folder && spec.sync_dst_dir.empty();
  return is_shared ? spec.cwd : std::string();
}

}  // namespace

HostLinks::HostLinks(io::asio::any_io_executor executor, const io::JobSpec& spec,
                     launcher::Backend& backend, io::TaskGroup& tasks, Post post)
    : executor_(std::move(executor)),
      spec_(spec),
      backend_(backend),
      tasks_(tasks),
      post_(std::move(post)),
      folder_checks_(folder_to_check(spec)),
      ticked_at_(io::steady_now()),
      listens_since_(ticked_at_) {}

void HostLinks::begin(const Job& job, Listener& listener, Options options) {
  job_ = &job;
  listener_ = &listener;
  options_ = std::move(options);
}

// ---------------------------------------------------------------- links are made

void HostLinks::attach(const Host& host, bool start) {
  if (start) return tasks_.spawn(reach(host));
  // Counted at once: an end that is carried out next has to know of it.
  ++reattaching_;
  tasks_.spawn(reattach(host));
}

AgentConnection& HostLinks::make_link(const Host& host) {
  AgentConnection::Options options;
  options.job = spec_.job;
  options.host = host;
  options.term = options_.term;
  options.last_place = [this, host]() -> std::optional<AgentPlace> {
    const auto known = job_->hosts().find(host);
    if (known == job_->hosts().end() || !known->second.had_agent) return std::nullopt;
    return known->second.place;
  };
  options.seed = std::random_device{}();
  options.orphan_timeout_ms = milliseconds(spec_.rules.orphan_timeout);
  // A silent link is broken only when liveness has decided, or waits for something else.
  options.silence_limit = std::max(options.silence_limit, spec_.rules.liveness.dead_after + 2s);
  AgentConnection::Callbacks callbacks;
  callbacks.attached = [this, host](const AgentState& state) { attached(host, state); };
  callbacks.frame = [this, host](const wire::Frame& frame) { listener_->frame(host, frame); };
  callbacks.down = [this, host](const Error& error, bool gone) { broke(host, error, gone); };
  HostLink& h = of(host);
  h.link = std::make_unique<AgentConnection>(executor_, backend_, std::move(options),
                                             std::move(callbacks));
  h.ever_attached = false;
  h.leaving = false;
  tasks_.spawn(h.link->run());
  return *h.link;
}

bool HostLinks::awaits_agent_of_earlier_term(const Host& host) const {
  return job_->ending() || job_->hosts().at(host).link == HostState::Link::kDown;
}

awaitable<void> HostLinks::reattach(Host host) {
  // Processes may run there: it is tried until they count as lost.
  while (of(host).address.empty() && awaits_agent_of_earlier_term(host)) {
    auto address = co_await backend_.address(host);
    if (address)
      of(host).address = *address;
    else
      co_await io::sleep_for(1s);
  }
  if (awaits_agent_of_earlier_term(host)) {
    if (!of(host).link) make_link(host);
    of(host).ever_attached = true;  // an earlier term was
    of(host).link->attach(false);
  }
  --reattaching_;
}

awaitable<void> HostLinks::reach(Host host) {
  auto ready = co_await get_ready(host);
  if (!ready) co_return cannot_attach(host, ready.error().message);
  if (is_ending_) co_return;
  if (of(host).link && of(host).link->ended()) of(host).link.reset();
  if (!of(host).link) make_link(host);
  of(host).link->attach(true);
}

awaitable<Result<void>> HostLinks::get_ready(Host host) {
  if (of(host).address.empty()) {
    auto address = co_await backend_.address(host);
    if (!address) co_return tl::unexpected(address.error());
    of(host).address = *address;
  }
  if (options_.sync && synced_.count(host) == 0) {
    auto synced = co_await options_.sync(host);
    if (!synced) co_return synced;
    synced_.insert(host);
  }
  // The link of an earlier stay may still be ending.
  for (const Time until = io::steady_now() + kFarewell;
       of(host).link && of(host).leaving && !of(host).link->ended();) {
    if (io::steady_now() >= until)
      co_return fail(ErrorKind::kTimeout, "the host's previous agent has not ended");
    co_await io::sleep_for(20ms);
  }
  co_return Result<void>();
}

void HostLinks::cannot_attach(const Host& host, std::string why) {
  // Now, and not when status is asked for: it reads ssh's configuration.
  of(host).reach_command = backend_.reach_command(host);
  post_(AttachFailed{host, std::move(why)});
}

// ---------------------------------------------------------------- links are up, and break

void HostLinks::attached(const Host& host, const AgentState& state) {
  if (!folder_checks_.begin(host, state, io::steady_now())) return admitted(host, state);
  send(host, CheckFolder{folder_checks_.folder()});
}

void HostLinks::folder_checked(const Host& host, const FolderChecked& answer) {
  if (answer.folder != folder_checks_.folder()) return;
  if (answer.error != 0) return kept_away(host, folder_checks_.trouble(answer.error));
  if (const auto state = folder_checks_.take(host)) admitted(host, *state);
}

void HostLinks::admitted(const Host& host, const AgentState& state) {
  folder_checks_.passed(host, state);
  HostLink& h = of(host);
  h.ever_attached = true;
  h.cores = state.cores;
  h.machine = state.machine;
  listener_->admitted(host, state);
  post_(AgentAttached{host, state.boot_id, state.incarnation, state.processes, state.place});
  listener_->attached(host, state);
}

void HostLinks::kept_away(const Host& host, std::string why) {
  if (!folder_checks_.take(host)) return;
  HostLink& h = of(host);
  if (!h.is_kept()) return;
  h.link->shut_down(0);
  h.leaving = true;
  why = fmt::format("{}: {}", host, why);
  if (h.ever_attached)
    post_(AgentDetached{host, std::move(why), true});
  else
    cannot_attach(host, std::move(why));
}

void HostLinks::broke(const Host& host, const Error& error, bool gone) {
  if (gone) listener_->agent_gone(host);
  static_cast<void>(folder_checks_.take(host));
  const HostLink& h = of(host);
  if (h.leaving) return;
  if (h.ever_attached || gone)
    post_(AgentDetached{host, error.message, gone});
  else
    cannot_attach(host, error.message);
}

void HostLinks::tick(const std::function<Time(Time)>& job_time) {
  notice_silence(io::steady_now(), job_time);
  for (const Host& host : folder_checks_.overdue(io::steady_now()))
    kept_away(host, folder_checks_.silence());
}

void HostLinks::notice_silence(Time now, const std::function<Time(Time)>& job_time) {
  // Stopped, swapped out, waiting for a disk: what agents sent meanwhile is still to be read.
  if (now - std::exchange(ticked_at_, now) > kLateTick) listens_since_ = now;
  for (auto& [host, h] : hosts_) {
    if (!h.link || !h.link->up() || h.leaving) {
      h.silent = false;
      continue;
    }
    const Time since = std::max(h.link->heard_at(), listens_since_);
    const bool silent = now - since >= spec_.rules.liveness.suspect_after;
    if (silent == std::exchange(h.silent, silent)) continue;
    if (silent)
      post_(AgentSilent{host, job_time(since)});
    else
      post_(AgentHeard{host});
  }
}

// ---------------------------------------------------------------- links end

void HostLinks::release(const Host& host) {
  HostLink& h = of(host);
  if (h.link) h.link->shut_down(milliseconds(spec_.rules.stop_grace));
  h.leaving = true;
}

void HostLinks::kill_all() {
  for (auto& [host, h] : hosts_)
    if (h.link) h.link->shut_down(0);
}

void HostLinks::reach_all_once_more() {
  for (const auto& [host, state] : job_->hosts())
    if (state.had_agent && !of(host).link) make_link(host).attach(false);
}

awaitable<std::vector<Host>> HostLinks::shut_down(Duration grace, bool is_killed) {
  // Agents of an earlier term are there already: their links have to be made to send the end.
  for (const Time until = io::steady_now() + last_reach();
       reattaching_ > 0 && io::steady_now() < until;)
    co_await io::sleep_for(10ms);
  reach_all_once_more();
  for (auto& [host, h] : hosts_)
    if (h.link) h.link->shut_down(is_killed ? 0 : milliseconds(grace));
  const Time begin = io::steady_now();
  while (awaits_agents(io::steady_now() - begin, grace)) co_await io::sleep_for(20ms);
  std::vector<Host> unconfirmed;
  for (const auto& [host, h] : hosts_)
    if (h.link && h.ever_attached && !h.link->ended()) unconfirmed.push_back(host);
  co_return unconfirmed;
}

bool HostLinks::awaits_agents(Duration waited, Duration grace) const {
  return std::any_of(hosts_.begin(), hosts_.end(), [&](const auto& entry) {
    const auto& link = entry.second.link;
    if (!link || link->ended()) return false;
    return waited < (link->up() ? grace + kGoodbye : last_reach());
  });
}

Duration HostLinks::last_reach() const { return std::max(kLastReach, spec_.ssh.connect_timeout); }

// ---------------------------------------------------------------- questions

const HostLink& HostLinks::at(const Host& host) const {
  static const HostLink kUnknown;
  const auto it = hosts_.find(host);
  return it == hosts_.end() ? kUnknown : it->second;
}

std::string HostLinks::address_of(const Host& host) const {
  const HostLink& h = at(host);
  return h.address.empty() ? host.name : h.address;
}

}  // namespace dt::supervisor
