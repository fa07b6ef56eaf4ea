#include <algorithm>
#include <set>

#include "core/job/job.h"
#include "core/job/job_text.h"
#include "core/job/notes.h"
#include "core/protocol/exit_code.h"

namespace dt {

void Job::settle() {
  // Each pass may enable the next one; every pass that changes something appends a record or sends
  // something once, so this ends.
  if (initial() && worker_code_ != 0) end(worker_code_, worker_why_, options_.stop_grace);
  end_if_futile();
  reach_server_hosts();
  decide_exits();
  stop_unwanted();
  fill_gaps();
  move_newcomers();
  shrink_if_someone_died();
  cross_boundary();
  count_death();
  release();
  let_hosts_go();
  end_if_over();
}

bool Job::usable(const Host& host) const {
  const auto it = hosts_.find(host);
  if (it == hosts_.end()) return true;
  const HostState& h = it->second;
  return !h.given_up && (!h.cooling_until || now_.at >= *h.cooling_until);
}

bool Job::is_given_up(const Host& host) const {
  const auto it = hosts_.find(host);
  return it != hosts_.end() && it->second.given_up;
}

void Job::decide_exits() {
  if (ending_ || !exits_.any() || boundary_.arrivals().empty()) return;
  const auto undecided = exits_.undecided();
  if (initial()) {
    const auto& [id, host] = *undecided.begin();
    return end(1,
               fmt::format("worker {} on {} ended with exit code 0 before its first epoch, and "
                           "others wait for it there",
                           id, host),
               options_.stop_grace);
  }
  for (const auto& [id, host] : undecided) {
    const bool was_wanted = membership_.present(host) < membership_.wanted(host);
    MemberLeft left{id, host, was_wanted, {log_line(false, host)}};
    auto notes = change_notes(left);
    record(std::move(left));
    for (Note& removed : notes) effects_.emplace_back(std::move(removed));
    if (!was_wanted) continue;
    note(Note::Kind::kRefusal, "worker_exited",
         fmt::format("worker {} on {} ended with exit code 0 while others go on; {}", id, host,
                     stays_empty(host)),
         id, host);
  }
}

void Job::stop_unwanted() {
  if (ending_) return;
  std::set<WorkerId> unwanted;
  for (const WorkerId id : membership_.unwanted_newcomers()) unwanted.insert(id);
  // What was to start on a host that is given up would be waited for without end.
  for (const auto& [id, w] : membership_.workers())
    if (on_the_way(w.state) && !may_run(w.state) && is_given_up(w.host)) unwanted.insert(id);
  for (const WorkerId id : unwanted) {
    const Worker* w = membership_.find(id);
    if (w->base && initial()) continue;
    if (w->maybe_started) continue;  // its agent has to be asked first
    const Host host = w->host;
    const char* why = is_given_up(host) ? "its host is given up" : "no longer wanted";
    note(Note::Kind::kInfo, "newcomer_stopped",
         fmt::format("the newcomer worker {} on {} is stopped: {}", id, host, why), id, host);
    if (may_run(w->state)) {
      membership_.advance(id, WorkerEvent::kUnwanted, now_.at);
      effects_.emplace_back(Stop{{Role::kWorker, id.value}, host, options_.stop_grace});
    } else {
      worker_gone(id, ExitStatus{}, why);
    }
  }
}

void Job::fill_gaps() {
  // During the start newcomers may already warm up, once the command is known to be elastic.
  if (ending_ || finishing() || !opened_) return;
  for (const Host& host : membership_.hosts()) {
    if (!usable(host)) continue;
    std::uint32_t there = membership_.present(host);
    const std::uint32_t wanted = membership_.wanted(host);
    for (; there < wanted; ++there) {
      const Edit edit =
          membership_.base_count(host) == wanted ? Edit{} : membership_.added_by(host);
      record(WorkerAllotted{membership_.next_id(), host, edit});
    }
  }
}

void Job::move_newcomers() {
  if (ending_) return;
  std::vector<WorkerId> todo;
  for (const auto& [id, w] : membership_.workers())
    if (w.state == WorkerState::kSeen || w.state == WorkerState::kPreparing) todo.push_back(id);
  for (const WorkerId id : todo) {
    const Worker& w = *membership_.find(id);
    const Host host = w.host;
    HostState& h = hosts_[host];
    if (!usable(host)) continue;
    if (w.state == WorkerState::kSeen) membership_.advance(id, WorkerEvent::kHostChosen, now_.at);
    if (h.link == Link::kNone) {
      h.link = Link::kAttaching;
      effects_.emplace_back(Attach{host, true});
    }
    if (h.link != Link::kUp) continue;
    if (options_.needs_prepare && !h.prepared) {
      if (!h.preparing) {
        h.preparing = true;
        effects_.emplace_back(Prepare{host});
      }
      continue;
    }
    if (w.base && initial() && !knows_ports()) {  // they are in its environment
      reach_first_host();
      continue;
    }
    if (!membership_.advance(id, WorkerEvent::kStartSent, now_.at)) continue;
    StartWorker start;
    start.worker = id;
    start.host = host;
    start.newcomer = !(w.base && initial());
    const auto rank = boundary_.rank_of(id);
    const auto size = static_cast<std::uint32_t>(boundary_.members().size());
    start.rank = rank.value_or(Rank(size));
    start.world_size = rank ? size : size + 1;
    start.epoch = boundary_.epoch() ? boundary_.epoch()->next() : Epoch(0);
    note(Note::Kind::kLaunch, "worker_launched",
         fmt::format("Launching worker node at ip: {}", host.name), id, host);
    effects_.emplace_back(start);
    if (servers_listen()) effects_.emplace_back(TellServers{id, host, server_list()});
  }
}

void Job::reach_first_host() {
  const Host& host = options_.workers.front();
  HostState& first = hosts_[host];
  if (first.link != Link::kNone || !usable(host)) return;
  first.link = Link::kAttaching;
  effects_.emplace_back(Attach{host, true});
}

void Job::shrink_if_someone_died() {
  if (ending_ || initial()) return;
  std::vector<WorkerId> live;
  for (const WorkerId id : boundary_.contributors()) {
    const Worker* w = membership_.find(id);
    if (w && w->state == WorkerState::kMember) live.push_back(id);
  }
  if (live.size() == boundary_.contributors().size()) return;
  if (finishing() && live.empty()) return;
  Committed c;
  c.generation = boundary_.generation().next();
  c.boundary = false;
  c.epoch = *boundary_.epoch();
  c.members = boundary_.members();
  c.contributors = live;
  record(c);
  count_wait_for_dead(live.empty());
  for (const auto& [id, s] : servers_) tell_commit(id);
  if (!live.empty()) {
    for (const WorkerId id : live)
      effects_.emplace_back(
          TellShrunk{id, membership_.find(id)->host, Shrunk{c.generation, live.front()}});
    // At the end one after the other leaves: that is no news.
    if (!finishing())
      note(Note::Kind::kCommit, "shrunk",
           fmt::format("generation {}: epoch {} goes on with worker(s) {}", c.generation, c.epoch,
                       join_ids(live)));
  } else {
    note(Note::Kind::kCommit, "nobody_left",
         fmt::format("generation {}: no member is alive; epoch {} starts again with the first "
                     "worker that is ready",
                     c.generation, c.epoch));
  }
}

void Job::cross_boundary() {
  if (ending_) return;
  if (const auto odd = boundary_.odd_one()) {
    const Worker* w = membership_.find(*odd);
    end(1,
        fmt::format("worker {} on {} begins with epoch {}, another with {}: start all with the "
                    "same epoch",
                    *odd, w->host, boundary_.arrivals().at(*odd),
                    boundary_.arrivals().begin()->second),
        options_.stop_grace);
    return;
  }
  pending_reason_.clear();
  std::optional<Epoch> next = boundary_.complete();
  const bool nobody = boundary_.contributors().empty();
  if (nobody && !initial()) next = boundary_.returns_to().value_or(*boundary_.epoch());
  if (!next) {
    if (!boundary_.arrivals().empty() && !boundary_.missing().empty())
      pending_reason_ =
          fmt::format("the boundary waits for worker(s) {}", join_ids(boundary_.missing()));
    return;
  }
  Plan plan;
  if (!finishing()) plan = membership_.plan(boundary_.contributors(), now_.at, unreachable());
  pending_reason_ = plan.reason;
  if (waits_for_more(plan, *next)) return;
  if (nobody && plan.joins.empty()) return;
  if (finishing() && nobody) return;
  if (!servers_listen()) return;
  commit(*next, plan);
}

bool Job::waits_for_more(const Plan& plan, Epoch next) {
  if (initial() || finishing()) return false;
  const std::size_t least = options_.limits.least;
  const std::size_t members =
      boundary_.contributors().size() + plan.joins.size() - plan.leaves.size();
  if (members >= least) return false;
  pending_reason_ =
      fmt::format("{} of at least {} worker(s) are there (--min-workers)", members, least);
  if (below_least_since_) return true;
  below_least_since_ = now_.at;
  note(Note::Kind::kFailure, "below_min_workers",
       fmt::format("epoch {} waits: {}; the job ends if that lasts {:.0f} s "
                   "(--min-workers-timeout)",
                   next, pending_reason_, seconds(options_.min_workers_timeout)));
  return true;
}

void Job::commit(Epoch epoch, const Plan& plan) {
  const bool saves = saves_at(epoch);
  const bool new_view = !plan.joins.empty() || !plan.leaves.empty() ||
                        boundary_.members() != boundary_.contributors();
  for (const auto& [id, e] : boundary_.arrivals()) to_release_.insert(id);
  const bool returns = boundary_.returns_to().has_value();
  if (returns)
    recovery_is_complete();
  else
    boundary_is_complete(!plan.joins.empty()    ? "join"
                         : !plan.leaves.empty() ? "leave"
                                                : "boundary");
  if (!new_view && !saves) {
    record(EpochBegan{epoch});
    return;
  }
  Committed c;
  c.generation = boundary_.generation().next();
  c.boundary = true;
  c.epoch = epoch;
  for (const WorkerId id : boundary_.contributors())
    if (std::find(plan.leaves.begin(), plan.leaves.end(), id) == plan.leaves.end())
      c.members.push_back(id);
  for (const WorkerId id : plan.joins) {
    c.members.push_back(id);
    LogLine line = log_line(true, membership_.find(id)->host);
    line.seq += c.log.size();
    c.log.push_back(std::move(line));
    to_release_.insert(id);
  }
  c.contributors = c.members;
  c.leavers = plan.leaves;
  c.saves = saves;
  // Base workers become members at the first boundary whether or not it changes the view.
  record(c);
  for (const auto& [id, s] : servers_) tell_commit(id);
  if (!new_view) return;  // it is no news to people
  std::string text = fmt::format("generation {}: epoch {} begins with {} worker(s)", c.generation,
                                 c.epoch, c.members.size());
  if (!plan.joins.empty()) text += fmt::format(", joined: {}", join_ids(plan.joins));
  if (!plan.leaves.empty()) text += fmt::format(", leaving: {}", join_ids(plan.leaves));
  note(Note::Kind::kCommit, "committed", text);
  for (Note& added : change_notes(c)) effects_.emplace_back(std::move(added));
}

bool Job::saves_at(Epoch epoch) {
  if (initial() || finishing() || servers_.empty() || !checkpoints_.is_wanted(epoch, now_.at))
    return false;
  if (checkpoints_.is_idle()) return true;
  if (!checkpoints_.is_late()) return false;
  give_checkpoint_up(fmt::format(
      "epoch {} begins without a checkpoint: the one of epoch {} is still being written", epoch,
      checkpoints_.saving()->epoch));
  return false;
}

void Job::release() {
  if (ending_ || to_release_.empty() || initial()) return;
  if (!boundary_.all_acked(server_ids())) return;
  std::set<WorkerId> out_of_reach;
  for (const WorkerId id : to_release_) {
    Worker* w = membership_.find(id);
    if (!w) continue;
    if (hosts_[w->host].link != Link::kUp) {
      out_of_reach.insert(id);
      continue;
    }
    Release r;
    r.generation = boundary_.generation();
    r.world_size = static_cast<std::uint32_t>(boundary_.members().size());
    r.epoch = *boundary_.epoch();
    if (boundary_.has_returned()) r.verdict = Verdict::kRollback;
    if (w->state == WorkerState::kLeaving) {
      r.verdict = Verdict::kLeave;
    } else if (const auto rank = boundary_.rank_of(id); rank && w->state == WorkerState::kMember) {
      r.rank = *rank;
      r.newcomer = !w->base && !w->greeted;
    } else {
      continue;
    }
    w->greeted = true;
    released_at_ = now_.at;
    count_wait(id);
    effects_.emplace_back(TellRelease{id, w->host, r});
  }
  to_release_ = std::move(out_of_reach);
  if (lost_servers_at_ && boundary_.has_returned()) tell_recovery();
  tell_lost_time();
}

void Job::let_hosts_go() {
  if (ending_) return;
  for (auto& [host, h] : hosts_) {
    if (h.link != Link::kUp && h.link != Link::kDown) continue;
    if (membership_.wanted(host) > 0) continue;
    const bool used =
        std::any_of(membership_.workers().begin(), membership_.workers().end(),
                    [&host = host](const auto& w) {
                      return w.second.host == host && w.second.state != WorkerState::kGone;
                    }) ||
        std::any_of(servers_.begin(), servers_.end(),
                    [&host = host](const auto& s) { return s.second.host == host; });
    if (used) continue;
    h.link = Link::kNone;
    liveness_.forget(host);
    if (h.incarnation != 0) record(AgentKnown{host, {}, 0});
    effects_.emplace_back(ReleaseHost{host});
  }
}

bool Job::anyone_runs() const {
  return std::any_of(membership_.workers().begin(), membership_.workers().end(),
                     [](const auto& w) { return w.second.state != WorkerState::kGone; });
}

void Job::end_if_futile() {
  if (ending_ || finishing() || initial()) return;
  if (futile_rollbacks_ > futile_limit())
    return end(kExitNoProgress,
               fmt::format("{} times servers were lost and no new epoch began between them "
                           "(--max-futile-restarts): {}",
                           futile_limit(), servers_why_),
               options_.stop_grace);
  if (futile_.count() <= futile_limit()) return;
  end(kExitNoProgress,
      fmt::format("{} restarts and no epoch completed between them (--max-futile-restarts): {}",
                  futile_limit(), futile_.why()),
      options_.stop_grace);
}

void Job::end_if_over() {
  if (ending_) return;
  const auto& all = boundary_.contributors();
  const bool all_gone = std::all_of(all.begin(), all.end(), [this](WorkerId id) {
    const Worker* w = membership_.find(id);
    return !w || w->state == WorkerState::kGone;
  });
  const bool someone_leaves =
      std::any_of(membership_.workers().begin(), membership_.workers().end(), [](const auto& w) {
        return w.second.state == WorkerState::kLeaving || w.second.state == WorkerState::kStopping;
      });
  if (finishing() && all_gone && !someone_leaves) {
    if (awaits_opaque_servers()) return;
    end(worker_code_,
        worker_code_ == 0 ? std::string("the job has finished") : "the job failed: " + worker_why_,
        anyone_runs() ? options_.stop_grace : Duration{});
    return;
  }
  if (finishing() || initial() || anyone_runs()) return;
  // Nobody is left. Somebody may come again only from a host that is not given up.
  for (const Host& host : membership_.hosts()) {
    if (membership_.wanted(host) > 0 && !is_given_up(host)) return;
  }
  end(death_code_ == 0 ? 1 : death_code_,
      "no worker is left and every host has used up its restarts", Duration{});
}

}  // namespace dt
