#include "test/sim/cluster.h"

#include <deque>
#include <functional>
#include <queue>

#include "core/change_log.h"
#include "core/file_watch.h"
#include "core/job.h"
#include "core/journal.h"
#include "test/sim/checkers.h"
#include "test/sim/random.h"

namespace dt::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kOrphanTimeout = 30s;
/// Once faults have stopped the job has this long to finish.
constexpr Duration kLiveWithin = 600s;

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};

/// What may go wrong in this run, and how likely. Each seed leaves some of it out.
struct Faults {
  double cut = 0, isolate = 0, kill_worker = 0, kill_agent = 0, kill_host = 0, kill_server = 0;
  double hang_worker = 0, edit = 0, refuse = 0, stop = 0;
  double crash_per_effect = 0, duplicate = 0;
  double newcomer_fails = 0, newcomer_hangs = 0, prepare_fails = 0, base_fails = 0;
  double leave_ignored = 0, late_ack = 0, silent_server = 0;
};

struct Process {
  ProcessId id;
  std::size_t host = 0;
  bool running = true;
  bool hung = false;
  std::optional<ExitStatus> exit;
  bool never_ran = false;
  // What it said, kept by its agent.
  bool opened = false;
  bool listens = false;
  std::optional<WorkerArrived> arrived;
  std::optional<Generation> acked;
  // A worker's own state.
  bool newcomer = false;
  bool has_servers = false;
  bool warming = false;
  bool waits = false;
  bool released = false;
  bool told_to_leave = false;
  Epoch epoch;
  std::optional<Epoch> done;  ///< Trained this epoch; waits for the others' contributions.
  // A server's own state.
  Term term;
  Generation generation;
  std::vector<WorkerId> set;
};

struct Agent {
  bool alive = false;
  std::uint64_t incarnation = 0;
  Term term;
  std::uint64_t link = 0;  ///< 0: none.
  std::uint64_t unlinked = 0;
  std::map<ProcessId, std::size_t> processes;
};

struct Link {  // The supervisor's end.
  bool wanted = false;
  bool start = false;
  bool ever = false;
  bool up = false;
  bool leaving = false;
  bool told_down = false;
  std::uint64_t id = 0;
  std::uint64_t tries = 0;
  Time last_to_agent{};
  Time last_to_supervisor{};
};

struct Machine {
  Host host;
  bool up = true;
  bool control = true;  ///< ssh gets through.
  bool data = true;     ///< Gradients get through.
  int boot = 1;
  Time refuse_until{};
  Time hang_until{};
  Agent agent;
  Link link;
};

class Cluster {
 public:
  Cluster(std::uint64_t seed, bool trace) : rng_(seed), trace_(trace) {
    plan();
    checkers_.emplace(options_.workers, options_.servers.size());
  }

  Outcome run() {
    file_ = format_host_worker(options_.workers);
    begin_supervisor();
    at(faults_end_, [this] { heal(); });
    after(rng_.time(500ms, 3s), [this] { chaos(); });
    if (rng_.chance(faults_.stop))
      after(rng_.time(1s, faults_end_ - Time{}), [this] {
        checkers_->excused_codes.insert(130);
        feed(StopAsked{"stop", 130});
      });
    while (!queue_.empty() && !checkers_->failure()) {
      const Item item = queue_.top();
      queue_.pop();
      now_ = item.at;
      item.act();
      if (over_ && now_ > over_at_ + kOrphanTimeout + 10s) break;
      if (now_ > faults_end_ + kLiveWithin) {
        if (!over_) checkers_->fail("the job has not ended long after the last fault");
        break;
      }
    }
    if (!over_) checkers_->fail("nothing happens any more and the job has not ended");
    if (over_ && !checkers_->failure()) check_end();
    Outcome out;
    out.failure = checkers_->failure();
    out.hash = hash_;
    if (over_) out.exit_code = exit_code_;
    out.took = now_ - Time{};
    out.crashes = crashes_;
    out.commits = commits_;
    out.log_lines = static_cast<std::uint32_t>(lines_.size());
    return out;
  }

 private:
  struct Item {
    Time at;
    std::uint64_t order;
    std::function<void()> act;
    bool operator<(const Item& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  void at(Time when, std::function<void()> act) {
    queue_.push({std::max(when, now_), order_++, std::move(act)});
  }
  void after(Duration d, std::function<void()> act) { at(now_ + d, std::move(act)); }

  template <class... Args>
  void trace(std::uint64_t kind, std::uint64_t what, fmt::format_string<Args...> text,
             Args&&... args) {
    for (const std::uint64_t v :
         {static_cast<std::uint64_t>(now_.time_since_epoch().count()), kind, what})
      hash_ = (hash_ ^ v) * 0x100000001b3U;
    if (trace_)
      fmt::print("{:9.3f}  {}\n", std::chrono::duration<double>(now_.time_since_epoch()).count(),
                 fmt::format(text, std::forward<Args>(args)...));
  }

  // -------------------------------------------------------------- the run's plan

  void plan() {
    const auto sometimes = [this](double chance, double p) { return rng_.chance(chance) ? p : 0; };
    faults_.cut = sometimes(0.5, 3);
    faults_.isolate = sometimes(0.3, 1);
    faults_.kill_worker = sometimes(0.6, 3);
    faults_.kill_agent = sometimes(0.3, 1);
    faults_.kill_host = sometimes(0.2, 1);
    faults_.kill_server = sometimes(0.04, 0.3);
    faults_.hang_worker = sometimes(0.15, 1);
    faults_.refuse = sometimes(0.4, 2);
    faults_.edit = sometimes(0.85, 4);
    faults_.stop = sometimes(0.1, 0.3);
    faults_.crash_per_effect = sometimes(0.5, rng_.chance(0.5) ? 0.01 : 0.05);
    faults_.duplicate = sometimes(0.5, 0.1);
    faults_.newcomer_fails = sometimes(0.4, 0.4);
    faults_.newcomer_hangs = sometimes(0.3, 0.2);
    faults_.prepare_fails = sometimes(0.4, 0.3);
    faults_.base_fails = sometimes(0.05, 0.1);
    faults_.leave_ignored = sometimes(0.2, 0.3);
    faults_.late_ack = sometimes(0.3, 0.2);
    faults_.silent_server = sometimes(0.02, 0.2);

    for (int i = 1; i <= 6; ++i) machine(Host{"", fmt::format("10.0.0.{}", i), 0});
    const std::size_t hosts = rng_.between(1, 3);
    const std::size_t workers = rng_.between(1, 4);
    for (std::size_t i = 0; i < workers; ++i) options_.workers.push_back(machines_[i % hosts].host);
    const std::size_t servers = rng_.between(0, 9) == 0 ? 0 : rng_.between(1, 2);
    const std::size_t first = rng_.chance(0.7) ? 0 : 5;  // beside workers or on a host of their own
    for (std::size_t i = 0; i < servers; ++i)
      options_.servers.push_back(machines_[(first + i) % machines_.size()].host);
    options_.needs_prepare = rng_.chance(0.3);
    options_.max_restarts = static_cast<std::uint32_t>(rng_.between(0, 5));
    options_.start_timeout = 20s;
    options_.leave_timeout = 5s;
    options_.stop_grace = 2s;
    options_.ack_timeout = 10s;
    options_.orphan_timeout = kOrphanTimeout;
    options_.boundary_timeout = 25s;
    opaque_ = rng_.chance(0.04);
    epochs_ = Epoch(static_cast<std::uint32_t>(rng_.between(3, 14)));
    first_epoch_ = rng_.chance(0.9) ? Epoch(0) : Epoch(2);
    faults_end_ = Time{} + rng_.time(5s, 40s);
  }

  std::size_t machine(const Host& host) {
    for (std::size_t i = 0; i < machines_.size(); ++i)
      if (machines_[i].host == host) return i;
    machines_.emplace_back();
    machines_.back().host = host;
    return machines_.size() - 1;
  }

  /// Everything that is broken is mended, for good.
  void heal() {
    trace(1, 0, "---- faults end");
    faults_ = Faults{};
    healed_ = true;
    for (Machine& m : machines_) {
      m.control = m.data = m.up = true;
      m.refuse_until = m.hang_until = Time{};
    }
    if (rng_.chance(0.8)) write_file(next_list());
    check_rounds();
    // Nobody detects a worker that hangs while all wait for its gradient: the user ends it.
    after(30s, [this] {
      for (std::size_t p = 0; p < processes_.size(); ++p)
        if (processes_[p].hung && processes_[p].id.role == Role::kWorker)
          process_ends(p, ExitStatus{0, 9});
    });
  }

  // -------------------------------------------------------------- the supervisor's shell

  void begin_supervisor() {
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
    auto work = change_log_work(log_file_, lines_);
    if (!work) return checkers_->fail(work.error().message);
    log_file_.resize(work->keep);
    log_file_ += work->bytes;
    checkers_->on_log_file(log_file_, false);
    ++life_;
    alive_ = true;
    job_.emplace(options_, records, instant());
    term_ = term.next();
    std::vector<Host> accepted;
    for (const HostSlots& s : job_->membership().file())
      accepted.insert(accepted.end(), s.slots, s.host);
    if (records.empty()) accepted = options_.workers;
    watch_.emplace(format_host_worker(accepted), FileWatch::Options{});
    trace(2, term_.value, "supervisor begins term {}", term_);
    carry_out(job_->begin(term_, instant()));
    const auto life = life_;
    after(rng_.time(0s, 1s), [this, life] { look_at_file(life); });
    after(100ms, [this, life] { tick(life); });
  }

  void crash() {
    trace(3, life_, "supervisor dies");
    ++crashes_;
    alive_ = false;
    job_.reset();
    // The volume's helper may have written a part of what was queued.
    flush_log(rng_.between(0, log_queue_.size()));
    log_queue_.clear();
    for (Machine& m : machines_) {
      m.link = Link{};
      const std::uint64_t link = m.agent.link;
      const std::size_t i = machine(m.host);
      after(rng_.time(0s, 500ms), [this, i, link] { unlink_agent(i, link); });
    }
    // Now and then it stays away for so long that the agents stop everything.
    const bool long_away = rng_.chance(0.03);
    if (long_away) excuse();
    after(long_away ? kOrphanTimeout + 5s : rng_.time(200ms, 4s), [this] { begin_supervisor(); });
  }

  void tick(std::uint64_t life) {
    if (!alive_ || life != life_) return;
    if (!over_) {
      feed(Tick{});
      if (alive_ && life == life_) checkers_->on_tick(now_, everyone_waits());
      if (rng_.chance(0.3)) flush_log(log_queue_.size());
    }
    if (alive_ && life == life_ && !over_) after(100ms, [this, life] { tick(life); });
  }

  void feed(const JobEvent& event) {
    if (!alive_ || over_ || checkers_->failure()) return;
    if (const auto* a = std::get_if<WorkerArrived>(&event)) heard_[a->worker] = {life_, a->epoch};
    carry_out(job_->step(event, instant()));
  }

  void carry_out(const std::vector<Effect>& effects) {
    for (const Effect& effect : effects) {
      if (over_ || checkers_->failure()) return;
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

  static std::string bytes_of(const Record& record) {
    const wire::Frame frame = to_frame(record);
    return journal::append_bytes(frame.type, frame.body);
  }

  void act(const Append& e) {
    journal_ += bytes_of(e.record);
    trace(4, e.record.index(), "  journal: {}", describe(e.record));
    checkers_->on_record(e.record, now_);
    if (std::holds_alternative<Committed>(e.record)) ++commits_;
    for (const LogLine& line : log_lines({e.record})) {
      lines_.push_back(line);
      log_queue_ += format_change(line);
    }
  }
  void act(const Attach& e) {
    Machine& m = machines_[machine(e.host)];
    m.link.wanted = true;
    m.link.start = e.start;
    m.link.ever = !e.start;
    trace(5, machine(e.host), "  attach {}{}", e.host, e.start ? "" : " again");
    try_attach(machine(e.host), rng_.time(10ms, 500ms));
  }
  void act(const ReleaseHost& e) {
    const std::size_t i = machine(e.host);
    Machine& m = machines_[i];
    trace(6, i, "  let go of {}", e.host);
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
  void act(const Prepare& e) {
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
      }
      feed(PrepareEnded{machines_[i].host, !fails, fails ? "exit code 1" : ""});
    });
  }
  void end_prepare(std::size_t i, const char* why) {
    if (prepares_[i] == 0) return;
    prepares_[i] = 0;
    const auto life = life_;
    after(0s, [this, i, life, why] {
      if (life == life_) feed(PrepareEnded{machines_[i].host, false, why});
    });
  }
  void act(const StartWorker& e) {
    const std::size_t i = machine(e.host);
    trace(8, e.worker.value, "  start worker {} on {}{}", e.worker, e.host,
          e.newcomer ? " (newcomer)" : "");
    to_agent(i, [this, i, e] { start_process(i, {Role::kWorker, e.worker.value}, e.newcomer); });
  }
  void act(const StartServer& e) {
    const std::size_t i = machine(e.host);
    trace(9, e.server.value, "  start server {} on {}", e.server, e.host);
    to_agent(i, [this, i, e] { start_process(i, {Role::kServer, e.server.value}, false); });
  }
  void act(const Stop& e) {
    const std::size_t i = machine(e.host);
    trace(10, e.process.id, "  stop {} on {}", to_string(e.process), e.host);
    const Duration grace = e.grace;
    const ProcessId id = e.process;
    to_agent(i, [this, i, id, grace] {
      const auto p = machines_[i].agent.processes.find(id);
      if (p == machines_[i].agent.processes.end()) return;
      const std::size_t process = p->second;
      const Duration d = grace == Duration{} ? 0s : rng_.time(0s, grace);
      after(d, [this, process] { process_ends(process, ExitStatus{0, 15}); });
    });
  }
  void act(const Acknowledge& e) {
    const std::size_t i = machine(e.host);
    const ProcessId id = e.process;
    to_agent(i, [this, i, id] { machines_[i].agent.processes.erase(id); });
  }
  void act(const TellServers& e) {
    to_process(machine(e.host), {Role::kWorker, e.worker.value}, [this](std::size_t p) {
      processes_[p].has_servers = true;
      warm_up(p);
    });
  }
  void act(const TellRelease& e) {
    trace(11, e.worker.value, "  release worker {}: {} epoch {} rank {}/{} generation {}", e.worker,
          e.message.verdict == Verdict::kLeave ? "leave" : "continue", e.message.epoch,
          e.message.rank, e.message.world_size, e.message.generation);
    const Release r = e.message;
    to_process(machine(e.host), {Role::kWorker, e.worker.value},
               [this, r](std::size_t p) { released(p, r); });
  }
  void act(const TellShrunk&) {}
  void act(const TellCommit& e) {
    trace(12, e.message.generation.value, "  commit to server {}: generation {} [{}]{}", e.server,
          e.message.generation, fmt::join(e.message.contributors, ","),
          e.message.boundary ? "" : " shrunk");
    const ServerCommit c = e.message;
    to_process(machine(e.host), {Role::kServer, e.server.value},
               [this, c](std::size_t p) { server_commit(p, c); });
  }
  void act(const Note& e) { trace(13, e.what.size(), "  - {}", e.text); }
  void act(const End& e) {
    trace(14, static_cast<std::uint64_t>(e.exit_code), "  END {}: {}", e.exit_code, e.message);
    over_ = true;
    over_at_ = now_;
    exit_code_ = e.exit_code;
    flush_log(log_queue_.size());
    checkers_->on_log_file(log_file_, true);
    checkers_->on_end(e.exit_code);
    for (std::size_t i = 0; i < machines_.size(); ++i)
      if (machines_[i].link.up) shut_down(i);
  }

  /// The shell's goodbye to one host; hosts that are still being reached get it when they answer.
  void shut_down(std::size_t i) {
    to_agent(i, [this, i] {
      after(rng_.time(0s, options_.stop_grace), [this, i] { agent_ends(i, "shut down"); });
    });
  }

  void flush_log(std::size_t bytes) {
    log_file_ += log_queue_.substr(0, bytes);
    log_queue_.erase(0, bytes);
    if (bytes > 0) checkers_->on_log_file(log_file_, false);
  }

  void look_at_file(std::uint64_t life) {
    if (!alive_ || life != life_ || over_) return;
    const Observation seen = file_ ? Observation{Observation::Kind::kContent, *file_}
                                   : Observation{Observation::Kind::kAbsent, ""};
    const auto result = watch_->observe(seen, now_);
    if (const auto* ok = std::get_if<FileAccepted>(&result)) {
      trace(15, ok->hash, "host_worker accepted");
      feed(HostsAccepted{sum_slots(ok->lines)});
    }
    if (!alive_ || life != life_ || over_) return;
    at(watch_->next_look(now_), [this, life] { look_at_file(life); });
  }

  // -------------------------------------------------------------- links

  void try_attach(std::size_t i, Duration delay) {
    const auto life = life_;
    const auto attempt = ++machines_[i].link.tries;
    after(delay, [this, i, life, attempt] {
      Machine& m = machines_[i];
      if (!alive_ || life != life_ || m.link.tries != attempt || !m.link.wanted) return;
      if (m.link.leaving) return try_attach(i, 100ms);
      if (m.hang_until > now_ && m.link.start && !m.link.ever)
        return try_attach(i, m.hang_until - now_);
      const bool refused = m.refuse_until > now_ && m.link.start && !m.link.ever;
      if (!m.up || !m.control || refused) {
        if (m.link.start && !m.link.ever) {
          m.link.wanted = false;
          checkers_->on_trouble(m.host);
          return feed(AttachFailed{m.host, "connection refused"});
        }
        if (!m.link.told_down) {
          m.link.told_down = true;
          feed(AgentDetached{m.host, "no route", false});
        }
        if (machines_[i].link.wanted) try_attach(i, rng_.time(200ms, 1s));
        return;
      }
      if (!m.agent.alive) {
        if (!m.link.start || m.link.ever) {
          m.link = Link{};
          trace(16, i, "{}: no agent there", m.host);
          checkers_->on_trouble(m.host);
          return feed(AgentDetached{m.host, "no agent there", true});
        }
        m.agent = Agent{};
        m.agent.alive = true;
        m.agent.incarnation = ++incarnations_;
      }
      connect(i);
    });
  }

  void connect(std::size_t i) {
    Machine& m = machines_[i];
    if (m.agent.term > term_) return checkers_->fail("an agent has seen a later term");
    m.agent.term = term_;
    m.agent.link = m.link.id = ++links_;
    m.link.last_to_agent = m.link.last_to_supervisor = now_;
    AgentAttached e{m.host, fmt::format("boot{}", m.boot), m.agent.incarnation, {}};
    std::vector<JobEvent> then;
    for (const auto& [id, index] : m.agent.processes) {
      const Process& p = processes_[index];
      e.processes.push_back({id, static_cast<std::int32_t>(index), p.exit, {}});
      if (p.opened) then.emplace_back(StoreOpened{WorkerId(id.id)});
      if (p.arrived) then.emplace_back(*p.arrived);
      if (p.listens) then.emplace_back(ServerListening{ServerId(id.id), m.host.name, 9000});
      if (p.acked) then.emplace_back(CommitAcked{ServerId(id.id), *p.acked});
      if (p.exit) then.emplace_back(ProcessEnded{id, *p.exit, "", p.never_ran});
    }
    to_supervisor(i, [this, i, e, then] {
      Machine& to = machines_[i];
      trace(17, i, "{}: attached, {} process(es)", to.host, e.processes.size());
      to.link.up = true;
      to.link.ever = true;
      to.link.told_down = false;
      if (over_) return shut_down(i);
      const auto life = life_;
      feed(e);
      for (const JobEvent& event : then)
        if (alive_ && life == life_) feed(event);
    });
  }

  /// The path to a host is gone: both ends notice a little later.
  void cut(std::size_t i) {
    Machine& m = machines_[i];
    m.control = false;
    const auto link = m.link.id;
    after(rng_.time(0s, 900ms), [this, i, link] { break_link(i, link); });
    const auto agents = m.agent.link;
    after(rng_.time(0s, 900ms), [this, i, agents] { unlink_agent(i, agents); });
  }

  void break_link(std::size_t i, std::uint64_t id) {
    Machine& m = machines_[i];
    if (!alive_ || id == 0 || m.link.id != id) return;
    if (m.link.leaving) {
      const bool wanted = m.link.wanted;
      const bool start = m.link.start;
      const auto tries = m.link.tries;
      m.link = Link{};
      m.link.wanted = wanted;
      m.link.start = start;
      m.link.tries = tries;
      return;
    }
    const bool told = m.link.up;
    m.link.up = false;
    m.link.id = 0;
    m.link.told_down = true;
    trace(18, i, "{}: link broken", m.host);
    checkers_->on_trouble(m.host);
    if (told) {
      const auto life = life_;
      feed(AgentDetached{m.host, "connection reset", false});
      if (!alive_ || life != life_) return;
    }
    if (m.link.wanted) try_attach(i, rng_.time(50ms, 500ms));
  }

  void unlink_agent(std::size_t i, std::uint64_t link) {
    Agent& a = machines_[i].agent;
    if (!a.alive || a.link != link) return;
    a.link = 0;
    const auto unlinked = ++a.unlinked;
    const auto incarnation = a.incarnation;
    after(kOrphanTimeout, [this, i, unlinked, incarnation] {
      const Agent& then = machines_[i].agent;
      if (then.alive && then.incarnation == incarnation && then.link == 0 &&
          then.unlinked == unlinked)
        agent_ends(i, "orphaned");
    });
  }

  [[nodiscard]] Duration delay() {
    return rng_.chance(0.1) ? rng_.time(1ms, 300ms) : rng_.time(1ms, 10ms);
  }

  /// In order, maybe twice, lost with the link.
  void to_agent(std::size_t i, std::function<void()> act) {
    Link& link = machines_[i].link;
    if (!link.up) return;
    link.last_to_agent = std::max(link.last_to_agent, now_ + delay());
    const auto id = link.id;
    auto deliver = [this, i, id, act = std::move(act)] {
      const Machine& m = machines_[i];
      if (m.agent.alive && m.agent.link == id && m.control && m.up) act();
    };
    if (rng_.chance(faults_.duplicate)) at(link.last_to_agent, deliver);
    at(link.last_to_agent, std::move(deliver));
  }

  void to_supervisor(std::size_t i, std::function<void()> act) {
    const Machine& m = machines_[i];
    if (!alive_ || m.agent.link == 0 || m.link.id != m.agent.link || !m.control) return;
    Link& link = machines_[i].link;
    link.last_to_supervisor = std::max(link.last_to_supervisor, now_ + delay());
    const auto id = link.id;
    const auto life = life_;
    auto deliver = [this, i, id, life, act = std::move(act)] {
      const Machine& then = machines_[i];
      if (alive_ && life == life_ && then.link.id == id && then.control && then.up) act();
    };
    at(link.last_to_supervisor, std::move(deliver));
  }

  void say(std::size_t i, const JobEvent& event) {
    const auto act = [this, i, event] {
      if (machines_[i].link.up && !machines_[i].link.leaving) feed(event);
    };
    to_supervisor(i, act);
    if (rng_.chance(faults_.duplicate)) to_supervisor(i, act);
  }

  void to_process(std::size_t i, ProcessId id, std::function<void(std::size_t)> act) {
    to_agent(i, [this, i, id, act = std::move(act)] {
      const auto p = machines_[i].agent.processes.find(id);
      if (p == machines_[i].agent.processes.end() || !processes_[p->second].running) return;
      act(p->second);
    });
  }

  // -------------------------------------------------------------- agents and processes

  void agent_ends(std::size_t i, const char* why) {
    Machine& m = machines_[i];
    if (!m.agent.alive) return;
    trace(19, i, "{}: agent ends ({})", m.host, why);
    const auto processes = std::move(m.agent.processes);
    const auto link = m.link.id;
    m.agent = Agent{};
    for (const auto& [id, p] : processes) {
      if (!processes_[p].running) continue;
      processes_[p].running = false;
      checkers_->on_process_end(id, ExitStatus{0, 9});
    }
    check_rounds();
    after(rng_.time(1ms, 200ms), [this, i, link] { break_link(i, link); });
  }

  void start_process(std::size_t i, ProcessId id, bool newcomer) {
    Machine& m = machines_[i];
    if (const auto known = m.agent.processes.find(id); known != m.agent.processes.end()) {
      const Process& p = processes_[known->second];
      if (p.exit) return say(i, ProcessEnded{id, *p.exit, "", p.never_ran});
      if (id.role == Role::kWorker) say(i, WorkerStarted{WorkerId(id.id)});
      return;
    }
    trace(20, id.id, "{}: {} is created", m.host, to_string(id));
    checkers_->on_process(id);
    const std::size_t index = processes_.size();
    processes_.emplace_back();
    Process& p = processes_.back();
    p.id = id;
    p.host = i;
    p.newcomer = newcomer;
    m.agent.processes[id] = index;
    if (id.role == Role::kServer) {
      after(rng_.time(20ms, 400ms), [this, index] {
        Process& s = processes_[index];
        if (!s.running) return;
        s.listens = true;
        say(s.host, ServerListening{ServerId(s.id.id), machines_[s.host].host.name, 9000});
      });
      after(1s, [this, index] { report_traffic(index); });
      return;
    }
    say(i, WorkerStarted{WorkerId(id.id)});
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
      say(w.host, StoreOpened{WorkerId(w.id.id)});
      warm_up(index);
    });
  }

  void process_ends(std::size_t index, ExitStatus status) {
    Process& p = processes_[index];
    if (!p.running) return;
    p.running = false;
    p.exit = status;
    trace(21, p.id.id, "{}: {} ends: {}", machines_[p.host].host, to_string(p.id),
          to_string(status));
    checkers_->on_process_end(p.id, status);
    if (p.newcomer && !p.released) checkers_->on_trouble(machines_[p.host].host);
    say(p.host, ProcessEnded{p.id, status, p.never_ran ? "no such command" : "", p.never_ran});
    check_rounds();
  }

  void warm_up(std::size_t index) {
    Process& w = processes_[index];
    if (!w.running || !w.opened || w.warming || (!w.has_servers && !options_.servers.empty()))
      return;
    w.warming = true;
    after(rng_.time(100ms, w.newcomer ? 6s : 2s),
          [this, index] { arrive(index, processes_[index].newcomer ? Epoch(77) : first_epoch_); });
  }

  void arrive(std::size_t index, Epoch epoch) {
    Process& w = processes_[index];
    if (!w.running || w.hung) return;
    w.waits = true;
    w.arrived = WorkerArrived{WorkerId(w.id.id), epoch, !w.released};
    trace(22, w.id.id, "{}: worker {} arrives at epoch {}", machines_[w.host].host, w.id.id, epoch);
    say(w.host, *w.arrived);
  }

  void released(std::size_t index, const Release& r) {
    checkers_->on_release(WorkerId(processes_[index].id.id), r);
    Process& w = processes_[index];
    if (!w.waits || w.hung) return;
    if (r.verdict == Verdict::kLeave) {
      w.waits = false;
      w.told_to_leave = true;
      if (!rng_.chance(faults_.leave_ignored))
        after(rng_.time(10ms, 800ms), [this, index] { process_ends(index, {}); });
      return;
    }
    if (w.released && r.epoch != w.arrived->epoch) return;  // a late double
    w.waits = false;
    w.released = true;
    w.epoch = r.epoch;
    after(rng_.time(200ms, 2s), [this, index, epoch = r.epoch] { trained(index, epoch); });
  }

  void trained(std::size_t index, Epoch epoch) {
    Process& w = processes_[index];
    if (!w.running || w.epoch != epoch) return;
    if (!machines_[w.host].data) {
      after(300ms, [this, index, epoch] { trained(index, epoch); });
      return;
    }
    w.done = epoch;
    if (!healed_ && rng_.chance(faults_.hang_worker * 0.02)) {
      trace(23, w.id.id, "{}: worker {} hangs", machines_[w.host].host, w.id.id);
      w.hung = true;
    }
    check_rounds();
  }

  /// Who has trained its epoch goes on when all whom the servers wait for have contributed.
  void check_rounds() {
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      Process& w = processes_[i];
      if (!w.running || w.id.role != Role::kWorker || !w.done || !round_complete(*w.done)) continue;
      const Epoch next = w.done->next();
      if (w.hung) continue;
      w.done.reset();
      w.epoch = next;
      if (next >= epochs_)
        after(rng_.time(1ms, 300ms), [this, i] { process_ends(i, {}); });
      else
        after(rng_.time(1ms, 50ms), [this, i, next] { arrive(i, next); });
    }
  }

  [[nodiscard]] bool round_complete(Epoch epoch) const {
    for (const Process& s : processes_) {
      if (!s.running || s.id.role != Role::kServer) continue;
      for (const WorkerId id : s.set) {
        const bool contributed =
            std::any_of(processes_.begin(), processes_.end(), [&](const Process& w) {
              return w.id == ProcessId{Role::kWorker, id.value} &&
                     ((w.done && *w.done >= epoch) || w.epoch > epoch);
            });
        if (!contributed) return false;
      }
    }
    return true;
  }

  void server_commit(std::size_t index, const ServerCommit& c) {
    Process& s = processes_[index];
    checkers_->on_server_commit(ServerId(s.id.id), c);
    if (std::pair(c.term, c.generation) < std::pair(s.term, s.generation)) return;
    s.term = c.term;
    s.generation = c.generation;
    s.set = c.contributors;
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
      say(then.host, CommitAcked{ServerId(then.id.id), generation});
    });
  }

  void report_traffic(std::size_t index) {
    const Process& s = processes_[index];
    if (!s.running || over_) return;
    TrafficSeen seen;
    for (const Process& w : processes_)
      if (w.running && w.id.role == Role::kWorker && w.warming && machines_[w.host].data &&
          machines_[s.host].data)
        seen.alive.push_back(WorkerId(w.id.id));
    say(s.host, seen);
    after(1s, [this, index] { report_traffic(index); });
  }

  // -------------------------------------------------------------- what goes wrong

  void chaos() {
    if (healed_ || over_) return;
    const std::vector<double> weights{faults_.cut,        faults_.isolate,   faults_.kill_worker,
                                      faults_.kill_agent, faults_.kill_host, faults_.kill_server,
                                      faults_.refuse,     faults_.edit};
    double total = 4;  // now and then nothing
    for (const double w : weights) total += w;
    double at = total * static_cast<double>(rng_.between(0, 999999)) / 1e6;
    std::size_t what = 0;
    while (what < weights.size() && at >= weights[what]) at -= weights[what++];
    const std::size_t i = rng_.between(0, machines_.size() - 1);
    switch (what) {
      case 0:
      case 1:
        trouble(i, what == 1);
        break;
      case 2:
        kill_process(Role::kWorker);
        break;
      case 3:
        trace(30, i, "!! agent of {} is killed", machines_[i].host);
        excuse();
        agent_ends(i, "killed");
        break;
      case 4:
        kill_host(i);
        break;
      case 5:
        if (kill_process(Role::kServer)) checkers_->excused_codes.insert(67);
        break;
      case 6:
        trace(31, i, "!! {} refuses newcomers", machines_[i].host);
        checkers_->excused_codes.insert(65);
        checkers_->on_trouble(machines_[i].host);
        (rng_.chance(0.5) ? machines_[i].refuse_until : machines_[i].hang_until) =
            now_ + rng_.time(1s, 30s);
        break;
      case 7:
        write_file(next_list());
        break;
      default:
        break;
    }
    after(rng_.time(100ms, 4s), [this] { chaos(); });
  }

  /// After this the job may end for reasons that are not its workers'.
  void excuse() {
    for (const int code : {65, 66, 67, 137}) checkers_->excused_codes.insert(code);
  }

  void trouble(std::size_t i, bool data_too) {
    Machine& m = machines_[i];
    if (!m.control) return;
    trace(32, i, "!! {} is cut off{}", m.host, data_too ? ", data too" : "");
    excuse();
    cut(i);
    if (data_too) m.data = false;
    after(rng_.time(100ms, 8s), [this, i] {
      machines_[i].control = machines_[i].data = true;
      trace(33, i, "!! {} is back", machines_[i].host);
    });
  }

  bool kill_process(Role role) {
    std::vector<std::size_t> candidates;
    for (std::size_t p = 0; p < processes_.size(); ++p)
      if (processes_[p].running && processes_[p].id.role == role) candidates.push_back(p);
    if (candidates.empty()) return false;
    const std::size_t p = rng_.pick(candidates);
    trace(34, p, "!! {} is killed", to_string(processes_[p].id));
    process_ends(p, ExitStatus{0, 9});
    return true;
  }

  void kill_host(std::size_t i) {
    Machine& m = machines_[i];
    if (!m.up) return;
    trace(35, i, "!! {} loses power", m.host);
    excuse();
    agent_ends(i, "power");
    m.up = false;
    ++m.boot;
    cut(i);
    after(rng_.time(1s, 15s),
          [this, i] { machines_[i].up = machines_[i].control = machines_[i].data = true; });
  }

  /// The list a user may want next: mostly the base hosts and some more.
  std::vector<Host> next_list() {
    std::vector<Host> list;
    for (const Host& h : options_.workers)
      if (!rng_.chance(0.05)) list.push_back(h);
    if (rng_.chance(0.2)) return list;
    const std::size_t n = rng_.between(1, 3);
    for (std::size_t k = 0; k < n; ++k) list.push_back(rng_.pick(machines_).host);
    return list;
  }

  /// As an editor, a shell or a careless hand does it.
  void write_file(const std::vector<Host>& list) {
    const std::string text = format_host_worker(list);
    trace(36, list.size(), "!! host_worker is written: {}", fmt::join(list, " "));
    const std::optional<std::string> before = file_;
    const Duration d = rng_.time(1ms, 4s);
    const int how = healed_ ? 0 : static_cast<int>(rng_.between(0, 6));
    switch (how) {
      case 1:  // emptied, then written
        file_ = "";
        after(d, [this, text] { file_ = text; });
        return;
      case 2:  // half of it, then all
        file_ = text.substr(0, rng_.between(0, text.size()));
        after(d, [this, text] { file_ = text; });
        return;
      case 3:  // moved away, then a new one
        file_.reset();
        after(d, [this, text] { file_ = text; });
        return;
      case 4:  // a garbage line
        file_ = text + "10.0.0.7 slots=x\n";
        return;
      case 5:  // and back again
        file_ = text;
        after(d, [this, before] { file_ = before; });
        return;
      default:
        file_ = text;
    }
  }

  // -------------------------------------------------------------- what the checkers are shown

  [[nodiscard]] bool everyone_waits() const {
    if (job_ == std::nullopt || checkers_->contributors().empty()) return false;
    for (const Process& p : processes_) {
      if (p.id.role != Role::kServer) continue;
      const Machine& m = machines_[p.host];
      if (!p.running || p.hung || !m.link.up || !m.control || !p.listens) return false;
    }
    for (const WorkerId id : checkers_->contributors()) {
      const auto p = std::find_if(processes_.begin(), processes_.end(), [id](const Process& w) {
        return w.id == ProcessId{Role::kWorker, id.value} && w.running;
      });
      if (p == processes_.end() || !p->waits) return false;
      const Machine& m = machines_[p->host];
      const auto heard = heard_.find(id);
      if (!m.link.up || !m.control || heard == heard_.end() || heard->second.first != life_ ||
          heard->second.second != p->arrived->epoch)
        return false;
    }
    return true;
  }

  void check_end() {
    for (const Process& p : processes_)
      if (p.running)
        checkers_->fail(fmt::format("{} on {} outlives the job", to_string(p.id),
                                    to_string(machines_[p.host].host)));
  }

  static std::string describe(const Record& record) {
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
            [](const AgentKnown& r) {
              return fmt::format("agent of {}: {}", r.host, r.incarnation);
            },
            [](const JobEnding& r) { return fmt::format("ending {}", r.exit_code); },
        },
        record);
  }

  [[nodiscard]] Instant instant() const {
    return {now_, 1'700'000'000'000'000'000 + now_.time_since_epoch().count()};
  }

  Random rng_;
  bool trace_;
  Faults faults_;
  JobOptions options_;
  bool opaque_ = false;
  Epoch epochs_;
  Epoch first_epoch_;
  Time faults_end_;
  bool healed_ = false;

  Time now_{};
  std::uint64_t order_ = 0;
  std::priority_queue<Item> queue_;
  std::uint64_t hash_ = 0xcbf29ce484222325U;
  std::optional<Checkers> checkers_;

  std::vector<Machine> machines_;
  std::deque<Process> processes_;
  std::uint64_t links_ = 0;
  std::uint64_t incarnations_ = 0;
  std::optional<std::string> file_;

  std::optional<Job> job_;
  std::optional<FileWatch> watch_;
  Term term_;
  bool alive_ = false;
  std::uint64_t life_ = 0;
  std::string journal_;
  std::vector<LogLine> lines_;
  std::string log_file_;
  std::string log_queue_;
  std::map<std::size_t, std::uint64_t> prepares_;
  std::map<WorkerId, std::pair<std::uint64_t, Epoch>> heard_;
  bool over_ = false;
  Time over_at_{};
  std::int32_t exit_code_ = 0;
  std::uint32_t crashes_ = 0;
  std::uint32_t commits_ = 0;
};

}  // namespace

Outcome simulate(std::uint64_t seed, bool trace) { return Cluster(seed, trace).run(); }

}  // namespace dt::sim
