#include "core/job/stragglers.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/base/lookup.h"

namespace dt {
namespace {

std::string_view why_it_stalls(const Stragglers::Stall& stall) {
  return stall.is_waited_for ? "the others wait for it" : "it gives no sign of life";
}

}  // namespace

void Stragglers::replayed() { unheard_ = job_.boundary.contributors(); }

void Stragglers::traffic_seen(const FromServer<Traffic>& e) {
  for (const WorkerId id : e.message.busy) works(id);
  hang_watch_.report(e.server, e.message, job_.now());
  for (const WorkerId id : std::exchange(unheard_, {})) hang_watch_.expect(id, job_.now());
}

void Stragglers::works(WorkerId worker) {
  stalls_.erase(worker);
  hang_watch_.worked(worker, job_.now());
  if (job_.boundary.contributes(worker)) standstill_.moved();
}

void Stragglers::figures(const FromWorker<Figures>& e) {
  if (workers_.find(e.worker)) hang_watch_.figures(e.worker, e.message);
}

void Stragglers::progress(const FromWorker<Progress>& e) {
  if (hang_watch_.progress(e.worker, e.message, job_.now())) works(e.worker);
}

void Stragglers::inspected(WorkerId worker, const std::string& text) {
  if (Stall* stall = find_in(stalls_, worker)) stall->process = text;
}

void Stragglers::check_boundary_timeout() {
  const bool is_standstill =
      standstill_.lasted() && job_.options.hang_timeout > Duration{};  // that ends it
  if (job_.initial() || job_.boundary.arrivals().empty() || !job_.boundary.is_anyone_missing() ||
      is_standstill) {
    waiting_since_.reset();
    return;
  }
  if (!waiting_since_) waiting_since_ = job_.now();
  if (job_.now() - *waiting_since_ < job_.options.boundary_timeout) return;
  waiting_since_ = job_.now();  // repeats a stop that got lost
  for (const WorkerId id : late()) {
    const Host host = workers_.find(id)->host;
    job_.note(
        Note::kFailure, "boundary_timeout",
        fmt::format("worker {} on {} has kept the others waiting at the boundary for {:.0f} s "
                    "(--boundary-timeout) and is stopped",
                    id, host, seconds(job_.options.boundary_timeout)),
        host, id);
    job_.add(Stop{{Role::kWorker, id.value}, host});
  }
}

std::vector<WorkerId> Stragglers::late() const {
  const std::vector<WorkerId> missing = job_.boundary.missing();
  std::vector<WorkerId> late;
  if (servers_.watch().all_well())
    for (const WorkerId id : missing)
      if (!hang_watch_.waits(id)) late.push_back(id);
  return late.empty() ? missing : late;
}

void Stragglers::check_hangs() {
  const auto waited_for = hang_watch_.waited_for();
  const auto still = hang_watch_.standing_still(job_.now());
  std::erase_if(stalls_, [&](const auto& s) {
    return !waited_for.contains(s.first) && !still.contains(s.first);
  });
  const auto stalls = [&](const std::set<WorkerId>& ids, bool is_waited_for) {
    for (const WorkerId id : ids) {
      const auto [stall, is_new] = stalls_.try_emplace(id);
      if (is_new) stall->second.since = hang_watch_.last_work(id).value_or(job_.now());
      stall->second.is_waited_for = is_waited_for;
    }
  };
  stalls(still, false);
  stalls(waited_for, true);
  const Duration passed = time_.advance(job_.now());
  standstill_.tick(passed);
  if (job_.initial() || job_.ending || !servers_.watch().all_well()) return;
  const bool has_limit = job_.options.hang_timeout > Duration{};
  std::vector<WorkerId> hung;
  std::optional<Time> waited_since;
  for (auto& [id, stall] : stalls_) {
    const Worker* w = workers_.find(id);
    // Liveness decides on a worker that cannot be reached.
    if (!w || w->state != WorkerState::kMember || !hosts_.is_heard(w->host) ||
        job_.boundary.awaits_release(id))
      continue;
    stall.lasted += passed;
    if (stall.is_waited_for && stall.lasted >= LostTime::kLeastStanding)
      waited_since = std::min(waited_since.value_or(stall.since), stall.since);
    if (has_limit) warn(id, stall);
    if (has_limit && stall.lasted >= job_.options.hang_timeout) hung.push_back(id);
  }
  if (waited_since) lose_waiting(*waited_since);
  for (const WorkerId id : hung) stop(id);
}

void Stragglers::lose_waiting(Time since) {
  for (const WorkerId id : job_.boundary.contributors())
    if (hang_watch_.waits(id))
      lost_time_.stands(id, kHangCause, std::max(since, hang_watch_.last_work(id).value_or(since)));
}

void Stragglers::warn(WorkerId worker, Stall& stall) {
  const Host& host = workers_.find(worker)->host;
  const Duration left = job_.options.hang_timeout - stall.lasted;
  const bool is_half = !stall.is_noted && left <= job_.options.hang_timeout / 2;
  // Once more when there is just time for the answer.
  const Duration shortly =
      std::min<Duration>(std::chrono::seconds(2), job_.options.hang_timeout / 4);
  const bool is_last = !stall.is_queried && left <= shortly;
  if (is_half || is_last) job_.add(Inspect{{Role::kWorker, worker.value}, host});
  if (is_last) stall.is_queried = true;
  if (!is_half) return;
  stall.is_noted = true;
  job_.note(Note::kFailure, "worker_stalls",
            fmt::format("worker {} on {}: no step for {:.1f} s; {} ({}); it counts as dead in "
                        "{:.1f} s (--hang-timeout)",
                        worker, host, seconds(stall.lasted), why_it_stalls(stall),
                        last_position(worker), seconds(left)),
            host, worker);
}

void Stragglers::stop(WorkerId worker) {
  const Host host = workers_.find(worker)->host;
  const ProcessId process{Role::kWorker, worker.value};
  const Stall stall = stalls_.at(worker);
  job_.note(
      Note::kFailure, "worker_hung",
      fmt::format(
          "worker {} on {} hangs: no step for {:.1f} s; {} ({}; {}); it is stopped and "
          "counts as dead (--hang-timeout)",
          worker, host, seconds(job_.options.hang_timeout), why_it_stalls(stall),
          last_position(worker),
          stall.process.empty() ? "its agent does not say what its process does" : stall.process),
      host, worker);
  job_.add(Stop{process, host});
  // Fenced before its exit: a process that sleeps in the kernel may never exit.
  const bool is_lost =
      stall.is_waited_for && stall.lasted >= LostTime::kLeastStanding;  // as kHangCause
  lost_time_.member_died(is_lost ? job_.now() : job_.now() - stall.lasted);
  workers_.fence(worker, fmt::format("hung for {:.1f} s", seconds(job_.options.hang_timeout)));
}

std::string Stragglers::last_position(WorkerId worker) const {
  const auto at = hang_watch_.position(worker);
  if (!at) return "it never said where it is";
  return fmt::format("it last said epoch {}, step {}, {:.1f} s ago", at->epoch, at->step,
                     seconds(job_.now() - at->since));
}

void Stragglers::apply(const WorkerGone& r) {
  hang_watch_.forget(r.worker);
  works(r.worker);
}

void Stragglers::apply(const RolledBack&) {
  hang_watch_.forget_servers();
  epoch_begins();
}

void Stragglers::epoch_begins() {
  standstill_.moved();
  stalls_.clear();
  waiting_since_.reset();
}

}  // namespace dt
