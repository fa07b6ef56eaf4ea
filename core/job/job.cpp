#include "core/job/job.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "core/base/quantity.h"
#include "core/job/context.h"
#include "core/job/group_restart.h"
#include "core/job/host_table.h"
#include "core/job/host_watch.h"
#include "core/job/lost_time.h"
#include "core/job/newcomers.h"
#include "core/job/notes.h"
#include "core/job/notices.h"
#include "core/job/server_group.h"
#include "core/job/stragglers.h"
#include "core/job/views.h"
#include "core/job/workers.h"
#include "core/protocol/exit_code.h"

namespace dt {

struct Job::Parts {
  Parts(JobOptions options, const std::vector<Record>& records, Instant now)
      : job(std::move(options), [this](const Record& r) { apply(r); }) {
    job.begin(now);
    for (const Record& r : records) replay(r);
    workers.replayed();
    servers.replayed();
    stragglers.replayed();
  }

  JobContext job;
  LostTime lost_time{job};
  HostTable hosts{job};
  Checkpoints checkpoints{job};
  ServerGroup servers{job, hosts, checkpoints, lost_time};
  Workers workers{job, hosts, servers, lost_time};
  HostWatch host_watch{job, hosts, servers, workers};
  Newcomers newcomers{job, hosts, servers, workers};
  GroupRestart group{job, hosts, servers, workers, lost_time};
  Stragglers stragglers{job, hosts, servers, workers, lost_time};
  Notices notices{job, hosts, servers, checkpoints, workers};
  Views views{job, hosts, servers, workers, lost_time};
  std::vector<PastChange> past_changes;

  std::vector<Effect> begin(Term term, Instant now) {
    job.begin(now);
    const bool fresh = job.boundary.generation() == Generation(0);
    if (fresh) job.record(JobBegan{job.options.workers, job.options.servers});
    job.record(TermBegan{term});
    if (job.ending) {
      hosts.reach_agents();
      job.add(End{job.ending->exit_code, job.ending->message, job.options.stop_grace});
      return job.take();
    }
    servers.begin(term, !fresh);
    lost_time.begin(!fresh);
    group.begin();
    notices.begin();
    std::set<Host> needed = servers.hosts();
    for (const auto& [id, w] : workers.membership().workers())
      if (w.state != WorkerState::kGone) needed.insert(w.host);
    hosts.begin(needed);
    settle();
    return job.take();
  }

  std::vector<Effect> step(const JobEvent& event, Instant now) {
    job.begin(now);
    if (!job.ending) {
      std::visit([this](const auto& e) { on(e); }, event);
      settle();
    }
    return job.take();
  }

  /// Decides after an event, until nothing moves.
  void settle() {
    // Each machine may enable the next one; whatever changes something appends a record or sends
    // something once, so this ends.
    do pass();
    while (!job.agenda.is_empty());
  }

  /// All decide once, on the hosts of the agenda.
  void pass() {
    job.agenda.begin_pass(job.now());
    if (job.initial() && workers.failure().code != 0)
      job.end(workers.failure().code, workers.failure().why);
    end_if_futile();
    look_at_all_if_needed();
    servers.reach_hosts();
    workers.decide_exits();
    notices.decide();
    look_at_all_if_needed();
    newcomers.stop_unwanted();
    newcomers.fill_gaps();
    group.decide();
    newcomers.move_on();
    views.shrink();
    views.cross_boundary();
    if (lost_time.has_open_death() && (job.finishing() || servers.all_acked()))
      lost_time.death_is_known();
    views.release();
    notices.end_if_due();
    let_hosts_go();
    end_if_over();
    job.agenda.end_pass();
  }

  /// What the decisions on every host depend on.
  struct Conditions {
    bool is_doubtful = false;
    bool opened = false;
    bool initial = false;
    bool finishing = false;
    bool knows_ports = false;
    bool first_host_may_be_reached = false;  ///< The one whose ports the others need.

    friend bool operator==(const Conditions&, const Conditions&) = default;
  };
  std::optional<Conditions> conditions;

  void look_at_all_if_needed() {
    Conditions now{job.is_doubtful, job.opened, job.initial(), job.finishing(),
                   hosts.knows_ports()};
    if (!now.knows_ports) now.first_host_may_be_reached = hosts.usable(job.options.workers.front());
    if (std::exchange(conditions, now) != now) look_at_all();
  }

  void look_at_all() {
    for (const Host& host : workers.membership().hosts()) job.agenda.add(host);
    for (const auto& [host, h] : hosts.all()) job.agenda.add(host);
  }

  std::string unsettled(Instant now) {
    job.begin(now);
    if (job.ending) return {};
    if (!job.boundary.index_holds()) return "boundary: an index is wrong";
    if (!workers.membership().index_holds()) return "membership: an index is wrong";
    if (!servers.index_holds()) return "servers: an index is wrong";
    if (!stragglers.hang_watch().index_holds()) return "hang watch: an index is wrong";
    const bool lacks_one = std::ranges::any_of(job.boundary.contributors(), [this](WorkerId id) {
      const Worker* w = workers.find(id);
      return !w || w->state != WorkerState::kMember;
    });
    if (!job.initial() && lacks_one && !job.boundary.has_lost_contributor())
      return "boundary: a contributor is lost, and it does not know";
    look_at_all();
    settle();
    const std::vector<Effect> late = job.take();
    if (late.empty()) return {};
    return fmt::format("the step left {} undone; the first is of type {}",
                       count_text(late.size(), "effect"), late.front().index());
  }

  // -------------------------------------------------------------- events

  void on(const HostsAccepted& e) { workers.file_accepted(e); }
  void on(const AgentMoved& e) { hosts.moved(e); }
  void on(const AgentSilent& e) { hosts.silent(e); }
  void on(const AgentHeard& e) { hosts.heard(e); }
  void on(const WorkerStarted& e) { workers.started(e.worker); }
  void on(const FromWorker<OpenedKvStore>& e) { workers.store_opened(e.worker); }
  void on(const FromServer<CommitAck>& e) { servers.acked(e); }
  void on(const FromWorker<Figures>& e) {
    notices.figures(e);
    stragglers.figures(e);
  }
  void on(const NoticeGiven& e) { notices.given(e); }
  void on(const NoticeCancelled& e) { notices.cancelled(e); }
  void on(const FromServer<Saved>& e) { servers.saved(e); }
  void on(const CheckpointSealed& e) { checkpoints.sealed(e); }
  void on(const FromServer<GivingUp>& e) { servers.checkpoint_unusable(e); }
  void on(const CheckpointPlaceSeen& e) { checkpoints.place_seen(e, servers.hosts()); }
  void on(const LockDoubtful& e) {
    job.is_doubtful = e.is_doubtful;
    job.note(e.is_doubtful ? Note::kFailure : Note::kInfo, "lock_doubtful",
             e.is_doubtful ? "the folder's lock cannot be read: another master may have taken the "
                             "job over, so nothing is started until it can"
                           : "the folder's lock can be read again, and is still this job's");
    if (!e.is_doubtful) servers.start_waiting();
  }
  void on(const PlacesAsked& e) { workers.places_asked(e); }
  void on(const ReplaceAsked& e) { workers.replace_asked(e); }
  void on(const StopAsked& e) { job.end(e.exit_code, e.why); }

  void on(const AgentAttached& e) {
    if (hosts.is_replaced(e))
      processes_lost(e.host, "its agent was replaced: everything there is dead");
    hosts.attached(e);
    if (job.ending) return;
    servers.attached(e.host, e.processes);
    workers.attached(e.host, e.processes);
    group.attached(e.host, e.processes);
  }

  void on(const AgentDetached& e) {
    if (!e.gone) return hosts.detached(e);
    hosts.lost(e.host);
    processes_lost(e.host, fmt::format("its agent is gone ({})", e.why));
    hosts.forget_agent(e.host);
  }

  void on(const AttachFailed& e) {
    if (!hosts.attach_failed(e.host)) return;
    workers.host_failed(e.host, "reach", e.why, e.is_final);
    servers.host_failed(e.host, e.why);
  }

  void on(const PrepareEnded& e) {
    if (!hosts.prepare_ended(e.host)) return;  // the host was let go meanwhile
    if (e.ok)
      hosts.prepared(e.host);
    else if (e.is_preflight)
      workers.host_failed(e.host, "preflight", fmt::format("preflight failed: {}", e.why));
    else
      workers.host_failed(e.host, "prepare", fmt::format("prepare-data failed: {}", e.why));
  }

  void on(const ProcessEnded& e) {
    if (e.process.role == Role::kServer)
      servers.ended(e);
    else {
      workers.ended(e);
      group.ended(WorkerId(e.process.id));
    }
  }

  void on(const FromWorker<Arrive>& e) {
    if (workers.arrived(e)) stragglers.works(e.worker);
  }

  void on(const FromWorker<Progress>& e) {
    stragglers.progress(e);
    notices.progress(e);
  }

  void on(const FromServer<ServerReady>& e) {
    if (servers.listening(e)) workers.servers_listen();
  }

  void on(const FromServer<Traffic>& e) {
    if (!servers.has(e.server)) return;
    FromServer<Traffic> known = e;
    for (auto* ids : {&known.message.alive, &known.message.disconnected, &known.message.busy,
                      &known.message.owing, &known.message.waiting})
      std::erase_if(*ids,
                    [end = workers.membership().next_id()](WorkerId id) { return id >= end; });
    for (const WorkerId id : known.message.alive) hosts.liveness().traffic(id, job.now());
    if (job.initial())
      for (const WorkerId id : known.message.busy) workers.busy(id);
    stragglers.traffic_seen(known);
    servers.reported(known);
  }

  void on(const FromWorker<ServersHeard>& e) {
    const Worker* w = workers.find(e.worker);
    if (w && w->state != WorkerState::kGone) servers.data_seen(e);
  }

  void on(const ProcessInspected& e) {
    if (e.process.role == Role::kServer)
      servers.inspected(ServerId(e.process.id), e.text);
    else
      stragglers.inspected(WorkerId(e.process.id), e.text);
  }

  void on(const Tick&) {
    lost_time.tick();
    hosts_lost(host_watch.tick());
    servers.tick();
    if (job.ending) return;
    stragglers.check_boundary_timeout();
    stragglers.check_hangs();
    workers.check_start();
    views.check_least();
    workers.check_timeouts();
    group.tick();
  }

  void hosts_lost(const std::vector<HostWatch::Lost>& all) {
    std::set<Host> gone;
    for (const auto& lost : all) {
      gone.insert(lost.host);
      if (std::ranges::any_of(job.boundary.contributors(),
                              [&](WorkerId id) { return workers.find(id)->host == lost.host; }))
        lost_time.member_died(lost.since);
      hosts.lost(lost.host);
      group.host_lost(lost.host);
    }
    for (const auto& [host, why, since] : all) {
      if (job.ending) return;
      job.note(Note::kFailure, "host_lost", fmt::format("{} is lost: {}", host, why), host);
      processes_lost(host, why, gone);
      if (!job.ending) hosts.forget_agent(host);
      job.add(ReleaseHost{host});
    }
  }

  /// `unreachable`: hosts on which nothing can be started either, this one among them.
  void processes_lost(const Host& host, const std::string& why,
                      const std::set<Host>& unreachable = {}) {
    group.processes_lost(host);
    servers.host_lost(host, why, unreachable);
    if (!job.ending) workers.host_lost(host, why);
  }

  // -------------------------------------------------------------- records

  void replay(const Record& r) {
    apply(r);
    for (Note& change : change_notes(r)) {
      const auto rank = job.boundary.rank_of(*change.worker);
      past_changes.push_back(
          {std::move(change), job.boundary.generation(), job.boundary.epoch(), rank});
    }
  }

  void apply(const Record& r) {
    std::visit(
        [this](const auto& one) {
          apply_to(one, job, hosts, checkpoints, servers, views, stragglers, workers, lost_time,
                   group, notices);
        },
        r);
  }

  // -------------------------------------------------------------- the job's end

  void let_hosts_go() {
    if (job.ending) return;
    const Membership& membership = workers.membership();
    for (const Host& host : job.agenda.hosts())
      if (hosts.at(host).is_attached() && membership.wanted(host) == 0 &&
          !membership.anyone_runs_on(host) && !servers.serves(host))
        hosts.let_go(host);
  }

  void end_if_futile() {
    if (job.ending || job.finishing() || job.initial()) return;
    if (job.futile.rollbacks() == 0 && job.futile.count() == 0) return;
    const std::uint32_t limit = workers.futile_limit();
    if (job.futile.rollbacks() > limit)
      job.end(kExitNoProgress,
              fmt::format("{} times servers were lost and no new epoch began between them "
                          "(--max-futile-restarts): {}",
                          limit, servers.why()));
    else if (job.futile.count() > limit)
      job.end(
          kExitNoProgress,
          fmt::format("{} restarts and no epoch completed between them (--max-futile-restarts): {}",
                      limit, job.futile.why()));
  }

  void end_if_over() {
    if (job.ending) return;
    const Membership& membership = workers.membership();
    if (!job.finishing() && (job.initial() || membership.anyone_runs())) return;
    const bool all_gone = std::ranges::all_of(job.boundary.contributors(), [this](WorkerId id) {
      const Worker* w = workers.find(id);
      return !w || w->state == WorkerState::kGone;
    });
    if (job.finishing() && all_gone && !workers.anyone_leaves()) {
      if (servers.awaits_opaque(workers.last_change())) return;
      const auto& [code, why] = workers.failure();
      return job.end(code,
                     code == 0 ? std::string("the job has finished") : "the job failed: " + why,
                     membership.anyone_runs() ? job.options.stop_grace : Duration{});
    }
    if (job.finishing()) return;
    // Nobody is left. A worker may come again only from a host that is not given up.
    for (const Host& host : membership.hosts())
      if (membership.wanted(host) > 0 && !hosts.is_given_up(host)) return;
    const auto is_given_up = [](const auto& one) { return one.second.given_up; };
    if ((membership.nobody_stays() || membership.has_anyone_departed()) &&
        std::ranges::none_of(hosts.all(), is_given_up))
      return job.end(kExitHostsGone, "every host has gone away: start the job again", Duration{});
    job.end(workers.first_death() == 0 ? 1 : workers.first_death(),
            "no worker is left and every host has used up its restarts", Duration{});
  }

  [[nodiscard]] std::string_view phase() const {
    if (job.ending) return "ended";
    if (job.finishing()) return "finishing";
    if (job.restarts_group()) return group.all_run() ? "running" : "starting";
    return job.initial() ? "starting" : "running";
  }
};

Job::Job(JobOptions options, const std::vector<Record>& records, Instant now)
    : parts_(std::make_unique<Parts>(std::move(options), records, now)) {}
Job::~Job() = default;

std::vector<Effect> Job::begin(Term term, Instant now) { return parts_->begin(term, now); }
std::vector<Effect> Job::step(const JobEvent& event, Instant now) {
  return parts_->step(event, now);
}
std::string Job::unsettled(Instant now) { return parts_->unsettled(now); }

const HostTable& Job::hosts() const { return parts_->hosts; }
const ServerGroup& Job::servers() const { return parts_->servers; }
const Checkpoints& Job::checkpoints() const { return parts_->checkpoints; }
const Membership& Job::membership() const { return parts_->workers.membership(); }
const Stragglers& Job::stragglers() const { return parts_->stragglers; }
const Notices& Job::notices() const { return parts_->notices; }
const Boundary& Job::boundary() const { return parts_->job.boundary; }
std::string Job::pending_reason() const {
  return parts_->job.restarts_group() ? parts_->group.pending_reason()
                                      : parts_->views.pending_reason();
}
Goodput Job::goodput() const { return parts_->lost_time.so_far(); }
std::uint64_t Job::log_lines() const { return parts_->job.log_lines; }
const std::vector<PastChange>& Job::past_changes() const { return parts_->past_changes; }
std::uint32_t Job::group_restarts() const { return parts_->job.group_restarts; }
bool Job::group_stops() const { return parts_->job.group_stops; }
bool Job::opened() const { return parts_->job.opened; }
bool Job::finishing() const { return parts_->job.finishing(); }
bool Job::ending() const { return parts_->job.ending.has_value(); }
std::string_view Job::phase() const { return parts_->phase(); }

}  // namespace dt
