/// Stories as text: each test/scenario/*.txt has commands, "----", and the job machine's effects.
/// DT_REWRITE=1 rewrites the answers; commit only what you understand. README.md explains the
/// commands.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/files/journal.h"
#include "core/job/boundary.h"
#include "core/job/job.h"
#include "core/job/membership.h"
#include "core/job/notices.h"
#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

namespace {

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;  // clang 16 does not deduce aggregates

using Words = std::vector<std::string>;

Words split(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

Host host_of(const std::string& name) { return {"", name, 0}; }
std::uint32_t number(const std::string& s) { return static_cast<std::uint32_t>(std::stoul(s)); }
std::optional<Host> host_or_all(const std::string& name) {
  return name == "all" ? std::nullopt : std::optional(host_of(name));
}
Duration seconds_of(const std::string& s) { return from_seconds(std::stod(s)); }

/// The shapes of all stories' events: "KIND NAME: FIELDS" by KIND and NAME.
class Shapes {
 public:
  void take(const Note& e) {
    static constexpr const char* kKinds[] = {"info",    "launch",  "commit",
                                             "refusal", "failure", "measure"};
    auto& fields = shapes_[fmt::format("{} {}", kKinds[static_cast<std::size_t>(e.kind)], e.what)];
    if (e.worker) fields.insert("worker");
    if (e.host) fields.insert("host");
    if (e.line) fields.insert("seq");
    for (const auto& [name, value] : e.numbers) fields.insert(name);
  }
  [[nodiscard]] std::string text() const {
    std::string out;
    for (const auto& [event, fields] : shapes_)
      out += fmt::format("{}{}{}\n", event, fields.empty() ? "" : ": ", fmt::join(fields, " "));
    return out;
  }

 private:
  std::map<std::string, std::set<std::string>> shapes_;
};

/// The job machine and just enough of a world to report back: agents that remember their
/// processes, servers that listen and acknowledge at once.
class Story {
 public:
  explicit Story(Shapes& shapes) : shapes_(shapes) { options_.keep_checkpoints = 3; }

  std::string command(const std::string& line) {
    out_.str("");
    const Words w = split(line);
    const Words rest(w.begin() + 1, w.end());
    run(w.at(0), rest);
    return out_.str();
  }

 private:
  struct Process {
    Host host;
    bool runs = true;
    bool opened = false;
    std::optional<FromWorker<Arrive>> arrived;
    Generation servers;  ///< The generation of a worker's servers.
    std::optional<ExitStatus> exit;
  };
  struct Agent {
    std::uint64_t incarnation = 1;
    bool attached = false;
  };

  void run(const std::string& verb, const Words& args) {
    if (verb == "job") return start(args);
    if (verb == "attach") return each_host(args, [this](const Host& h) { attach(h); });
    if (verb == "attach-fails") return step(AttachFailed{host_of(args[0]), text(args, 1)});
    if (verb == "attach-fails-for-good")
      return step(AttachFailed{host_of(args[0]), text(args, 1), true});
    if (verb == "down") return down(host_of(args[0]), "connection reset", false);
    if (verb == "silent") {
      silent_.insert(host_of(args[0]));
      return step(AgentSilent{host_of(args[0]), now().at - seconds_of(args[1])});
    }
    if (verb == "heard") {
      silent_.erase(host_of(args[0]));
      return step(AgentHeard{host_of(args[0])});
    }
    if (verb == "wall") return void(wall_ahead_ += seconds_of(args[0]));
    if (verb == "stand") return stand(seconds_of(args[0]));
    if (verb == "doubtful") return step(LockDoubtful{args[0] == "on"});
    if (verb == "gone") {
      forget_processes(host_of(args[0]));
      return down(host_of(args[0]), "no agent there", true);
    }
    if (verb == "replaced") return forget_processes(host_of(args[0]));
    if (verb == "prepared") return step(PrepareEnded{host_of(args[0]), true, ""});
    if (verb == "prepare-fails") return step(PrepareEnded{host_of(args[0]), false, text(args, 1)});
    if (verb == "open") return each_worker(args, [this](WorkerId id) { open(id); });
    if (verb == "arrive") {
      const Epoch epoch(number(args.back()));
      return each_worker({args.begin(), args.end() - 1}, [&](WorkerId id) { arrive(id, epoch); });
    }
    if (verb == "exit") return exit(args);
    if (verb == "file") return file(args);
    if (verb == "tick") return tick(seconds_of(args[0]));
    if (verb == "acks") return void(acks_ = args[0] == "on");
    if (verb == "ack")
      return step(FromServer<CommitAck>{ServerId(0), {job_->boundary().generation()}});
    if (verb == "saved") {
      Saved saved{job_->boundary().epoch().value(), Generation(number(args[1])), text(args, 2)};
      saved.bytes = 500'000;
      return step(FromServer<Saved>{ServerId(number(args[0])), std::move(saved)});
    }
    if (verb == "place") return step(CheckpointPlaceSeen{text(args, 0)});
    if (verb == "unusable")
      return step(FromServer<GivingUp>{ServerId(number(args[0])), {text(args, 1), true}});
    if (verb == "sealed") return step(CheckpointSealed{Generation(number(args[0])), text(args, 1)});
    if (verb == "traffic") {
      FromServer<Traffic> seen;
      each_worker(args, [&seen](WorkerId id) { seen.message.alive.push_back(id); });
      seen.message.owing = rounds_.owing;
      seen.message.waiting = rounds_.waiting;
      return step(seen);
    }
    if (verb == "busy") {
      FromServer<Traffic> seen;
      each_worker(args, [&seen](WorkerId id) { seen.message.busy.push_back(id); });
      return step(seen);
    }
    if (verb == "rounds") return rounds(args);
    if (verb == "waits") return waits(args);
    if (verb == "names")
      return step(FromWorker<Figures>{WorkerId(number(args[0])),
                                      {0, 0, 0, {}, KeyId(number(args[1])), text(args, 2)}});
    if (verb == "hush") return void(hushed_.insert(number(args[0])));
    if (verb == "unhush") return void(hushed_.erase(number(args[0])));
    if (verb == "stuck") return void(stuck_[number(args[0])] = seconds_of(args[1]));
    if (verb == "data") return data(args);
    if (verb == "progress")
      return step(FromWorker<Progress>{WorkerId(number(args[0])),
                                       {Epoch(number(args[1])), number(args[2])}});
    if (verb == "steps") {
      Figures figures;
      figures.steps_in_epoch = number(args[1]);
      return step(FromWorker<Figures>{WorkerId(number(args[0])), figures});
    }
    if (verb == "notice") return notice(args);
    if (verb == "cancel") return step(NoticeCancelled{host_or_all(args[0])});
    if (verb == "outlook") return outlook();
    if (verb == "places") return step(PlacesAsked{host_of(args[0]), number(args[1])});
    if (verb == "replace") return step(ReplaceAsked{host_of(args[0]), host_of(args[1])});
    if (verb == "stall") return void(stalled_.insert(host_of(args[0])));
    if (verb == "endings") return void(tells_endings_ = true);
    if (verb == "cut") return void(cut_ = number(args[0]));
    if (verb == "crash") return crash();
    if (verb == "stop") return step(StopAsked{"interrupted", 130});
    if (verb == "state") return state();
    if (verb == "slots") return slots();
    FAIL("unknown command " << verb);
  }

  /// job WORKERS [/ SERVERS] [name=value...]
  void start(const Words& args) {
    bool servers = false;
    for (const std::string& a : args) {
      const auto eq = a.find('=');
      if (a == "/") {
        servers = true;
      } else if (eq == std::string::npos) {
        (servers ? options_.servers : options_.workers).push_back(host_of(a));
      } else {
        const std::string name = a.substr(0, eq);
        const std::string value = a.substr(eq + 1);
        if (name == "prepare") options_.needs_prepare = value == "yes";
        if (name == "refill") options_.restart_refill = seconds_of(value);
        if (name == "futile") options_.max_futile_restarts = number(value);
        if (name == "restarts") options_.max_restarts = number(value);
        if (name == "hang_timeout") options_.hang_timeout = seconds_of(value);
        if (name == "checkpoint_every") options_.checkpoint_every = number(value);
        if (name == "checkpoint_interval") options_.checkpoint_interval = seconds_of(value);
        if (name == "rolls_back") options_.rolls_back = value == "yes";
        if (name == "opaque_servers") options_.opaque_servers = value == "yes";
        if (name == "elastic") options_.is_elastic = value == "yes";
        if (name == "adopted") options_.is_adopted = value == "yes";
        if (name == "first_epoch") options_.first_epoch = Epoch(number(value));
        if (name == "start_timeout") options_.start_timeout = seconds_of(value);
        if (name == "on_change" && value == "restart") options_.on_change = OnChange::kRestart;
        if (name == "settle") options_.change_settle = seconds_of(value);
        if (name == "leave_timeout") options_.leave_timeout = seconds_of(value);
        if (name == "margin") options_.notice_margin = seconds_of(value);
        if (name == "master") options_.master = host_of(value);
        if (name == "min") options_.limits.least = number(value);
        if (name == "max") options_.limits.most = number(value);
        if (name == "min_timeout") options_.min_workers_timeout = seconds_of(value);
        if (name == "start_timeout_set") options_.is_start_timeout_set = value == "yes";
      }
    }
    crash();
  }

  /// A supervisor's life begins: from the journal's bytes alone.
  void crash() {
    std::vector<Record> records;
    for (const auto& frame : journal::replay(journal_).records)
      records.push_back(record_from(frame).value());
    for (auto& [host, agent] : agents_) agent.attached = false;
    job_.emplace(options_, records, now());
    term_ = term_.next();
    carry_out(job_->begin(term_, now()));
  }

  void attach(const Host& host) {
    Agent& agent = agents_[host];
    agent.attached = true;
    AgentAttached e{host, "boot", agent.incarnation, {}};
    std::vector<JobEvent> after;
    for (const auto& [id, p] : processes_) {
      if (p.host != host || (!p.runs && !p.exit)) continue;
      e.processes.push_back({id, 1, p.exit, {}});
      if (id.role == Role::kServer && !options_.opaque_servers) {
        after.emplace_back(FromServer<ServerReady>{ServerId(id.id), {host.name, 9000, "", ""}});
        continue;
      }
      if (p.opened) after.emplace_back(FromWorker<OpenedKvStore>{WorkerId(id.id), {}});
      if (p.arrived) after.emplace_back(*p.arrived);
      if (p.exit) after.emplace_back(ProcessEnded{id, *p.exit, "", false});
    }
    step(e);
    for (const JobEvent& a : after) step(a);
  }

  void down(const Host& host, std::string why, bool gone) {
    agents_[host].attached = false;
    step(AgentDetached{host, std::move(why), gone});
  }

  void forget_processes(const Host& host) {
    ++agents_[host].incarnation;
    for (auto& [id, p] : processes_)
      if (p.host == host) p.runs = false, p.exit.reset();
  }

  void open(WorkerId id) {
    process(id).opened = true;
    step(FromWorker<OpenedKvStore>{id, {}});
  }

  void arrive(WorkerId id, Epoch epoch) {
    Process& p = process(id);
    const FromWorker<Arrive> e{id, {epoch, !p.arrived, p.servers}};
    p.opened = true;
    p.arrived = e;
    if (agents_[p.host].attached) step(e);
  }

  /// exit WORKER|serverN code N|signal N|cannot-start
  void exit(const Words& args) {
    ProcessEnded e;
    const bool server = args[0].rfind("server", 0) == 0;
    e.process = server ? ProcessId{Role::kServer, number(args[0].substr(6))}
                       : ProcessId{Role::kWorker, number(args[0])};
    if (args[1] == "code") e.status.code = static_cast<std::int32_t>(number(args[2]));
    if (args[1] == "signal") e.status.signal = static_cast<std::int32_t>(number(args[2]));
    if (args[1] == "cannot-start") {
      e.never_ran = true;
      e.status.code = 127;
      e.why = "no such command";
    }
    Process& p = processes_.at(e.process);
    p.runs = false;
    p.exit = e.status;
    if (agents_[p.host].attached) step(e);
  }

  void file(const Words& args) {
    std::vector<HostLine> lines;
    for (const std::string& a : args) lines.push_back({host_of(a), {}, 0});
    step(HostsAccepted{sum_slots(lines)});
  }

  /// notice HOST|all S|never [again] WHY: the host goes away in S seconds.
  void notice(const Words& args) {
    NoticeGiven e;
    e.host = host_or_all(args[0]);
    if (args[1] != "never") e.left = seconds_of(args[1]);
    e.is_repeated = args[2] == "again";
    e.why = text(args, e.is_repeated ? 3 : 2);
    step(e);
  }

  void outlook() {
    const Notices& notices = job_->notices();
    for (const auto& [host, notice] : notices.of_hosts())
      out_ << fmt::format("{}: {}\n", host, notices.outlook(host));
    if (!notices.outlook().empty()) out_ << fmt::format("all: {}\n", notices.outlook());
  }

  /// data W / S...: from now on worker W gets data from these servers.
  void data(const Words& args) {
    auto& from = data_[WorkerId(number(args[0]))];
    from.clear();
    for (std::size_t i = 2; i < args.size(); ++i) from.push_back(ServerId(number(args[i])));
  }

  /// rounds W... / W...: from now on server 0 reports the workers that its rounds wait for, and the
  /// workers that wait.
  void rounds(const Words& args) {
    rounds_ = {};
    const auto slash = std::find(args.begin(), args.end(), "/");
    for (auto w = args.begin(); w != args.end(); ++w) {
      if (w == slash) continue;
      (w < slash ? rounds_.owing : rounds_.waiting).push_back(WorkerId(number(*w)));
    }
  }

  /// waits W KEY L ...: from now on server 0 reports that W is alive and waits in KEY for L; for
  /// nobody in a round: `at`, in place of a key.
  void waits(const Words& args) {
    rounds_ = {};
    for (std::size_t i = 0; i + 2 < args.size(); i += 3) {
      const WorkerId worker(number(args[i]));
      rounds_.alive.push_back(worker);
      if (args[i + 1] == "at") continue;
      rounds_.waiting.push_back(worker);
      rounds_.waits.push_back(
          {worker, KeyId(number(args[i + 1])), WorkerId(number(args[i + 2])), 0});
    }
  }

  /// Once a second each reachable server reports, and so do the agents of workers.
  void report() {
    std::vector<JobEvent> reports;
    for (const auto& [id, p] : processes_) {
      if (!p.runs || !agents_[p.host].attached || silent_.count(p.host) > 0) continue;
      if (id.role == Role::kServer && hushed_.count(id.id) == 0) {
        FromServer<Traffic> seen{ServerId(id.id), id.id == 0 ? rounds_ : Traffic{}};
        if (const auto stuck = stuck_.find(id.id); stuck != stuck_.end()) {
          const auto ms = stuck->second / 1ms;
          seen.message.stuck.push_back({1, static_cast<std::uint32_t>(ms), "sleeping (S)"});
          stuck->second += 1s;
        }
        reports.emplace_back(std::move(seen));
      }
      if (const auto from = data_.find(WorkerId(id.id));
          id.role == Role::kWorker && from != data_.end() && !from->second.empty())
        reports.emplace_back(FromWorker<ServersHeard>{from->first, {from->second}});
    }
    for (const JobEvent& event : reports) step(event);
  }

  [[nodiscard]] bool is_whole_second() const { return time_.time_since_epoch() % 1s == Duration{}; }

  void tick(Duration length) {
    for (const Time end = time_ + length; time_ < end;) {
      time_ += 100ms;
      if (is_whole_second()) report();
      step(Tick{});
    }
  }

  /// No tick comes while the job's clock stands.
  void stand(Duration length) {
    time_ += length;
    stood_ += length;
  }

  void state() {
    for (const auto& [id, w] : job_->membership().workers())
      if (w.state != WorkerState::kGone)
        out_ << fmt::format("worker {} on {}: {}\n", id, w.host, name(w.state));
    out_ << fmt::format("{}, generation {}{}\n", job_->phase(), job_->boundary().generation(),
                        job_->pending_reason().empty() ? "" : "; " + job_->pending_reason());
  }

  void slots() {
    for (const auto& [id, w] : job_->membership().workers())
      if (w.state != WorkerState::kGone)
        out_ << fmt::format("worker {} on {}: slot {}\n", id, w.host, w.slot);
  }

  void step(const JobEvent& event) {
    const std::vector<Effect> effects = job_->step(event, now());
    // Ticks are many, and most of them change nothing.
    if (!effects.empty() || !std::holds_alternative<Tick>(event) || is_whole_second())
      CHECK(job_->unsettled(now()) == "");
    carry_out(effects);
  }

  void carry_out(const std::vector<Effect>& effects) {
    std::vector<JobEvent> answers;
    for (const Effect& effect : effects) {
      if (cut_ && (*cut_)-- == 0) {
        cut_.reset();
        out_ << "(the supervisor dies here)\n";
        return crash();
      }
      act(effect, answers);
    }
    cut_.reset();
    for (const JobEvent& a : answers) step(a);
  }

  void act(const Effect& effect, std::vector<JobEvent>& answers) {
    const auto line = [this]<class... Args>(fmt::format_string<Args...> text, Args&&... args) {
      out_ << fmt::format(text, std::forward<Args>(args)...) << "\n";
    };
    std::visit(
        Overloaded{
            [&](const Append& e) {
              if (journal_.empty()) journal_ = journal::kHeader;
              const wire::Frame frame = to_frame(e.record);
              journal_ += journal::append_bytes(frame.type, frame.body);
              for (const LogLine& l : log_lines({e.record}))
                line("log: {} {} {}", l.seq, l.added ? "ADDED" : "REMOVED", l.host);
            },
            [&](const Attach& e) { line("attach {}{}", e.host, e.start ? "" : " again"); },
            [&](const ReleaseHost& e) {
              agents_[e.host].attached = false;
              line("let go of {}", e.host);
            },
            [&](const Prepare& e) { line("prepare {}", e.host); },
            [&](const StartWorker& e) {
              processes_[{Role::kWorker, e.worker.value}].host = e.host;
              line("start worker {} on {}{}", e.worker, e.host, e.newcomer ? " (newcomer)" : "");
              if (options_.on_change != OnChange::kRestart) return;
              if (stalled_.count(e.host) == 0) answers.emplace_back(WorkerStarted{e.worker});
            },
            [&](const StartServer& e) {
              const ProcessId id{Role::kServer, e.server.value};
              processes_[id].host = e.host;
              line("start server {} on {}{}", e.server, e.host,
                   e.checkpoint ? fmt::format(" with the checkpoint of epoch {}", *e.checkpoint)
                                : "");
              if (!options_.opaque_servers)
                answers.emplace_back(
                    FromServer<ServerReady>{e.server, {e.host.name, 9000, "", ""}});
            },
            [&](const Stop& e) {
              line("stop {} on {}{}", to_string(e.process), e.host,
                   e.grace == Duration{} ? " at once" : "");
            },
            [&](const Inspect& e) {
              line("what does {} on {} do?", to_string(e.process), e.host);
              answers.emplace_back(ProcessInspected{e.process, "train (pid 7): stopped (T)"});
            },
            [&](const Acknowledge& e) {
              if (agents_[e.host].attached) processes_.erase(e.process);
            },
            [&](const SendToWorker<Servers>& e) { process(e.worker).servers = e.message.since; },
            [&](const SendToWorker<Release>& e) {
              const Release& r = e.message;
              if (r.verdict == Verdict::kLeave) return line("worker {}: leave", e.worker);
              line("worker {}: {}epoch {}, rank {} of {}, generation {}{}", e.worker,
                   r.verdict == Verdict::kRollback ? "back to " : "", r.epoch, r.rank, r.world_size,
                   r.generation, r.newcomer ? ", new" : "");
            },
            [&](const SendToWorker<Shrunk>& e) {
              line("worker {}: lead is {}", e.worker, e.message.lead);
            },
            [&](const SendCommit& e) {
              line("server {}: generation {} of {}{}{}", e.server, e.message.generation,
                   fmt::join(e.message.contributors, ","), e.message.boundary ? "" : " (shrunk)",
                   e.message.checkpoint
                       ? fmt::format(", to save if generation {} is news", *e.message.checkpoint)
                       : "");
              if (acks_)
                answers.emplace_back(FromServer<CommitAck>{e.server, {e.message.generation}});
            },
            [&](const SealCheckpoint& e) {
              line("seal the checkpoint of epoch {}, generation {}: {} file(s)", e.epoch,
                   e.generation, e.files.size());
            },
            [&](const Note& e) {
              shapes_.take(e);
              // The ends of processes and of the job are in the story's own commands and END.
              const bool is_ending = e.what.ends_with("_ended");
              if (e.kind != Note::Kind::kLaunch && (!is_ending || tells_endings_))
                line("- {}{}", is_ending ? e.what + ": " : "", e.text);
            },
            [&](const End& e) { line("END {}: {}", e.exit_code, e.message); },
        },
        effect);
  }

  Process& process(WorkerId id) { return processes_.at({Role::kWorker, id.value}); }

  template <class F>
  void each_host(const Words& args, F f) {
    for (const std::string& a : args) f(host_of(a));
  }
  template <class F>
  void each_worker(const Words& args, F f) {
    for (const std::string& a : args) f(WorkerId(number(a)));
  }
  static std::string text(const Words& args, std::size_t from) {
    return fmt::format(
        "{}", fmt::join(args.begin() + static_cast<std::ptrdiff_t>(from), args.end(), " "));
  }
  [[nodiscard]] Instant now() const {
    return {time_ - stood_, (time_ + wall_ahead_).time_since_epoch().count(), time_};
  }

  Shapes& shapes_;
  JobOptions options_;
  std::optional<Job> job_;
  Term term_;
  Time time_{};
  Duration stood_{};  ///< The job's clock has.
  Duration wall_ahead_{};
  std::string journal_;
  std::map<Host, Agent> agents_;
  std::map<ProcessId, Process> processes_;
  bool acks_ = true;
  Traffic rounds_;
  bool tells_endings_ = false;
  std::set<Host> silent_;
  std::set<Host> stalled_;          ///< Processes are created there and do not come to run.
  std::set<std::uint32_t> hushed_;  ///< Servers that do not report.
  std::map<std::uint32_t, Duration> stuck_;         ///< Servers with a stuck loop: for how long.
  std::map<WorkerId, std::vector<ServerId>> data_;  ///< From which servers a worker gets data.
  std::optional<std::uint32_t> cut_;
  std::ostringstream out_;
};

/// The file with every answer replaced by the machine's current one.
std::string play(std::istream& in, Shapes& shapes) {
  Story story(shapes);
  std::string out;
  std::string answer;
  for (std::string line; std::getline(in, line);) {
    if (line == "----") {
      out += "----\n" + answer + "\n";
      answer.clear();
      while (std::getline(in, line) && !line.empty()) {
      }
      continue;
    }
    out += line + "\n";
    if (!line.empty() && line[0] != '#') answer += story.command(line);
  }
  return out;
}

}  // namespace

TEST_CASE("scenario: every story goes as it is told", "[job][scenario]") {
  const bool rewrite = std::getenv("DT_REWRITE") != nullptr;
  std::vector<std::filesystem::path> stories;
  for (const auto& entry : std::filesystem::directory_iterator(DT_SCENARIO_DIR))
    if (entry.path().extension() == ".txt" && entry.path().stem() != "CMakeLists")
      stories.push_back(entry.path());
  std::sort(stories.begin(), stories.end());
  REQUIRE_FALSE(stories.empty());
  Shapes shapes;
  for (const auto& path : stories) {
    INFO(path.filename().string());
    std::stringstream told;
    told << std::ifstream(path).rdbuf();
    const std::string played = play(told, shapes);
    if (rewrite) std::ofstream(path) << played;
    CHECK(played == (rewrite ? played : told.str()));
  }
  // Programs read events.jsonl: names, kinds and fields of events must not change.
  if (rewrite) std::ofstream(DT_EVENT_SHAPES) << shapes.text();
  std::stringstream golden;
  golden << std::ifstream(DT_EVENT_SHAPES).rdbuf();
  CHECK(shapes.text() == golden.str());
}
