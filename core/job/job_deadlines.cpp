#include <algorithm>
#include <utility>

#include "core/job/job.h"
#include "core/job/job_text.h"
#include "core/protocol/exit_code.h"

namespace dt {

namespace {

std::string_view why_it_stalls(const Stalls::Stall& stall) {
  return stall.is_waited_for ? "while others wait for it" : "and gives no sign of life";
}

}  // namespace

void Job::check_deadlines() {
  if (job_.ending) return;
  check_boundary_timeout();
  check_hangs();
  check_start();
  check_least();
  if (job_.ending) return;
  std::vector<WorkerId> ids;
  for (const auto& [id, w] : membership_.workers()) ids.push_back(id);
  for (const WorkerId id : ids) {
    const Worker& w = *membership_.find(id);
    const Host host = w.host;
    const Duration age = job_.now() - w.since;
    if (w.state == WorkerState::kStarting && age >= job_.options.start_timeout) {
      if (w.base && job_.initial()) continue;
      membership_.advance(id, WorkerEvent::kUnwanted, job_.now());
      job_.out.add(Stop{{Role::kWorker, id.value}, host, Duration{}});
      host_failed(host, "start",
                  fmt::format("worker {} did not become ready within {:.0f} s "
                              "(--start-timeout)",
                              id, seconds(job_.options.start_timeout)));
    } else if (w.state == WorkerState::kLeaving && age >= job_.options.leave_timeout &&
               leave_enforced_.insert(id).second) {
      job_.out.note(Note::Kind::kFailure, "leave_enforced",
                    fmt::format("worker {} on {} was told to leave {:.0f} s ago and is stopped now",
                                id, host, seconds(age)),
                    id, host);
      job_.out.add(Stop{{Role::kWorker, id.value}, host, job_.options.stop_grace});
    }
  }
}

void Job::check_start() {
  if (!job_.initial()) return;
  if (hosts_.start_is_too_late()) return hosts_.end_failed_start();
  // Until then everybody waits for the servers, which have deadlines of their own.
  if (!servers_.all_listen()) {
    start_counts_from_ = job_.now();
    return;
  }
  const bool someone_arrived = !job_.boundary.arrivals().empty();
  // An opaque command never arrives and need not.
  if (!someone_arrived && !job_.opened && !job_.options.is_start_timeout_set) return;
  const Worker* late = nullptr;
  for (const auto& [id, w] : membership_.workers()) {
    if (!w.base || w.state == WorkerState::kGone) continue;
    if (w.state != WorkerState::kStarting) {
      if (!someone_arrived) return;  // its host is not ready, and the others wait for it
      continue;
    }
    // As long as nobody has arrived it may be a script without boundaries, which uses its store.
    Time since = someone_arrived ? w.since : std::max(w.since, w.active);
    since = std::max(since, start_counts_from_.value_or(since));
    const bool is_late = job_.now() - since >= job_.options.start_timeout;
    if (!is_late && !someone_arrived) return;
    // Who has not opened its store keeps those waiting who have.
    if (is_late && (!late || (late->opened && !w.opened))) late = &w;
  }
  if (!late) return;
  job_.end(kExitStartTimeout,
           fmt::format("worker {} on {} did not reach its first epoch within {:.0f} s "
                       "(--start-timeout){}",
                       late->id, late->host, seconds(job_.options.start_timeout),
                       someone_arrived ? "" : ", and no other worker did"));
}

void Job::check_least() {
  if (job_.ending || job_.finishing() || !job_.boundary.below_least_since()) return;
  if (job_.now() - *job_.boundary.below_least_since() < job_.options.min_workers_timeout) return;
  lost_time_.end_at_boundary();
  job_.end(kExitTooFewWorkers,
           fmt::format("{} for {:.0f} s (--min-workers-timeout)", pending_reason_,
                       seconds(job_.options.min_workers_timeout)));
}

void Job::check_boundary_timeout() {
  const std::vector<WorkerId> missing = job_.boundary.missing();
  if (job_.initial() || job_.boundary.arrivals().empty() || missing.empty()) {
    waiting_since_.reset();
    return;
  }
  if (!waiting_since_) waiting_since_ = job_.now();
  if (job_.now() - *waiting_since_ < job_.options.boundary_timeout) return;
  waiting_since_ = job_.now();  // a stop that got lost is said again
  for (const WorkerId id : late()) {
    const Host host = membership_.find(id)->host;
    job_.out.note(
        Note::Kind::kFailure, "boundary_timeout",
        fmt::format("worker {} on {} has kept the others waiting at the boundary for {:.0f} s "
                    "(--boundary-timeout) and is stopped",
                    id, host, seconds(job_.options.boundary_timeout)),
        id, host);
    job_.out.add(Stop{{Role::kWorker, id.value}, host, Duration{}});
  }
}

std::vector<WorkerId> Job::late() const {
  const std::vector<WorkerId> missing = job_.boundary.missing();
  std::vector<WorkerId> late;
  if (servers_.watch().all_well())
    for (const WorkerId id : missing)
      if (!hang_watch_.waits(id)) late.push_back(id);
  return late.empty() ? missing : late;
}

void Job::check_hangs() {
  const Duration passed =
      stalls_.tick(hang_watch_.waited_for(), hang_watch_.standing_still(job_.now()), job_.now());
  if (job_.options.hang_timeout <= Duration{} || job_.initial() || !servers_.watch().all_well())
    return;
  std::vector<WorkerId> hung;
  for (const auto& [id, known] : stalls_.all()) {
    const Worker* w = membership_.find(id);
    // Liveness decides on a worker that cannot be reached.
    if (!w || w->state != WorkerState::kMember || !hosts_.is_heard(w->host) ||
        job_.boundary.awaits_release(id))
      continue;
    Stalls::Stall& stall = *stalls_.find(id);
    stall.lasted += passed;
    watch_stall(id, stall);
    if (stall.lasted >= job_.options.hang_timeout) hung.push_back(id);
  }
  for (const WorkerId id : hung) stop_hung(id);
}

void Job::watch_stall(WorkerId id, Stalls::Stall& stall) {
  const Host& host = membership_.find(id)->host;
  const Duration left = job_.options.hang_timeout - stall.lasted;
  const bool tells = !stall.told && left <= job_.options.hang_timeout / 2;
  // Once more when there is just time for the answer.
  const Duration shortly =
      std::min<Duration>(std::chrono::seconds(2), job_.options.hang_timeout / 4);
  const bool asks = !stall.asked && left <= shortly;
  if (tells || asks) job_.out.add(Inspect{{Role::kWorker, id.value}, host});
  if (asks) stall.asked = true;
  if (!tells) return;
  stall.told = true;
  job_.out.note(
      Note::Kind::kFailure, "worker_stalls",
      fmt::format("worker {} on {} does nothing for {:.1f} s {} ({}); it counts as dead in "
                  "{:.1f} s (--hang-timeout)",
                  id, host, seconds(stall.lasted), why_it_stalls(stall), last_position(id),
                  seconds(left)),
      id, host);
}

void Job::stop_hung(WorkerId id) {
  const Host host = membership_.find(id)->host;
  const ProcessId process{Role::kWorker, id.value};
  const Stalls::Stall stall = *stalls_.find(id);
  job_.out.note(
      Note::Kind::kFailure, "worker_hung",
      fmt::format(
          "worker {} on {} hangs: nothing for {:.1f} s {} ({}; {}); it is stopped and "
          "counts as dead (--hang-timeout)",
          id, host, seconds(job_.options.hang_timeout), why_it_stalls(stall), last_position(id),
          stall.process.empty() ? "its agent does not say what its process does" : stall.process),
      id, host);
  job_.out.add(Stop{process, host, Duration{}});
  // Not only when it has ended: what sleeps in the kernel may not even die.
  lost_time_.member_died(job_.now() - stall.lasted);
  ProcessEnded hung;
  hung.process = process;
  hung.status.signal = 9;
  hung.why = fmt::format("hung for {:.1f} s", seconds(job_.options.hang_timeout));
  worker_ended(hung);
}

std::string Job::last_position(WorkerId id) const {
  const auto at = hang_watch_.position(id);
  if (!at) return "it never said where it is";
  return fmt::format("it last said epoch {}, step {}, {:.1f} s ago", at->epoch, at->step,
                     seconds(job_.now() - at->since));
}

bool Job::hears_a_contributor() const {
  const auto& all = job_.boundary.contributors();
  return std::any_of(all.begin(), all.end(), [this](WorkerId id) {
    const Worker* w = membership_.find(id);
    return w && hosts_.is_heard(w->host);
  });
}

std::uint32_t Job::restart_budget(const Host& host) const {
  return job_.options.max_restarts * std::max(1U, membership_.wanted(host));
}

std::uint32_t Job::futile_limit() const {
  constexpr std::uint32_t kLeast = 10;
  constexpr std::uint32_t kPerWorker = 3;
  if (job_.options.max_futile_restarts > 0) return job_.options.max_futile_restarts;
  std::uint32_t wanted = 0;
  for (const Host& host : membership_.hosts()) wanted += membership_.wanted(host);
  return std::max(kLeast, kPerWorker * wanted);
}

void Job::check_lives() {
  const bool alone = hosts_.cut_off();
  const bool blind = servers_.are_unseen();
  for (const auto& [host, h] : hosts_.all()) {
    if (h.link != HostTable::Link::kDown &&
        (h.link != HostTable::Link::kUp || hosts_.is_heard(host)))
      continue;
    const Time down_since = hosts_.liveness().down_since(host).value_or(job_.now());
    const Duration down = job_.now() - down_since;
    const bool serves = servers_.serves(host);
    // With no link at all, or no word from any server, it is we who are cut off: nothing is decided
    // until the agents have certainly stopped everything by themselves.
    const bool spared = (alone || (blind && !serves)) && down < job_.options.orphan_timeout;
    if (spared) hosts_.spare(host);
    const bool waits_for_it =
        down >= job_.options.liveness.dead_after && boundary_waits_for_unsupervised(host);
    if (serves) {
      const auto patience = servers_.patience_with(host, hears_a_contributor());
      if (down < patience.value_or(servers_.watch().patience())) continue;
      if (!patience && !waits_for_it) continue;
    }
    if (spared) continue;
    // The first that is reached again comes before the others; they get time to follow.
    if (h.spared_at && *h.spared_at >= down_since && job_.now() - *h.spared_at < kReattachGrace)
      continue;
    std::optional<std::string> dead;
    bool all_dead = true;
    for (const auto& [id, w] : membership_.workers()) {
      if (w.host != host || !may_run(w.state)) continue;
      // Who has not been told that the epoch began does nothing for it, whatever data flows.
      const bool untold = job_.boundary.awaits_release(id);
      const auto seen_by_servers = untold ? std::nullopt : std::optional(id);
      if (hosts_.liveness().life(host, seen_by_servers, job_.now()) != Life::kDead)
        all_dead = false;
    }
    if (all_dead && hosts_.liveness().life(host, std::nullopt, job_.now()) == Life::kDead)
      dead = fmt::format("no sign of life for {:.1f} s", seconds(down));
    else if (waits_for_it)
      dead = "unsupervised, and out at this boundary";
    if (!dead) continue;
    const bool trains =
        std::any_of(job_.boundary.contributors().begin(), job_.boundary.contributors().end(),
                    [&](WorkerId id) { return membership_.find(id)->host == host; });
    if (trains) lost_time_.member_died(job_.now() - down);
    const Host lost = host;
    hosts_.lost(lost);
    job_.out.note(Note::Kind::kFailure, "host_lost", fmt::format("{} is lost: {}", host, *dead),
                  std::nullopt, host);
    processes_lost(lost, *dead, true);
    if (!job_.ending) hosts_.forget_agent(lost);
    job_.out.add(ReleaseHost{lost});
    return;  // hosts_ may have changed; the next tick looks again
  }
}

bool Job::boundary_waits_for_unsupervised(const Host& host) const {
  const std::vector<WorkerId> missing = job_.boundary.missing();
  const auto host_of = [this](WorkerId id) -> const Host& { return membership_.find(id)->host; };
  return !job_.boundary.arrivals().empty() &&
         std::any_of(missing.begin(), missing.end(),
                     [&](WorkerId id) { return host_of(id) == host; }) &&
         std::all_of(missing.begin(), missing.end(), [&](WorkerId id) {
           return hosts_.liveness().life(host_of(id), id, job_.now()) == Life::kUnsupervised;
         });
}

}  // namespace dt
