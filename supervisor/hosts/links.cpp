#include "supervisor/hosts/links.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <utility>

#include "core/files/ranges.h"
#include "core/job/host_table.h"
#include "core/job/job.h"
#include "core/preflight/preflight_messages.h"
#include "io/clock.h"
#include "io/task_group.h"
#include "launcher/host_address.h"
#include "supervisor/volume/volume_client.h"

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
constexpr Duration kFolderAnswersWithin = 30s;
constexpr Duration kTellAwaited = 30s;  ///< Between two lines about hosts that are waited for.

/// Heartbeats are most of what a quiet job's supervisor hears: twice before a silent host is
/// suspect.
Duration beat_of(const io::JobSpec& spec) {
  return std::clamp<Duration>(spec.rules.liveness.suspect_after / 2, 250ms, 5s);
}

/// The folder that every host needs before processes start there; empty if none is needed.
std::string folder_to_check(const io::JobSpec& spec) {
  const bool is_shared = !io::is_local(spec) && !spec.no_shared_folder && spec.sync_dst_dir.empty();
  return is_shared ? spec.cwd : std::string();
}

/// Why a host cannot be used, and the remedy; `error`: errno of the agent's entering the folder.
Error trouble_with(const std::string& folder, int error) {
  constexpr const char* kRemedy =
      "where hosts share no folder: --sync-dst-dir, or --no-shared-folder for programs that need "
      "none";
  if (error == ENOENT || error == ENOTDIR)
    return {ErrorKind::kInvalid,
            fmt::format("{} is not there (is the volume mounted? {})", folder, kRemedy)};
  return {error == EACCES ? ErrorKind::kDenied : ErrorKind::kIo,
          fmt::format("{} cannot be entered: {} ({})", folder, std::strerror(error), kRemedy)};
}

}  // namespace

HostLinks::HostLinks(SupervisorContext& context, launcher::Backend& backend, Sync sync)
    : context_(context),
      spec_(context.spec),
      backend_(backend),
      sync_(std::move(sync)),
      folder_(folder_to_check(spec_)),
      program_(io::activated_program(spec_)),
      ticked_at_(io::steady_now()),
      listens_since_(ticked_at_) {}

// ---------------------------------------------------------------- links are made

void HostLinks::attach(const Host& host, bool start) {
  if (start) return context_.tasks.spawn(reach(host));
  // The agent of an earlier term, unless it is lost meanwhile; at the job's end each has to receive
  // the end.
  const Job& job = *context_.job;
  if (!job.ending() && job.hosts().at(host).link != HostState::Link::kDown) return;
  HostLink& h = hosts_[host];
  if (!h.link) make_link(host);
  h.ever_attached = true;  // an earlier term was
  h.link->attach(false);
}

AgentConnection& HostLinks::make_link(const Host& host) {
  AgentConnection::Options options;
  options.job = spec_.job;
  options.host = host;
  options.term = context_.term;
  options.last_place = [this, host]() -> std::optional<AgentPlace> {
    const HostState& known = context_.job->hosts().at(host);
    return known.had_agent ? std::optional(known.place) : std::nullopt;
  };
  options.seed = std::random_device{}();
  options.notice_grace = spec_.notice_grace;
  options.orphan_timeout_ms = milliseconds(spec_.rules.orphan_timeout);
  options.beat = beat_of(spec_);
  // A silent link is broken only when liveness has decided, or waits for something else.
  options.takes_over = spec_.is_taken_over;
  options.silence_limit = std::max(options.silence_limit, spec_.rules.liveness.dead_after + 2s);
  AgentConnection::Callbacks callbacks;
  callbacks.attached = [this, host](const AgentState& state) { attached(host, state); };
  callbacks.frame = [this, host](const wire::Frame& frame) { listener->frame(host, frame); };
  callbacks.down = [this, host](const Error& error, bool gone) { broke(host, error, gone); };
  callbacks.outranked = [this, host](Term term) {
    if (on_outranked) on_outranked(host, term);
  };
  HostLink& h = hosts_[host];
  h.link = std::make_unique<AgentConnection>(context_.executor, backend_, std::move(options),
                                             std::move(callbacks));
  h.ever_attached = false;
  h.leaving = false;
  listener->link_begins(host);
  context_.tasks.spawn(h.link->run());
  return *h.link;
}

awaitable<void> HostLinks::reach(Host host) {
  auto ready = co_await get_ready(host);
  if (!ready) co_return cannot_attach(host, ready.error());
  if (is_ending_) co_return;
  HostLink& h = hosts_[host];
  if (!h.link || h.link->ended()) make_link(host);
  h.link->attach(true);
}

awaitable<Result<void>> HostLinks::get_ready(Host host) {
  HostLink& h = hosts_[host];
  if (sync_ && !h.synced) {
    auto synced = co_await sync_(host);
    if (!synced) co_return synced;
    h.synced = true;
  }
  // The link of an earlier stay may still be ending.
  for (const Time until = io::steady_now() + kFarewell; h.link && h.leaving && !h.link->ended();) {
    if (io::steady_now() >= until)
      co_return fail(ErrorKind::kTimeout, "the host's previous agent has not ended");
    co_await io::sleep_for(20ms);  // tidy: allow (a link tells nobody of its end)
  }
  co_return Result<void>();
}

void HostLinks::cannot_attach(const Host& host, const Error& error) {
  // Now, and not when status is asked for: it reads ssh's configuration.
  hosts_[host].reach_command = backend_.reach_command(host);
  const bool is_final = error.kind == ErrorKind::kInvalid || error.kind == ErrorKind::kDenied;
  context_.post(AttachFailed{host, error.message, is_final});
}

// ---------------------------------------------------------------- links are up, and break

void HostLinks::attached(const Host& host, const AgentState& state) {
  HostLink& h = hosts_[host];
  h.machine_is_gone = false;
  // Processes that already run there were started in the folder.
  const bool is_known = h.has_folder == state.incarnation || !state.processes.empty();
  const bool asks_program = !program_.empty() && !h.has_program;
  if (asks_program) send(host, CheckFolder{program_});
  if (is_known || (folder_.empty() && !asks_program)) return admitted(host, state);
  h.asked = state;
  h.asked_at = io::steady_now();
  if (!folder_.empty()) send(host, CheckFolder{folder_});
}

void HostLinks::folder_checked(const Host& host, const FolderChecked& answer) {
  HostLink& h = hosts_[host];
  if (!program_.empty() && answer.folder == program_) {
    h.has_program = answer.error == ENOTDIR;  // it is there, and a file
    if (!*h.has_program) lack_program_.insert(host);
    warn_of_lacking();
  } else if (answer.folder != folder_) {
    return;
  } else if (answer.error != 0) {
    return kept_away(host, trouble_with(folder_, answer.error));
  } else if (h.asked) {
    h.has_folder = h.asked->incarnation;
  }
  if (!h.asked || (!folder_.empty() && h.has_folder != h.asked->incarnation) ||
      (!program_.empty() && !h.has_program))
    return;
  admitted(host, *std::exchange(h.asked, std::nullopt));
}

void HostLinks::warn_of_lacking() {
  const auto has_answered = [this](const Host& host) { return at(host).has_program.has_value(); };
  if (lack_program_.empty() || !std::ranges::all_of(spec_.workers, has_answered)) return;
  context_.note(Note::kRefusal, "environment_lacking",
                fmt::format("{} is {} here, which is not on {}: {}", spec_.command.front(),
                            program_, in_few_words({lack_program_.begin(), lack_program_.end()}),
                            preflight::kActivatedRemedy));
  lack_program_.clear();
}

void HostLinks::admitted(const Host& host, const AgentState& state) {
  HostLink& h = hosts_[host];
  h.has_folder = state.incarnation;
  h.ever_attached = true;
  h.cores = state.cores;
  h.machine = state.machine;
  h.address = launcher::host_address(spec_, host, backend_.address(host), state);
  warn_of_twin(host);
  listener->admitted(host, state);
  context_.post(
      AgentAttached{host, state.boot_id, state.incarnation, state.processes, state.place});
  listener->attached(host, state);
}

void HostLinks::warn_of_twin(const Host& host) {
  const HostLink& h = hosts_.at(host);
  if (io::is_local(spec_) || h.machine.empty()) return;
  for (const auto& [other, o] : hosts_)
    if (other != host && o.is_kept() && o.machine == h.machine && o.address == h.address)
      return context_.console.warn(
          "{} and {} are one machine: two agents give its GPUs and ports twice (write one name, "
          "with slots=N)",
          other, host);
}

void HostLinks::kept_away(const Host& host, const Error& error) {
  HostLink& h = hosts_[host];
  if (!std::exchange(h.asked, std::nullopt) || !h.is_kept()) return;
  h.link->shut_down(0);
  h.leaving = true;
  const Error named = error.at(to_string(host));
  if (h.ever_attached)
    context_.post(AgentDetached{host, named.message, true});
  else
    cannot_attach(host, named);
}

void HostLinks::broke(const Host& host, const Error& error, bool gone) {
  if (gone) listener->agent_gone(host);
  listener->link_begins(host);
  HostLink& h = hosts_[host];
  h.asked.reset();
  if (h.leaving) return;
  if (h.ever_attached || gone)
    context_.post(AgentDetached{host, error.message, gone});
  else
    cannot_attach(host, error);
}

void HostLinks::tick(Time now, Time job_now) {
  // Stopped, swapped out, waiting for a disk: what agents sent meanwhile is still to be read.
  if (now - std::exchange(ticked_at_, now) > kLateTick) listens_since_ = now;
  for (auto& [host, h] : hosts_) notice_silence(host, h, now, job_now);
  for (auto& [host, h] : hosts_)
    if (h.asked && now - h.asked_at > kFolderAnswersWithin)
      kept_away(host, {ErrorKind::kTimeout,
                       fmt::format("{} does not answer there (is the volume stalled?)", folder_)});
}

void HostLinks::notice_silence(const Host& host, HostLink& h, Time now, Time job_now) {
  const bool listens = h.link && h.link->up() && !h.leaving;
  const Duration silence = listens ? now - std::max(h.link->heard_at(), listens_since_) : 0s;
  const bool is_silent = listens && silence >= spec_.rules.liveness.suspect_after;
  if (is_silent == std::exchange(h.silent, is_silent) || !listens) return;
  if (is_silent)
    context_.post(AgentSilent{host, job_now - silence});
  else
    context_.post(AgentHeard{host});
}

// ---------------------------------------------------------------- links end

void HostLinks::release(const Host& host) {
  HostLink& h = hosts_[host];
  if (h.link) h.link->shut_down(milliseconds(spec_.rules.stop_grace));
  h.leaving = true;
}

void HostLinks::kill_all() {
  is_killed_ = true;
  for (auto& [host, h] : hosts_)
    if (h.link) h.link->shut_down(0, true);
}

awaitable<std::vector<Host>> HostLinks::shut_down(Duration grace) {
  // Hosts whose link is not up are tried as long as one connection may take, so that nothing runs
  // on there next to a resumed job.
  // What runs on hosts of a job that is taken over ends by itself after --orphan-timeout.
  const Duration orphans_end = spec_.rules.orphan_timeout + kGoodbye;
  const Duration last_reach = std::max(kLastReach, spec_.ssh.connect_timeout);
  // Hosts that an earlier term gave up as lost, where it could not send the end.
  for (const auto& [host, state] : context_.job->hosts().all())
    if (state.had_agent && !hosts_[host].link) make_link(host).attach(false);
  for (auto& [host, h] : hosts_)
    if (h.link) h.link->shut_down(is_killed_ ? 0 : milliseconds(grace), is_killed_);
  Time begin = io::steady_now();
  for (bool awaits = true; awaits;) {
    // An agent ends when its output has come.
    if (context_.volume.is_output_moving()) begin = io::steady_now();
    for (const auto& [host, h] : hosts_)
      if (h.link && !is_killed_) begin = std::max(begin, h.link->output_at());
    const bool waits_for_orphans = spec_.is_taken_over && !is_hurried_;
    awaits = std::ranges::any_of(hosts_, [&](const auto& entry) {
      if (!entry.second.may_run()) return false;
      const auto& link = entry.second.link;
      // The link of a take-over ends with the agent, and is made once more to see that.
      const bool answers = link->up() || (spec_.is_taken_over && link->heard_at() != Time{});
      const Duration limit = waits_for_orphans ? orphans_end
                             : answers         ? grace + kGoodbye
                                               : last_reach;
      return io::steady_now() - begin < limit;
    });
    if (waits_for_orphans && awaits) tell_awaited(begin + orphans_end);
    if (awaits) co_await io::sleep_for(20ms);  // tidy: allow (links, output and a signal end it)
  }
  std::vector<Host> unconfirmed;
  for (const auto& [host, h] : hosts_)
    if (h.may_run() && (h.ever_attached || spec_.is_taken_over)) unconfirmed.push_back(host);
  co_return unconfirmed;
}

void HostLinks::tell_awaited(Time until) {
  const Time now = io::steady_now();
  if (now < tell_at_) return;
  const bool is_first = tell_at_ == Time{};
  tell_at_ = now + (is_first ? kLastReach : kTellAwaited);
  std::vector<Host> awaited;
  for (const auto& [host, h] : hosts_)
    if (h.may_run() && !h.link->up()) awaited.push_back(host);
  if (is_first || awaited.empty()) return;
  context_.console.warn(
      "{} {} not answer: what runs there ends by itself in {:.0f} s at the latest "
      "(--orphan-timeout "
      "of that job); then the job begins (Ctrl-C: not at all)",
      fmt::join(fold_hosts(awaited), ", "), awaited.size() == 1 ? "does" : "do",
      seconds(until - now));
}

// ---------------------------------------------------------------- questions

std::string HostLinks::address_of(const Host& host) const {
  const HostLink& h = at(host);
  return h.address.empty() ? host.name : h.address;
}

}  // namespace dt::supervisor
