#include "core/job/job.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "core/protocol/exit_code.h"

namespace dt {

Job::Job(JobOptions options, const std::vector<Record>& records, Instant now)
    : job_(std::move(options), [this](const Record& r) { apply(r); }) {
  job_.begin(now);
  for (const Record& r : records) replay(r);
  workers_.replayed();
  servers_.replayed();
}

std::vector<Effect> Job::begin(Term term, Instant now) {
  job_.begin(now);
  const bool fresh = job_.boundary.generation() == Generation(0);
  if (fresh) job_.record(JobBegan{job_.options.workers, job_.options.servers});
  job_.record(TermBegan{term});
  if (job_.ending) {
    hosts_.reach_agents();
    job_.add(End{job_.ending->exit_code, job_.ending->message, job_.options.stop_grace});
    return job_.take();
  }
  servers_.begin(term, !fresh);
  lost_time_.begin(!fresh);
  std::set<Host> needed = workers_.hosts();
  needed.merge(servers_.hosts());
  hosts_.begin(needed);
  settle();
  return job_.take();
}

std::vector<Effect> Job::step(const JobEvent& event, Instant now) {
  job_.begin(now);
  if (!job_.ending) {
    std::visit([this](const auto& e) { on(e); }, event);
    settle();
  }
  return job_.take();
}

void Job::settle() {
  // Each machine may enable the next one; whatever changes something appends a record or sends
  // something once, so this ends.
  if (job_.initial() && workers_.failure().code != 0)
    job_.end(workers_.failure().code, workers_.failure().why);
  end_if_futile();
  servers_.reach_hosts();
  workers_.decide_exits();
  newcomers_.stop_unwanted();
  newcomers_.fill_gaps();
  newcomers_.move_on();
  views_.shrink();
  views_.cross_boundary();
  if (lost_time_.has_open_death() && (job_.finishing() || servers_.all_acked()))
    lost_time_.death_is_known();
  views_.release();
  let_hosts_go();
  end_if_over();
}

// ---------------------------------------------------------------- events of more than one machine

void Job::on(const AgentAttached& e) {
  if (hosts_.is_replaced(e))
    processes_lost(e.host, "its agent was replaced: everything there is dead", false);
  hosts_.attached(e);
  if (job_.ending) return;
  servers_.attached(e.host, e.processes);
  workers_.attached(e.host, e.processes);
}

void Job::on(const AgentDetached& e) {
  if (!e.gone) return hosts_.detached(e);
  hosts_.lost(e.host);
  processes_lost(e.host, fmt::format("its agent is gone ({})", e.why), false);
  hosts_.forget_agent(e.host);
}

void Job::on(const AttachFailed& e) {
  if (!hosts_.attach_failed(e.host)) return;
  workers_.host_failed(e.host, "reach", e.why);
  servers_.host_failed(e.host, e.why);
}

void Job::on(const PrepareEnded& e) {
  if (!hosts_.prepare_ended(e.host)) return;  // the host was let go meanwhile
  if (e.ok)
    hosts_.prepared(e.host);
  else
    workers_.host_failed(e.host, "prepare", fmt::format("prepare-data failed: {}", e.why));
}

void Job::on(const ProcessEnded& e) {
  if (e.process.role == Role::kServer)
    servers_.ended(e);
  else
    workers_.ended(e);
}

void Job::on(const WorkerArrived& e) {
  if (workers_.arrived(e)) stragglers_.works(e.worker);
}

void Job::on(const ServerListening& e) {
  if (servers_.listening(e)) workers_.servers_listen();
}

void Job::on(const TrafficSeen& e) {
  if (!servers_.has(e.server)) return;
  for (const WorkerId id : e.alive) hosts_.liveness().traffic(id, job_.now());
  for (const WorkerId id : e.rounds.busy) workers_.busy(id);
  stragglers_.traffic_seen(e);
  servers_.reported(e);
}

void Job::on(const ServerDataSeen& e) {
  const Worker* w = workers_.find(e.worker);
  if (w && w->state != WorkerState::kGone) servers_.data_seen(e);
}

void Job::on(const ProcessInspected& e) {
  if (e.process.role == Role::kServer)
    servers_.inspected(ServerId(e.process.id), e.text);
  else
    stragglers_.inspected(WorkerId(e.process.id), e.text);
}

void Job::on(const Tick&) {
  lost_time_.tick();
  if (const auto lost = host_watch_.tick()) host_lost(*lost);
  servers_.tick();
  if (job_.ending) return;
  stragglers_.check_boundary_timeout();
  stragglers_.check_hangs();
  workers_.check_start();
  views_.check_least();
  workers_.check_timeouts();
}

void Job::host_lost(const HostWatch::Lost& lost) {
  if (std::ranges::any_of(job_.boundary.contributors(),
                          [&](WorkerId id) { return workers_.find(id)->host == lost.host; }))
    lost_time_.member_died(lost.since);
  hosts_.lost(lost.host);
  job_.note(Note::kFailure, "host_lost", fmt::format("{} is lost: {}", lost.host, lost.why),
            lost.host);
  processes_lost(lost.host, lost.why, true);
  if (!job_.ending) hosts_.forget_agent(lost.host);
  job_.add(ReleaseHost{lost.host});
}

void Job::processes_lost(const Host& host, const std::string& why, bool is_unreachable) {
  servers_.host_lost(host, why, is_unreachable);
  if (!job_.ending) workers_.host_lost(host, why);
}

// ---------------------------------------------------------------- records

void Job::replay(const Record& r) {
  apply(r);
  for (Note& change : change_notes(r)) {
    const auto rank = job_.boundary.rank_of(*change.worker);
    past_changes_.push_back(
        {std::move(change), job_.boundary.generation(), job_.boundary.epoch(), rank});
  }
}

void Job::apply(const Record& r) {
  std::visit(
      [this](const auto& one) {
        apply_to(one, job_, hosts_, servers_, views_, stragglers_, workers_, lost_time_);
      },
      r);
}

// ---------------------------------------------------------------- the job's end

void Job::let_hosts_go() {
  if (job_.ending) return;
  const std::set<Host> with_workers = workers_.hosts();
  std::vector<Host> unused;
  for (const auto& [host, h] : hosts_.all()) {
    if (h.is_attached() && workers_.membership().wanted(host) == 0 &&
        with_workers.count(host) == 0 && !servers_.serves(host))
      unused.push_back(host);
  }
  for (const Host& host : unused) hosts_.let_go(host);
}

void Job::end_if_futile() {
  if (job_.ending || job_.finishing() || job_.initial()) return;
  const std::uint32_t limit = workers_.futile_limit();
  if (job_.futile.rollbacks() > limit)
    job_.end(kExitNoProgress,
             fmt::format("{} times servers were lost and no new epoch began between them "
                         "(--max-futile-restarts): {}",
                         limit, servers_.why()));
  else if (job_.futile.count() > limit)
    job_.end(
        kExitNoProgress,
        fmt::format("{} restarts and no epoch completed between them (--max-futile-restarts): {}",
                    limit, job_.futile.why()));
}

void Job::end_if_over() {
  if (job_.ending) return;
  const bool all_gone = std::ranges::all_of(job_.boundary.contributors(), [this](WorkerId id) {
    const Worker* w = workers_.find(id);
    return !w || w->state == WorkerState::kGone;
  });
  if (job_.finishing() && all_gone && !workers_.anyone_leaves()) {
    if (servers_.awaits_opaque(workers_.last_change())) return;
    const auto& [code, why] = workers_.failure();
    return job_.end(code,
                    code == 0 ? std::string("the job has finished") : "the job failed: " + why,
                    workers_.anyone_runs() ? job_.options.stop_grace : Duration{});
  }
  if (job_.finishing() || job_.initial() || workers_.anyone_runs()) return;
  // Nobody is left. A worker may come again only from a host that is not given up.
  const Membership& membership = workers_.membership();
  for (const Host& host : membership.hosts())
    if (membership.wanted(host) > 0 && !hosts_.is_given_up(host)) return;
  job_.end(workers_.first_death() == 0 ? 1 : workers_.first_death(),
           "no worker is left and every host has used up its restarts", Duration{});
}

std::string_view Job::phase() const {
  if (job_.ending) return "ended";
  if (job_.finishing()) return "finishing";
  return job_.initial() ? "starting" : "running";
}

}  // namespace dt
