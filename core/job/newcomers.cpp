#include "core/job/newcomers.h"

#include <set>

namespace dt {
namespace {

/// It waits for its host.
bool is_waiting(WorkerState state) { return on_the_way(state) && !may_run(state); }

}  // namespace

void Newcomers::stop_unwanted() {
  if (job_.ending) return;
  std::set<WorkerId> unwanted;
  for (const Host& host : job_.agenda.hosts()) {
    for (const WorkerId id : membership().unwanted_newcomers(host)) unwanted.insert(id);
    if (!hosts_.is_given_up(host)) continue;
    // A worker on a host that is given up would never start.
    for (const WorkerId id : membership().workers_on(host))
      if (is_waiting(workers_.find(id)->state)) unwanted.insert(id);
  }
  for (const WorkerId id : unwanted) {
    const Worker* w = workers_.find(id);
    if (w->base && job_.initial()) continue;
    if (w->maybe_started) continue;  // its agent has to be asked first
    const Host host = w->host;
    const char* why = hosts_.is_given_up(host) ? "its host is given up" : "no longer wanted";
    job_.note(Note::kInfo, "newcomer_stopped",
              fmt::format("the newcomer worker {} on {} is stopped: {}", id, host, why), host, id);
    if (may_run(w->state)) {
      workers_.advance(id, WorkerEvent::kUnwanted);
      job_.add(Stop{{Role::kWorker, id.value}, host, job_.options.stop_grace});
    } else {
      workers_.gone(id, ExitStatus{}, why);
    }
  }
}

void Newcomers::fill_gaps() {
  // During the start newcomers may already warm up, once the command is known to be elastic.
  if (job_.ending || job_.finishing() || !job_.opened) return;
  for (const Host& host : job_.agenda.hosts()) {
    if (!hosts_.usable(host)) continue;
    std::uint32_t there = membership().present(host);
    const std::uint32_t wanted = membership().wanted(host);
    for (; there < wanted; ++there) {
      const Edit edit =
          membership().base_count(host) == wanted ? Edit{} : membership().added_by(host);
      job_.record(WorkerAllotted{membership().next_id(), host, edit});
    }
  }
}

void Newcomers::move_on() {
  if (job_.ending) return;
  std::set<WorkerId> waiting;
  for (const Host& host : job_.agenda.hosts())
    for (const WorkerId id : membership().workers_on(host))
      if (is_waiting(workers_.find(id)->state)) waiting.insert(id);
  for (const WorkerId id : waiting) {
    const Worker& w = *workers_.find(id);
    const Host& host = w.host;
    if (!hosts_.usable(host)) continue;
    if (w.state == WorkerState::kSeen) workers_.advance(id, WorkerEvent::kHostChosen);
    hosts_.reach(host);
    if (!hosts_.is_up(host)) continue;
    if (job_.options.needs_prepare && !hosts_.at(host).prepared) {
      hosts_.prepare(host);
      continue;
    }
    // The environment names them; a later group's names those of its own rank 0.
    if (w.base && job_.initial() && job_.group_restarts == 0 && !hosts_.knows_ports()) {
      hosts_.reach_first();
      continue;
    }
    start(id);
  }
}

void Newcomers::start(WorkerId worker) {
  if (!workers_.advance(worker, WorkerEvent::kStartSent)) return;
  const Worker& w = *workers_.find(worker);
  const auto rank = job_.boundary.rank_of(worker);
  const auto size = static_cast<std::uint32_t>(job_.boundary.members().size());
  const StartWorker start{
      .worker = worker,
      .host = w.host,
      .newcomer = !(w.base && job_.initial()),
      .rank = rank.value_or(Rank(size)),
      .world_size = rank ? size : size + 1,
      .epoch = job_.boundary.epoch() ? job_.boundary.epoch()->next() : Epoch(0)};
  job_.note(Note::kLaunch, "worker_launched",
            fmt::format("Launching worker node at ip: {}", w.host.name), w.host, worker);
  job_.add(start);
  if (servers_.all_listen()) job_.add(SendToWorker<Servers>{worker, w.host, servers_.list()});
}

}  // namespace dt
