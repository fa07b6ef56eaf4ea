#include <algorithm>
#include <set>
#include <utility>

#include "test/sim/cluster.h"

namespace dt::sim {

using namespace std::chrono_literals;

void Cluster::agent_ends(std::size_t i, const char* why) {
  Machine& m = machines_[i];
  if (!m.agent.alive) return;
  trace(19, i, "{}: agent ends ({})", m.host, why);
  const auto processes = std::move(m.agent.processes);
  const auto link = m.link.id;
  m.agent = Agent{};
  for (const auto& [id, p] : processes) {
    if (!processes_[p].running) continue;
    processes_[p].running = false;
    processes_[p].ended = now_;
    checkers_->on_process_end(id, ExitStatus{0, 9});
  }
  check_rounds();
  after(rng_.time(1ms, 200ms), [this, i, link] { break_link(i, link); });
}

void Cluster::start_process(std::size_t i, ProcessId id, bool newcomer) {
  Machine& m = machines_[i];
  if (const auto known = m.agent.processes.find(id); known != m.agent.processes.end()) {
    const Process& p = processes_[known->second];
    if (p.exit) return say(i, ProcessEnded{id, *p.exit, "", p.never_ran});
    if (id.role == Role::kWorker && !p.stalls) say(i, WorkerStarted{WorkerId(id.id)});
    return;
  }
  trace(20, id.id, "{}: {} is created", m.host, to_string(id));
  if (second_.is_next_there) return checkers_->fail("a process is created beside the next job");
  checkers_->on_process(id);
  const std::size_t index = processes_.size();
  processes_.emplace_back();
  Process& p = processes_.back();
  p.id = id;
  p.host = i;
  p.newcomer = newcomer;
  m.agent.processes[id] = index;
  if (id.role == Role::kServer && options_.opaque_servers) return serve(index);
  if (id.role == Role::kServer) {
    if (rng_.chance(faults_.server_fails)) {
      checkers_->excused_codes.insert(67);
      after(rng_.time(1ms, 600ms), [this, index] { process_ends(index, {1, 0}); });
    }
    after(rng_.time(20ms, 400ms), [this, index] {
      Process& s = processes_[index];
      if (!s.running) return;
      s.listens = true;
      say(s.host,
          FromServer<ServerReady>{ServerId(s.id.id), {machines_[s.host].host.name, 9000, "", ""}});
    });
    after(1s, [this, index] { report_traffic(index); });
    return;
  }
  p.stalls = groups_ > 0 && mode_rng_.chance(faults_.never_runs);
  if (p.stalls) return checkers_->on_doubt(m.host);
  say(i, WorkerStarted{WorkerId(id.id)});
  if (restarts_) return train_in_group(index);
  if (opaque_) {
    const bool ok = !rng_.chance(0.1);
    after(rng_.time(1s, 20s), [this, index, ok] { process_ends(index, {ok ? 0 : 3, 0}); });
    return;
  }
  const bool fails = rng_.chance(newcomer ? faults_.newcomer_fails : faults_.base_fails);
  if (fails) {
    const bool never = rng_.chance(0.3);
    p.never_ran = never;
    after(never ? 0s : rng_.time(10ms, 2s), [this, index, never] {
      process_ends(index, {never ? 127 : 1, 0});
    });
    if (never) return;
  } else if (newcomer && rng_.chance(faults_.newcomer_hangs)) {
    checkers_->on_trouble(m.host);
    return;
  }
  after(rng_.time(50ms, 1500ms), [this, index] {
    Process& w = processes_[index];
    if (!w.running) return;
    w.opened = true;
    say(w.host, FromWorker<OpenedKvStore>{WorkerId(w.id.id), {}});
    warm_up(index);
  });
}

void Cluster::train_in_group(std::size_t index) {
  if (group_rng_.chance(faults_.worker_fails)) {
    const int code = group_rng_.chance(0.1) ? 0 : 3;
    after(group_rng_.time(100ms, group_rng_.chance(0.5) ? 5s : 90s), [this, index, code] {
      process_ends(index, {code, 0});
    });
  }
  after(group_rng_.time(3s, 6s), [this, index] {
    if (!processes_[index].running) return;
    if (!healed_) return train_in_group(index);
    process_ends(index, {});
  });
}

void Cluster::serve(std::size_t index) {
  if (mode_rng_.chance(faults_.server_fails)) {
    const bool never = processes_[index].never_ran = mode_rng_.chance(0.3);
    after(never ? 0s : mode_rng_.time(1ms, 10s), [this, index, never] {
      process_ends(index, {never ? 127 : 1, 0});
    });
  } else if (mode_rng_.chance(0.1)) {
    after(mode_rng_.time(1s, 20s), [this, index] { process_ends(index, {}); });
  } else if (mode_rng_.chance(0.9)) {
    end_with_workers(index);
  }
}

void Cluster::end_with_workers(std::size_t index) {
  after(mode_rng_.time(100ms, 1500ms), [this, index] {
    const Process& s = processes_[index];
    if (!s.running || s.hung || over_) return;
    const auto runs = [](const Process& p) { return p.running && p.id.role == Role::kWorker; };
    if (std::ranges::any_of(processes_, runs)) return end_with_workers(index);
    process_ends(index, {});
  });
}

void Cluster::start_server(std::size_t i, const StartServer& e) {
  const std::size_t before = processes_.size();
  start_process(i, {Role::kServer, e.server.value}, false);
  if (processes_.size() == before) return;
  Process& s = processes_.back();
  const auto since = since_.find(e.server);
  if (since == since_.end()) return;
  s.since = since->second;
  s.values = e.checkpoint ? e.checkpoint : options_.first_epoch;
  s.damaged = damaged_.count(e.checkpoint) > 0;
  // It reports that now, or when a worker requests the values.
  if (s.damaged && damage_rng_.chance(0.5))
    after(damage_rng_.time(5ms, 500ms), [this, index = before] { say_unusable(index); });
  if (!e.checkpoint) return;
  if (!kept_.count(*e.checkpoint))
    return checkers_->fail(
        fmt::format("server {} begins with a checkpoint of epoch {} that is not "
                    "on the volume",
                    e.server, *e.checkpoint));
  s.chain = kept_[*e.checkpoint].values;
}

void Cluster::told_servers(std::size_t index, const Servers& servers) {
  Process& w = processes_[index];
  if (w.hung || (w.has_servers && servers.since <= w.since)) return;
  const bool replaced = w.has_servers;
  w.has_servers = true;
  w.since = servers.since;
  if (!replaced) return warm_up(index);
  w.done.reset();
  w.crossed.reset();
  if (w.released) w.epoch = servers.epoch;
  const std::uint64_t turn = ++w.turn;
  if (!w.released && !w.arrived) return;  // it has not arrived yet
  const Duration d = rng_.chance(0.1) ? rng_.time(0s, 3s) : rng_.time(1ms, 300ms);
  after(d, [this, index, turn, epoch = servers.epoch] {
    if (processes_[index].turn == turn) arrive(index, epoch);
  });
}

void Cluster::check_values(const Process& worker, const Release& r) {
  std::optional<std::uint64_t> chain;
  for (Process& s : processes_) {
    if (!s.running || s.id.role != Role::kServer || s.since != worker.since) continue;
    if (s.generation < r.generation)
      return checkers_->fail(
          fmt::format("worker {} is released in generation {}, server {} is in "
                      "generation {}",
                      worker.id.id, r.generation, s.id.id, s.generation));
    if (std::count(s.set.begin(), s.set.end(), WorkerId(worker.id.id)) == 0) continue;
    if (!s.values) s.values = r.epoch;
    // Without a contributor an epoch starts again with the values of each server.
    if (checkers_->starts_again()) {
      if (*s.values == r.epoch.next()) s.values = r.epoch;
      s.chain = r.generation.value;
    }
    if (*s.values != r.epoch)
      checkers_->fail(fmt::format("worker {} begins epoch {}, server {} has epoch {}'s values",
                                  worker.id.id, r.epoch, s.id.id, *s.values));
    if (chain && *chain != s.chain)
      checkers_->fail(fmt::format("the servers' values of epoch {} are of two jobs", r.epoch));
    chain = s.chain;
  }
}

void Cluster::advance_values() {
  for (Process& s : processes_) {
    if (!s.running || s.id.role != Role::kServer || !s.values || s.set.empty()) continue;
    if (!std::all_of(s.set.begin(), s.set.end(),
                     [&](WorkerId id) { return contributed(id, *s.values, s.since); }))
      continue;
    s.chain = (s.chain ^ (s.values->value + 1)) * 0x100000001b3U;
    s.values = s.values->next();
  }
}

void Cluster::process_ends(std::size_t index, ExitStatus status) {
  Process& p = processes_[index];
  if (!p.running) return;
  p.running = false;
  p.exit = status;
  p.ended = now_;
  trace(21, p.id.id, "{}: {} ends: {}", machines_[p.host].host, to_string(p.id), to_string(status));
  checkers_->on_process_end(p.id, status);
  if (p.newcomer && !p.released) checkers_->on_trouble(machines_[p.host].host);
  say(p.host, ProcessEnded{p.id, status, p.never_ran ? "no such command" : "", p.never_ran});
  check_rounds();
}

void Cluster::warm_up(std::size_t index) {
  Process& w = processes_[index];
  if (!w.running || !w.opened || w.warming || (!w.has_servers && !options_.servers.empty())) return;
  w.warming = true;
  after(1s, [this, index] { report_data(index); });
  after(rng_.time(100ms, w.newcomer ? 6s : 2s),
        [this, index] { arrive(index, processes_[index].newcomer ? Epoch(77) : first_epoch_); });
}

void Cluster::say_unusable(std::size_t index) {
  Process& s = processes_[index];
  if (!s.running || s.hung || std::exchange(s.unusable, true)) return;
  trace(40, s.id.id, "{}: server {} cannot begin with its checkpoint", machines_[s.host].host,
        s.id.id);
  checkers_->on_unusable(ServerId(s.id.id));
  say(s.host, FromServer<GivingUp>{ServerId(s.id.id), {"damaged", true}});
  after(damage_rng_.time(1ms, 300ms), [this, index] { process_ends(index, {1, 0}); });
}

bool Cluster::meets_damage(const Process& worker) {
  bool is_damaged = false;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const Process& s = processes_[i];
    if (s.id.role != Role::kServer || s.since != worker.since || !s.damaged) continue;
    is_damaged = true;
    after(damage_rng_.time(1ms, 300ms), [this, i] { say_unusable(i); });
  }
  return is_damaged;
}

void Cluster::arrive(std::size_t index, Epoch epoch) {
  Process& w = processes_[index];
  if (!w.running || w.hung) return;
  if (meets_damage(w)) {
    // It waits for its values; a worker that has never arrived continues with the next servers.
    after(300ms, [this, index, epoch, turn = w.turn] {
      const Process& then = processes_[index];
      if (then.turn == turn || (!then.released && !then.arrived)) arrive(index, epoch);
    });
    return;
  }
  w.waits = true;
  w.arrived = FromWorker<Arrive>{WorkerId(w.id.id), {epoch, !w.released, w.since}};
  trace(22, w.id.id, "{}: worker {} arrives at epoch {}", machines_[w.host].host, w.id.id, epoch);
  say(w.host, *w.arrived);
}

void Cluster::released(std::size_t index, const Release& r) {
  checkers_->on_release(WorkerId(processes_[index].id.id), r);
  Process& w = processes_[index];
  if (!w.waits || w.hung) return;
  if (r.verdict != Verdict::kLeave && r.generation < w.since) return;  // from the previous servers
  if (r.verdict == Verdict::kLeave) {
    w.waits = false;
    w.told_to_leave = true;
    if (!rng_.chance(faults_.leave_ignored))
      after(rng_.time(10ms, 800ms), [this, index] { process_ends(index, {}); });
    return;
  }
  if (w.released && r.epoch != w.arrived->message.epoch) return;  // a late double
  w.waits = false;
  w.released = true;
  w.epoch = r.epoch;
  check_values(w, r);
  after(rng_.time(200ms, 2s), [this, index, epoch = r.epoch, turn = w.turn] {
    if (processes_[index].turn == turn) trained(index, epoch);
  });
}

void Cluster::trained(std::size_t index, Epoch epoch) {
  Process& w = processes_[index];
  if (!w.running || w.epoch != epoch) return;
  if (!machines_[w.host].data) {
    after(300ms, [this, index, epoch, turn = w.turn] {
      if (processes_[index].turn == turn) trained(index, epoch);
    });
    return;
  }
  if (!healed_ && rng_.chance(faults_.hang_in_epoch * 0.05)) return hang(index);
  w.busy = true;
  if (!options_.servers.empty() && order_rng_.chance(faults_.two_orders)) {
    trace(41, w.id.id, "{}: worker {} begins with another round", machines_[w.host].host, w.id.id);
    w.crossed = epoch;
    return check_rounds();
  }
  w.done = epoch;
  if (!healed_ && rng_.chance(faults_.hang_worker * 0.02)) hang(index);
  check_rounds();
}

void Cluster::hang(std::size_t index) {
  Process& w = processes_[index];
  trace(23, w.id.id, "{}: worker {} hangs", machines_[w.host].host, w.id.id);
  w.hung = true;
  checkers_->on_hang(WorkerId(w.id.id));
}

void Cluster::check_rounds() {
  std::vector<Process*> done;  // now they come to the round that they had left out
  for (Process& w : processes_)
    if (w.running && !w.hung && w.crossed && crossed_complete(w)) done.push_back(&w);
  for (Process* w : done) {
    w->done = std::exchange(w->crossed, std::nullopt);
    w->busy = true;
  }
  advance_values();
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    Process& w = processes_[i];
    if (!w.running || w.id.role != Role::kWorker || !w.done || !round_complete(*w.done, w.since))
      continue;
    const Epoch next = w.done->next();
    if (w.hung) continue;
    w.done.reset();
    w.epoch = next;
    if (next >= epochs_ || (!healed_ && rng_.chance(faults_.exits_early)))
      after(rng_.time(1ms, 300ms), [this, i] { process_ends(i, {}); });
    else
      after(rng_.time(1ms, 50ms), [this, i, next, turn = w.turn] {
        if (processes_[i].turn == turn) arrive(i, next);
      });
  }
}

bool Cluster::crossed_complete(const Process& worker) const {
  return std::ranges::all_of(processes_, [&](const Process& s) {
    if (!s.running || s.id.role != Role::kServer || s.since != worker.since) return true;
    return !s.hung && std::ranges::all_of(s.set, [&](WorkerId id) {
      const Process* other = worker_of(id);
      return other && other->crossed == worker.crossed;
    });
  });
}

const Process* Cluster::worker_of(WorkerId id) const {
  const auto p = std::ranges::find(processes_, ProcessId{Role::kWorker, id.value}, &Process::id);
  return p == processes_.end() ? nullptr : &*p;
}

bool Cluster::waits_in_round(const Process& worker) const {
  return worker.crossed || (worker.done && !round_complete(*worker.done, worker.since));
}

bool Cluster::contributed(WorkerId worker, Epoch epoch, Generation servers) const {
  return std::any_of(processes_.begin(), processes_.end(), [&](const Process& w) {
    return w.id == ProcessId{Role::kWorker, worker.value} && w.since == servers && w.released &&
           ((w.done && *w.done >= epoch) || w.epoch > epoch);
  });
}

bool Cluster::round_complete(Epoch epoch, Generation servers) const {
  const auto n = std::count_if(processes_.begin(), processes_.end(), [&](const Process& s) {
    return s.running && !s.hung && s.id.role == Role::kServer && s.since == servers &&
           std::all_of(s.set.begin(), s.set.end(),
                       [&](WorkerId id) { return contributed(id, epoch, servers); });
  });
  return static_cast<std::size_t>(n) == options_.servers.size();
}

std::set<WorkerId> Cluster::keep_others_waiting() const {
  std::set<WorkerId> out;
  if (!servers_are_well()) return out;
  for (const Process& w : processes_) {
    if (!w.running || w.hung || w.id.role != Role::kWorker || !w.done) continue;
    if (w.since != checkers_->servers_since()) continue;
    const auto& members = checkers_->contributors();
    if (std::ranges::count(members, WorkerId(w.id.id)) == 0) continue;
    for (const WorkerId id : members) {
      const auto h = std::find_if(processes_.begin(), processes_.end(), [id](const Process& p) {
        return p.id == ProcessId{Role::kWorker, id.value} && p.running && p.hung && !p.done;
      });
      if (h == processes_.end() || contributed(id, *w.done, w.since)) continue;
      if (is_heard(machines_[h->host])) out.insert(id);
    }
  }
  return out;
}

void Cluster::server_commit(std::size_t index, const ServerCommit& c) {
  Process& s = processes_[index];
  checkers_->on_server_commit(ServerId(s.id.id), c);
  if (std::pair(c.term, c.generation) < std::pair(s.term, s.generation)) return;
  s.term = c.term;
  s.generation = c.generation;
  s.set = c.contributors;
  save(index, c);
  check_rounds();
  if (rng_.chance(faults_.silent_server)) {
    trace(24, s.id.id, "!! server {} says nothing any more", s.id.id);
    checkers_->excused_codes.insert(67);
    s.hung = true;
  }
  if (s.hung) return;
  const Duration d = rng_.chance(faults_.late_ack) ? rng_.time(0s, 2s) : rng_.time(1ms, 10ms);
  after(d, [this, index, generation = c.generation] {
    Process& then = processes_[index];
    if (!then.running) return;
    then.acked = std::max(then.acked.value_or(generation), generation);
    say(then.host, FromServer<CommitAck>{ServerId(then.id.id), {generation}});
  });
}

void Cluster::save(std::size_t index, const ServerCommit& c) {
  Process& s = processes_[index];
  if (!c.checkpoint || s.asked_to_save >= c.checkpoint) return;
  s.asked_to_save = c.checkpoint;
  // The values must be those of the epoch's beginning.
  for (const Process& w : processes_)
    if (w.running && w.id.role == Role::kWorker && w.released && !w.waits && w.epoch >= c.epoch &&
        w.since == s.since &&
        std::count(c.contributors.begin(), c.contributors.end(), WorkerId(w.id.id)) > 0)
      checkers_->fail(fmt::format("server {} saves epoch {} when worker {} is in epoch {}", s.id.id,
                                  c.epoch, w.id.id, w.epoch));
  saved_[*c.checkpoint] = s.chain;
  if (rng_.chance(faults_.save_hangs)) return;
  Saved saved{
      c.epoch, *c.checkpoint, rng_.chance(faults_.save_fails) ? "no space left" : "", 100, 7, 5};
  after(rng_.time(1ms, rng_.chance(0.1) ? 10s : 300ms), [this, index, saved] {
    Process& then = processes_[index];
    if (!then.running) return;
    then.saved = saved;
    checkers_->on_saved(ServerId(then.id.id), saved);
    say(then.host, FromServer<Saved>{ServerId(then.id.id), saved});
  });
}

void Cluster::report_traffic(std::size_t index) {
  const Process& s = processes_[index];
  if (!s.running || s.hung || over_) return;
  FromServer<Traffic> seen;
  seen.server = ServerId(s.id.id);
  std::set<WorkerId> owing;
  for (Process& w : processes_) {
    if (!w.running || w.id.role != Role::kWorker) continue;
    if (w.warming && machines_[w.host].data && machines_[s.host].data)
      seen.message.alive.push_back(WorkerId(w.id.id));
    if (std::exchange(w.busy, false)) seen.message.busy.push_back(WorkerId(w.id.id));
    const bool counts = std::ranges::count(s.set, WorkerId(w.id.id)) > 0;
    if (!counts || w.since != s.since || !waits_in_round(w)) continue;
    seen.message.waiting.push_back(WorkerId(w.id.id));
    WaitingFor& at = seen.message.waits.emplace_back();
    at.worker = WorkerId(w.id.id);
    at.key = KeyId(w.crossed ? 1 : 0);
    for (const WorkerId id : s.set) {
      const auto* other = worker_of(id);
      const bool is_there =
          w.crossed ? other && other->crossed == w.crossed : contributed(id, *w.done, w.since);
      if (!is_there) owing.insert(at.lacks = id);
    }
  }
  seen.message.owing.assign(owing.begin(), owing.end());
  say(s.host, seen);
  after(1s, [this, index] { report_traffic(index); });
}

void Cluster::report_data(std::size_t index) {
  const Process& w = processes_[index];
  if (!w.running || w.hung || over_) return;
  FromWorker<ServersHeard> seen;
  seen.worker = WorkerId(w.id.id);
  for (const Process& s : processes_)
    if (s.running && !s.hung && s.id.role == Role::kServer && s.since == w.since && s.listens &&
        machines_[w.host].data && machines_[s.host].data && machines_[s.host].up)
      seen.message.servers.emplace_back(s.id.id);
  if (!seen.message.servers.empty()) say(w.host, seen);
  after(1s, [this, index] { report_data(index); });
}

}  // namespace dt::sim
