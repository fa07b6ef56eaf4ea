#include <functional>

#include "core/files/change_log.h"
#include "core/files/journal.h"
#include "core/job/goodput.h"
#include "core/job/membership.h"
#include "core/job/notes.h"
#include "core/job/snapshot.h"
#include "test/sim/cluster.h"

namespace dt::sim {

using namespace std::chrono_literals;

namespace {

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;  // clang 16 does not deduce aggregates

}  // namespace

void Cluster::begin_supervisor() {
  if (second_.has_lock || over_) return end_if_taken_over();
  if (second_.is_cut_off) return after(1s, [this] { begin_supervisor(); });
  const auto replay = journal::replay(journal_);
  if (replay.error) return checkers_->fail(replay.error->message);
  journal_.resize(replay.good_size);
  if (journal_.empty()) journal_ = journal::kHeader;
  std::vector<Record> records;
  Term term;
  for (const auto& frame : replay.records) {
    auto record = record_from(frame);
    if (!record) return checkers_->fail(record.error().message);
    if (const auto* t = std::get_if<TermBegan>(&*record)) term = t->term;
    records.push_back(std::move(*record));
  }
  lines_ = log_lines(records);
  std::string whole;
  for (const LogLine& line : lines_) whole += format_change(line);
  if (!whole.starts_with(log_file_))
    return checkers_->fail("host_worker_log has what the journal does not say");
  log_file_ = std::move(whole);
  checkers_->on_log_file(log_file_, false);
  ++life_;
  alive_ = true;
  job_.emplace(options_, records, instant());
  for (const auto& [id, w] : job_->membership().workers())
    if (w.state != WorkerState::kGone) checkers_->on_slot(id, w.slot);
  for (const PastChange& past : job_->past_changes())
    if (past.note.line->seq >= events_.size()) events_.push_back(past.note);
  checkers_->on_events(events_, false);
  term_ = term.next();
  std::vector<Host> accepted;
  for (const HostSlots& s : job_->membership().file())
    accepted.insert(accepted.end(), s.slots, s.host);
  if (records.empty()) accepted = options_.workers;
  watch_.emplace(format_host_worker(accepted), FileWatch::Options{});
  trace(2, term_.value, "supervisor begins term {}", term_);
  // Nothing but a host's agent can tell then what is left.
  if (std::exchange(has_stepped_, false)) checkers_->on_estimate();
  second_.seen = now_;
  second_.is_doubtful = false;
  decided_ = true_instant();
  decided_ahead_ = wall_ahead_;
  carry_out(job_->begin(term_, instant()));
  const auto life = life_;
  const Duration first_look = rng_.time(0s, 1s);
  if (options_.is_elastic) after(first_look, [this, life] { look_at_file(life); });
  after(100ms, [this, life] { tick(life); });
  after(2s, [this, life] { look_at_lock(life); });
  if (options_.checkpoint_interval == Duration{}) return;
  const auto sees_place = [this, life](std::string why_not) {
    return [this, life, why_not] {
      if (life == life_) feed(CheckpointPlaceSeen{why_not});
    };
  };
  const Duration first = damage_rng_.time(100ms, 2s);
  if (damage_rng_.chance(0.2)) after(first, sees_place("no room"));
  if (damage_rng_.chance(0.9)) after(first + damage_rng_.time(1ms, 5s), sees_place(""));
}

void Cluster::crash() {
  trace(3, life_, "supervisor dies");
  ++crashes_;
  alive_ = false;
  job_.reset();
  room_ = {};
  waiting_.clear();
  // The volume's helper may have written a part of the queue.
  flush_log(rng_.between(0, log_queue_.size()));
  log_queue_.clear();
  // No random draw, so that seeds keep their runs. The two lengths are independent.
  events_queue_.resize((journal_.size() + uncut_more_) % (events_queue_.size() + 1));
  flush_events();
  for (Machine& m : machines_) {
    m.link = Link{};
    const std::uint64_t link = m.agent.link;
    const std::size_t i = machine(m.host);
    after(rng_.time(0s, 500ms), [this, i, link] { unlink_agent(i, link); });
  }
  // Sometimes it stays away so long that the agents stop their processes.
  const bool long_away = rng_.chance(0.03);
  if (long_away) excuse();
  after(long_away ? kOrphanTimeout + 5s : rng_.time(200ms, 4s), [this] { begin_supervisor(); });
}

void Cluster::tick(std::uint64_t life) {
  if (!alive_ || life != life_) return;
  if (!over_) {
    look_at_room();
    if (!alive_ || life != life_) return;
    feed(Tick{});
    if (alive_ && life == life_)
      checkers_->on_standstill(instant().at, stands_still(), standstill_shows());
    if (alive_ && life == life_) {
      const bool is_well = !second_.has_lock && !second_.is_doubtful && !room_.is_out();
      checkers_->on_tick(true_instant(), is_well && everyone_waits(),
                         is_well ? keep_others_waiting() : std::set<WorkerId>());
      checkers_->on_servers_hang(instant().at, is_well ? hanging_servers() : std::set<ServerId>());
      checkers_->on_servers_are_left(instant().at, is_well && only_servers_are_left());
    }
    if (!second_.is_cut_off && !second_.has_lock && rng_.chance(0.3)) {
      flush_log(log_queue_.size());
      flush_events();
      second_.copy = journal_;
    }
    cut_journal();
  }
  if (alive_ && life == life_ && !over_) after(100ms, [this, life] { tick(life); });
}

void Cluster::cut_journal() {
  constexpr std::size_t kMore = 400;
  if (!cuts_ || !alive_ || room_.is_out() || !log_queue_.empty() || !events_queue_.empty()) return;
  if (journal_.size() < cut_size_ + kMore) return;
  std::vector<Record> records;
  for (const auto& frame : journal::replay(journal_).records)
    records.push_back(record_from(frame).value());
  std::string shorter(journal::kCutHeader);
  for (const Record& record : snapshot(records)) shorter += bytes_of(record);
  uncut_more_ += journal_.size() - shorter.size();  // modulo 2^64: it may be longer
  journal_ = std::move(shorter);
  cut_size_ = journal_.size();
  ++cut_count_;
}

void Cluster::feed(const JobEvent& event) {
  if (!alive_ || over_ || checkers_->failure()) return;
  if (const auto* a = std::get_if<FromWorker<Arrive>>(&event))
    heard_[a->worker] = {life_, a->message.epoch, a->message.servers};
  if (room_.is_out()) {
    if (supervisor::JournalRoom::matters(event)) waiting_.push_back(event);
    return;
  }
  decided_ = true_instant();
  decided_ahead_ = wall_ahead_;
  const auto effects = job_->step(event, instant());
  if (const std::string undone = job_->unsettled(instant()); !undone.empty())
    return checkers_->fail(undone);
  carry_out(effects);
  const auto* ended = std::get_if<ProcessEnded>(&event);
  const bool is_server = ended && ended->process.role == Role::kServer;
  if (options_.opaque_servers && is_server && !ended->status.clean() && alive_ && !over_ &&
      !room_.is_out())
    checkers_->fail(fmt::format("the job goes on, and server {} has failed", ended->process.id));
}

void Cluster::carry_out(const std::vector<Effect>& effects) {
  for (auto at = effects.begin(); at != effects.end(); ++at) {
    const Effect& effect = *at;
    if (over_ || checkers_->failure()) return;
    if (is_disk_full_ && std::holds_alternative<Append>(effect))
      return room_.hold({at, effects.end()}, "it is full", now_);
    if (rng_.chance(faults_.crash_per_effect)) {
      if (const auto* append = std::get_if<Append>(&effect); append && rng_.chance(0.5)) {
        const std::string bytes = bytes_of(append->record);
        journal_ += bytes.substr(0, rng_.between(0, bytes.size() - 1));
      }
      return crash();
    }
    std::visit([this](const auto& e) { act(e); }, effect);
  }
}

std::string Cluster::bytes_of(const Record& record) {
  const wire::Frame frame = to_frame(record);
  return journal::append_bytes(frame.type, frame.body);
}

void Cluster::act(const Append& e) {
  journal_ += bytes_of(e.record);
  trace(4, e.record.index(), "  journal: {}", describe(e.record));
  Record seen = e.record;
  if (auto* notice = std::get_if<NoticeTaken>(&seen); notice && notice->deadline_ns != kNoDeadline)
    notice->deadline_ns -= decided_ahead_.count();
  checkers_->on_record(seen, true_instant());
  if (std::holds_alternative<Committed>(e.record)) ++commits_;
  if (std::holds_alternative<GroupBegan>(e.record)) ++commits_, ++groups_;
  if (const auto* back = std::get_if<RolledBack>(&e.record)) {
    ++rollbacks_;
    ServerId id = back->first;
    for (std::size_t n = 0; n < back->servers.size(); ++n, id = id.next())
      since_[id] = back->generation;
  }
  for (const LogLine& line : log_lines({e.record})) {
    lines_.push_back(line);
    log_queue_ += format_change(line);
  }
}

void Cluster::act(const Attach& e) {
  if (second_.is_doubtful && e.start)
    return checkers_->fail("it starts an agent, and the lock is in doubt");
  Machine& m = machines_[machine(e.host)];
  m.link.wanted = true;
  m.link.start = e.start;
  m.link.ever = !e.start;
  trace(5, machine(e.host), "  attach {}{}", e.host, e.start ? "" : " again");
  try_attach(machine(e.host), rng_.time(10ms, 500ms));
}

void Cluster::act(const ReleaseHost& e) {
  const std::size_t i = machine(e.host);
  Machine& m = machines_[i];
  trace(6, i, "  let go of {}", e.host);
  std::erase_if(waiting_, [&e](const JobEvent& event) {
    return supervisor::JournalRoom::is_void(event, e.host);
  });
  m.link.wanted = false;
  ++m.link.tries;
  end_prepare(i, "no longer wanted");
  if (!m.link.up) return;
  m.link.leaving = true;
  to_agent(i, [this, i] { agent_ends(i, "released"); });
  const std::uint64_t id = m.link.id;
  after(3s, [this, i, id] {
    if (machines_[i].link.id == id && machines_[i].link.leaving) machines_[i].link = Link{};
  });
}

void Cluster::act(const Prepare& e) {
  const std::size_t i = machine(e.host);
  trace(7, i, "  prepare {}", e.host);
  const auto life = life_;
  const std::uint64_t run = ++prepares_[i];
  const bool fails = rng_.chance(faults_.prepare_fails);
  const Duration d = fails && rng_.chance(0.3) ? rng_.time(5s, 30s) : rng_.time(50ms, 2s);
  after(d, [this, i, life, run, fails] {
    if (life != life_ || prepares_[i] != run) return;
    prepares_[i] = 0;
    if (fails) {
      checkers_->excused_codes.insert(65);
      checkers_->on_trouble(machines_[i].host);
      checkers_->on_doubt(machines_[i].host);
      checkers_->on_failed_try();
    }
    feed(PrepareEnded{machines_[i].host, !fails, fails ? "exit code 1" : ""});
  });
}

void Cluster::end_prepare(std::size_t i, const char* why) {
  if (prepares_[i] == 0) return;
  prepares_[i] = 0;
  const auto life = life_;
  after(0s, [this, i, life, why] {
    if (life == life_) feed(PrepareEnded{machines_[i].host, false, why});
  });
}

void Cluster::act(const StartWorker& e) {
  if (second_.is_doubtful) return checkers_->fail("it starts a process, and the lock is in doubt");
  const std::size_t i = machine(e.host);
  trace(8, e.worker.value, "  start worker {} on {}{}", e.worker, e.host,
        e.newcomer ? " (newcomer)" : "");
  checkers_->on_slot(e.worker, job_->membership().find(e.worker)->slot);
  to_agent(i, [this, i, e] { start_process(i, {Role::kWorker, e.worker.value}, e.newcomer); });
}

void Cluster::act(const StartServer& e) {
  if (second_.is_doubtful) return checkers_->fail("it starts a process, and the lock is in doubt");
  const std::size_t i = machine(e.host);
  trace(9, e.server.value, "  start server {} on {}", e.server, e.host);
  checkers_->on_server_start();
  to_agent(i, [this, i, e] { start_server(i, e); });
}

void Cluster::act(const Stop& e) {
  const std::size_t i = machine(e.host);
  trace(10, e.process.id, "  stop {} on {}", to_string(e.process), e.host);
  const Duration grace = e.grace;
  const ProcessId id = e.process;
  if (id.role == Role::kWorker) checkers_->on_stop(WorkerId(id.id));
  to_agent(i, [this, i, id, grace] {
    const auto p = machines_[i].agent.processes.find(id);
    if (p == machines_[i].agent.processes.end()) return;
    const std::size_t process = p->second;
    Duration d = grace == Duration{} ? 0s : rng_.time(0s, grace);
    int signal = grace == Duration{} ? 9 : 15;
    if (restarts_ && signal == 15 && group_rng_.chance(0.5)) signal = 0;  // it is polite
    if (next_notice_ > 0 && signal == 15 && notice_rng_.chance(0.5)) signal = 0;
    if (restarts_ && group_rng_.chance(faults_.unkillable)) {
      d = grace + group_rng_.time(1s, 40s);
      checkers_->on_unkillable(WorkerId(id.id));
      checkers_->on_doubt(machines_[i].host);
    }
    after(d, [this, process, signal] { process_ends(process, ExitStatus{0, signal}); });
  });
}

void Cluster::act(const Inspect& e) {
  const std::size_t i = machine(e.host);
  const ProcessId id = e.process;
  if (options_.opaque_servers && id.role == Role::kServer)
    return checkers_->fail("an opaque server is taken for silent");
  to_agent(i, [this, i, id] { say(i, ProcessInspected{id, "train (pid 7): sleeping (S)"}); });
}

void Cluster::act(const Acknowledge& e) {
  const std::size_t i = machine(e.host);
  const ProcessId id = e.process;
  to_agent(i, [this, i, id] {
    auto& known = machines_[i].agent.processes;
    const auto p = known.find(id);
    if (p != known.end() && !processes_[p->second].running) known.erase(p);
  });
}

void Cluster::act(const SendToWorker<Servers>& e) {
  to_process(machine(e.host), {Role::kWorker, e.worker.value},
             [this, servers = e.message](std::size_t p) { told_servers(p, servers); });
}

void Cluster::act(const SendToWorker<Release>& e) {
  // A first arrival names the worker's own epoch, which it may reach later.
  if (const auto heard = heard_.find(e.worker);
      heard != heard_.end() && heard->second.epoch != e.message.epoch)
    heard_.erase(heard);
  trace(11, e.worker.value, "  release worker {}: {} epoch {} rank {}/{} generation {}", e.worker,
        e.message.verdict == Verdict::kLeave      ? "leave"
        : e.message.verdict == Verdict::kRollback ? "roll back"
                                                  : "continue",
        e.message.epoch, e.message.rank, e.message.world_size, e.message.generation);
  const Release r = e.message;
  checkers_->on_release_sent(e.worker, r, decided_);
  to_process(machine(e.host), {Role::kWorker, e.worker.value},
             [this, r](std::size_t p) { released(p, r); });
}

void Cluster::act(const SendToWorker<Shrunk>&) {}

void Cluster::act(const SendCommit& e) {
  if (options_.opaque_servers) return checkers_->fail("a commit is sent to an opaque server");
  trace(12, e.message.generation.value, "  commit to server {}: generation {} [{}]{}", e.server,
        e.message.generation, fmt::join(e.message.contributors, ","),
        e.message.boundary ? "" : " shrunk");
  const ServerCommit c = e.message;
  to_process(machine(e.host), {Role::kServer, e.server.value},
             [this, c](std::size_t p) { server_commit(p, c); });
}

void Cluster::act(const SealCheckpoint& e) {
  const Generation generation = e.generation;
  const Epoch epoch = e.epoch;
  trace(37, epoch.value, "  seal the checkpoint of epoch {}", epoch);
  const auto life = life_;
  const bool cannot = rng_.chance(faults_.seal_fails);
  // The volume's helper outlives a supervisor for the moment that a rename takes.
  after(rng_.time(1ms, rng_.chance(0.1) ? 10s : 100ms), [this, life, cannot, generation, epoch] {
    // The values that count are those of the newest job there was: a late seal of an older one
    // fails.
    const auto newest = kept_.find(epoch);
    const bool fails = cannot || (newest != kept_.end() && generation < newest->second.generation);
    const bool breaks = !fails && !healed_ && damage_rng_.chance(faults_.damage);
    // Sealing again has no effect.
    if (!fails && sealed_.insert(generation).second) {
      kept_[epoch] = {generation, saved_[generation]};
      if (breaks)
        damaged_.insert(epoch);
      else
        damaged_.erase(epoch);
      checkers_->on_sealed(epoch, generation);
    }
    if (life == life_) feed(CheckpointSealed{generation, fails ? "no space left" : ""});
  });
}

void Cluster::act(const Note& e) {
  trace(13, e.what.size(), "  - {}", e.text);
  if (e.line) events_queue_.push_back(e);
  if (e.what == "standstill") checkers_->on_told_standstill(instant().at);
}

void Cluster::act(const End& e) {
  trace(14, static_cast<std::uint64_t>(e.exit_code), "  END {}: {}", e.exit_code, e.message);
  // No more time can be lost than there was; time is counted by ticks.
  const Goodput time = job_->goodput();
  if (time.lost() > time.total() + 1s)
    checkers_->fail(fmt::format("more time was lost than there was: {}", time.summary()));
  if (e.exit_code == 0 && servers_have_time())
    checkers_->fail("the job ends before its opaque servers, which still have time");
  over_ = true;
  over_at_ = now_;
  exit_code_ = e.exit_code;
  if (!second_.has_lock) {
    flush_log(log_queue_.size());
    checkers_->on_log_file(log_file_, true);
    flush_events();
    checkers_->on_events(events_, true);
    checkers_->on_end(e.exit_code, e.message);
  }
  for (std::size_t i = 0; i < machines_.size(); ++i)
    if (machines_[i].link.up) shut_down(i);
}

void Cluster::shut_down(std::size_t i) {
  to_agent(i, [this, i] {
    after(rng_.time(0s, options_.stop_grace), [this, i] { agent_ends(i, "shut down"); });
  });
}

void Cluster::flush_log(std::size_t bytes) {
  log_file_ += log_queue_.substr(0, bytes);
  log_queue_.erase(0, bytes);
  if (bytes > 0) checkers_->on_log_file(log_file_, false);
}

void Cluster::flush_events() {
  if (events_queue_.empty()) return;
  events_.insert(events_.end(), events_queue_.begin(), events_queue_.end());
  events_queue_.clear();
  checkers_->on_events(events_, false);
}

void Cluster::look_at_file(std::uint64_t life) {
  if (!alive_ || life != life_ || over_) return;
  const Observation seen = file_ ? Observation{Observation::Kind::kContent, *file_}
                                 : Observation{Observation::Kind::kAbsent, ""};
  const auto result = watch_->observe(seen, now_);
  if (const auto* ok = std::get_if<FileAccepted>(&result)) {
    trace(15, std::hash<std::string>{}(ok->text), "host_worker accepted");
    accepted_.clear();
    for (const HostLine& line : ok->lines) accepted_.push_back(line.host);
    feed(HostsAccepted{sum_slots(ok->lines)});
  }
  if (!alive_ || life != life_ || over_) return;
  at(watch_->next_look(now_), [this, life] { look_at_file(life); });
}

std::string Cluster::describe(const Record& record) {
  return std::visit(
      Overloaded{
          [](const JobBegan&) { return std::string("job"); },
          [](const TermBegan& r) { return fmt::format("term {}", r.term); },
          [](const FileTaken& r) {
            std::string out = fmt::format("edit {}:", r.edit);
            for (const HostSlots& s : r.hosts) out += fmt::format(" {}x{}", s.host, s.slots);
            return out;
          },
          [](const WorkerAllotted& r) {
            return fmt::format("worker {} for {}, edit {}", r.worker, r.host, r.edit);
          },
          [](const HostPrepared& r) { return fmt::format("{} prepared", r.host); },
          [](const Committed& r) {
            return fmt::format("generation {}{}, epoch {}, members [{}], contributors [{}]",
                               r.generation, r.boundary ? " boundary" : "", r.epoch,
                               fmt::join(r.members, ","), fmt::join(r.contributors, ","));
          },
          [](const EpochBegan& r) { return fmt::format("epoch {}", r.epoch); },
          [](const WorkerGone& r) {
            return fmt::format("worker {} gone ({}){}", r.worker, to_string(r.status),
                               r.log.empty() ? "" : ", logged");
          },
          [](const AgentKnown& r) { return fmt::format("agent of {}: {}", r.host, r.incarnation); },
          [](const AgentPlaced& r) { return fmt::format("agent of {} moved", r.host); },
          [](const CheckpointTaken& r) { return fmt::format("checkpoint of epoch {}", r.epoch); },
          [](const RolledBack& r) {
            return fmt::format("generation {}: back to epoch {}, servers from {} on {}",
                               r.generation, r.epoch, r.first, fmt::join(r.servers, " "));
          },
          [](const MemberLeft& r) { return fmt::format("worker {} has left", r.worker); },
          [](const PlacesWanted& r) { return fmt::format("{} place(s) of {}", r.count, r.host); },
          [](const BaseReplaced& r) { return fmt::format("{} replaces {}", r.to, r.from); },
          [](const CheckpointTimed& r) {
            return fmt::format("checkpoint of epoch {}: {} ms, {} bytes", r.epoch, r.took_ms,
                               r.bytes);
          },
          [](const TimeSpent& r) { return fmt::format("{} ns of members' time", r.total_ns); },
          [](const NoticeTaken& r) {
            return fmt::format("{} leaves ({})", r.host ? to_string(*r.host) : "every host", r.why);
          },
          [](const NoticeOver& r) {
            return fmt::format("{} {}", r.host ? to_string(*r.host) : "every host",
                               r.is_cancelled ? "stays" : "has left");
          },
          [](const GroupStops& r) { return fmt::format("the group stops: {}", r.why); },
          [](const GroupBegan& r) {
            return fmt::format("generation {}: a group from worker {} on: {}", r.generation,
                               r.first, fmt::join(r.workers, " "));
          },
          [](const JobEnding& r) { return fmt::format("ending {}", r.exit_code); },
          [](const Snapshot& r) { return fmt::format("{} records left out", r.records); },
      },
      record);
}

}  // namespace dt::sim
