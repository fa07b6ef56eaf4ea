/// A whole job in one thread and virtual time: hosts with agents, workers, servers, the shared
/// volume, a network that fails, a user who edits host_worker, and a supervisor shell around the
/// real core/ that is killed between any two of its effects.
///
///     cluster.cpp             the run: its plan, its clock, its end
///     cluster_supervisor.cpp  the supervisor's shell, its crashes, its journal
///     cluster_links.cpp       links between the supervisor and the agents
///     cluster_processes.cpp   agents, workers, servers
///     cluster_faults.cpp      faults and the user's edits
///     cluster_clocks.cpp      a wall clock that steps, and a journal that cannot be written for a
///     while cluster_takeover.cpp    a supervisor that cannot read the lock, and another master
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "core/files/file_watch.h"
#include "core/job/job.h"
#include "supervisor/files/journal_room.h"
#include "test/sim/checkers.h"
#include "test/sim/random.h"
#include "test/sim/simulate.h"
#include "test/sim/world.h"

namespace dt::sim {

class Cluster {
 public:
  Cluster(std::uint64_t seed, bool trace, bool cuts, Kinds kinds);

  Outcome run();

 private:
  struct Item {
    Time at;
    std::uint64_t order;
    std::function<void()> act;
    bool operator<(const Item& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  void at(Time when, std::function<void()> act);
  void after(Duration d, std::function<void()> act);

  template <class... Args>
  void trace(std::uint64_t kind, std::uint64_t what, fmt::format_string<Args...> text,
             Args&&... args) {
    for (const std::uint64_t v :
         {static_cast<std::uint64_t>(now_.time_since_epoch().count()), kind, what})
      hash_ = (hash_ ^ v) * 0x100000001b3U;
    if (trace_)
      fmt::print("{:9.3f}  {}\n", seconds(now_.time_since_epoch()),
                 fmt::format(text, std::forward<Args>(args)...));
  }

  // The run's plan.
  void plan();
  /// What differs where workers restart as a group.
  void plan_group();
  /// --min-workers and --max-workers, each with its chance.
  void plan_limits(Random& rng, double least, double most);
  /// Limits of workers, jobs that are adopted or not elastic; processes that never run.
  void plan_modes();
  /// As --dmlc-roles: servers, and a scheduler on the first host, are programs of the user's, as
  /// the workers are.
  void plan_opaque_servers();
  std::size_t machine(const Host& host);
  /// Ends all faults, for good.
  void heal();

  // The supervisor's shell.
  void begin_supervisor();
  void crash();
  void tick(std::uint64_t life);
  void feed(const JobEvent& event);
  void carry_out(const std::vector<Effect>& effects);
  static std::string bytes_of(const Record& record);
  void act(const Append& e);
  void act(const Attach& e);
  void act(const ReleaseHost& e);
  void act(const Prepare& e);
  void end_prepare(std::size_t i, const char* why);
  void act(const StartWorker& e);
  void act(const StartServer& e);
  void act(const Stop& e);
  void act(const Inspect& e);
  void act(const Acknowledge& e);
  void act(const SendToWorker<Servers>& e);
  void act(const SendToWorker<Release>& e);
  void act(const SendToWorker<Shrunk>&);
  void act(const SendCommit& e);
  void act(const SealCheckpoint& e);
  void act(const Note& e);
  void act(const End& e);
  /// Sends Shutdown to one host; hosts that are not yet connected get it when they answer.
  void shut_down(std::size_t i);
  /// A shorter journal for the same job, once the volume has everything.
  void cut_journal();
  void flush_log(std::size_t bytes);
  void flush_events();
  void look_at_file(std::uint64_t life);

  // Links.
  void try_attach(std::size_t i, Duration delay);
  void connect(std::size_t i);
  /// Cuts the path to a host: both ends notice a little later.
  void cut(std::size_t i);
  void break_link(std::size_t i, std::uint64_t id);
  void unlink_agent(std::size_t i, std::uint64_t link);
  [[nodiscard]] Duration delay();
  /// Delivers in order, maybe twice; lost with the link.
  void to_agent(std::size_t i, std::function<void()> act);
  void to_supervisor(std::size_t i, std::function<void()> act);
  void say(std::size_t i, const JobEvent& event);
  void to_process(std::size_t i, ProcessId id, std::function<void(std::size_t)> act);

  // Agents and processes.
  void agent_ends(std::size_t i, const char* why);
  void start_process(std::size_t i, ProcessId id, bool newcomer);
  /// A worker of a group: it may fail, and comes to its end once faults have stopped.
  void train_in_group(std::size_t index);
  void start_server(std::size_t i, const StartServer& e);
  /// An opaque server, which may fail, end early or never end.
  void serve(std::size_t index);
  void end_with_workers(std::size_t index);
  void process_ends(std::size_t index, ExitStatus status);
  void warm_up(std::size_t index);
  void arrive(std::size_t index, Epoch epoch);
  /// A worker gets the servers' addresses; if they are new ones it drops its work and arrives
  /// again.
  void told_servers(std::size_t index, const Servers& servers);
  /// Whether the servers have the values that a worker released into the epoch is to find.
  void check_values(const Process& worker, const Release& r);
  void advance_values();
  void released(std::size_t index, const Release& r);
  void trained(std::size_t index, Epoch epoch);
  /// A worker that has trained its epoch continues when all contributors have contributed.
  void check_rounds();
  /// Whether all contributors have come to the round that the worker waits in out of order.
  [[nodiscard]] bool crossed_complete(const Process& worker) const;
  /// Null: it was never created.
  [[nodiscard]] const Process* worker_of(WorkerId id) const;
  [[nodiscard]] bool waits_in_round(const Process& worker) const;
  [[nodiscard]] bool contributed(WorkerId worker, Epoch epoch, Generation servers) const;
  [[nodiscard]] bool round_complete(Epoch epoch, Generation servers) const;
  void hang(std::size_t index);
  void server_commit(std::size_t index, const ServerCommit& c);
  /// The server copies the values to save and writes them after a delay.
  void save(std::size_t index, const ServerCommit& c);
  /// The server reports that its checkpoint cannot be read, and exits.
  void say_unusable(std::size_t index);
  /// Whether one of the worker's servers cannot read its values. Such a server will report it.
  bool meets_damage(const Process& worker);
  void report_traffic(std::size_t index);
  /// A worker's agent reports from which servers its data comes.
  void report_data(std::size_t index);

  // Faults.
  void chaos();
  /// No other waits for them, so only the user can end them.
  void end_hung_alone();
  /// After this the job may end for reasons other than its workers.
  void excuse();
  void trouble(std::size_t i, bool data_too);
  /// A host is silent for a while, but its link does not break.
  void freeze(std::size_t i);
  bool kill_process(Role role);
  void kill_host(std::size_t i);
  /// Now and then a host is to go away, or all of them; mostly it then does.
  void give_notices();
  void give_notice();
  /// The supervisor gets the notice as soon as there is one.
  void tell_notice(std::optional<std::size_t> i, Time deadline, std::uint64_t number);
  void cancel_notice(std::optional<std::size_t> i, std::uint64_t number);
  /// Now and then another host is to have a base host's workers.
  void replace_bases();
  /// A server hangs, for a while or for good, but its connections stay.
  void hang_server();
  /// The list a user may want next: mostly the base hosts and some more.
  std::vector<Host> next_list();
  /// Writes as an editor, a shell or a careless user does.
  void write_file(const std::vector<Host>& list);

  // Clocks and the journal's disk (cluster_clocks.cpp).
  void plan_clocks();
  /// The master's wall clock steps.
  void step_clock();
  void fill_disk();
  /// What waited for the journal's disk goes on.
  void look_at_room();

  // Another master takes the folder over: of two jobs in it only one may have processes.
  void plan_take_over();
  /// The supervisor looks whose the lock is, if it can.
  void look_at_lock(std::uint64_t life);
  /// The supervisor ends, since the folder is another's: what it reaches is killed.
  void stand_down(const char* why);
  /// The other master reaches every host that it knows of.
  void end_old_job();
  void end_on(std::size_t i);
  void begin_next_job();
  void end_if_taken_over();

  // Observations for the checkers.
  [[nodiscard]] bool is_heard(const Machine& machine) const;
  [[nodiscard]] bool servers_are_well() const;
  /// The current servers that hang and whose host is reachable.
  [[nodiscard]] std::set<ServerId> hanging_servers() const;
  [[nodiscard]] bool everyone_waits() const;
  /// Opaque servers run, and the last worker has not ended --stop-timeout ago.
  [[nodiscard]] bool servers_have_time() const;
  /// All workers have ended, and opaque servers are left.
  [[nodiscard]] bool only_servers_are_left() const;
  /// All contributors wait for each other, by what they do.
  [[nodiscard]] bool stands_still() const;
  /// The supervisor hears of all that.
  [[nodiscard]] bool standstill_shows() const;
  /// Workers that hang, if another one waits for them in a round and nothing else is wrong.
  [[nodiscard]] std::set<WorkerId> keep_others_waiting() const;
  void check_end();
  static std::string describe(const Record& record);
  /// As the supervisor's machine has it.
  [[nodiscard]] Instant instant() const;
  /// With the right wall clock.
  [[nodiscard]] Instant true_instant() const;
  [[nodiscard]] std::int64_t true_wall() const;

  Random rng_;
  Random damage_rng_;         ///< A generator of its own: it leaves seeds without damage unchanged.
  Random group_rng_;          ///< The same for groups that restart.
  Random notice_rng_;         ///< The same for hosts that go away.
  Random order_rng_;          ///< The same for workers that wait in two orders.
  Random second_rng_;         ///< The same for another master.
  Random mode_rng_;           ///< The same for limits, kinds of jobs and opaque servers.
  Random clock_rng_;          ///< The same for clocks and the journal's disk.
  Random replace_rng_;        ///< The same for base hosts that are replaced.
  Duration wall_ahead_{};     ///< Of the true time.
  bool has_stepped_ = false;  ///< The wall clock, since the last term began.
  bool is_disk_full_ = false;
  supervisor::JournalRoom room_;
  std::deque<JobEvent> waiting_;  ///< For the journal's room.
  Instant decided_;               ///< When the job decided on the effects that are carried out.
  Duration decided_ahead_{};      ///< wall_ahead_ then.
  bool trace_;
  const Kinds kinds_;
  Faults faults_;
  JobOptions options_;
  bool opaque_ = false;
  bool restarts_;  ///< --on-change restart
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
  const bool cuts_;               ///< The journal is cut.
  std::size_t cut_size_ = 0;      ///< Its size after the last cut.
  std::uint64_t uncut_more_ = 0;  ///< Bytes that it would have more without cuts.
  std::uint32_t cut_count_ = 0;
  std::vector<LogLine> lines_;
  std::string log_file_;
  std::string log_queue_;
  std::vector<Note> events_;  ///< Notes of changes of members, as in events.jsonl.
  std::vector<Note> events_queue_;
  std::map<std::size_t, std::uint64_t> prepares_;
  struct Heard {
    std::uint64_t life = 0;  ///< The supervisor's life_ then.
    Epoch epoch;
    Generation servers;
  };
  std::map<WorkerId, Heard> heard_;
  bool over_ = false;
  Time over_at_{};
  std::int32_t exit_code_ = 0;
  std::uint32_t crashes_ = 0;
  std::uint32_t commits_ = 0;
  std::uint32_t rollbacks_ = 0;
  std::uint32_t groups_ = 0;  ///< That began after the first.
  std::set<Generation> sealed_;
  std::map<Generation, std::uint64_t> saved_;  ///< Hash of the saved values.
  struct Kept {
    Generation generation;
    std::uint64_t values = 0;  ///< Their hash.
  };
  std::map<Epoch, Kept> kept_;              ///< The checkpoints on the volume.
  std::map<ServerId, Generation> since_;    ///< The rollback that brought the server.
  std::set<std::optional<Epoch>> damaged_;  ///< Checkpoints; nullopt: the job's first one.
  /// What another master does, and what the supervisor knows of the lock.
  struct Second {
    bool is_cut_off = false;   ///< The supervisor cannot read the volume.
    Time seen{};               ///< It could then.
    bool is_doubtful = false;  ///< See LockDoubtful.
    bool has_lock = false;     ///< The other master has it.
    std::string copy;          ///< The journal's on the volume, without what could not be written.
    Term term;
    std::optional<Job> job;
    std::set<std::size_t> awaited;  ///< Hosts that have not confirmed the old job's end.
    Time until{};                   ///< It waits for them no longer.
    bool is_next_there = false;     ///< The next job has begun.
  };
  Second second_;
  std::vector<Host> accepted_;       ///< The last host_worker that was.
  std::set<std::uint64_t> notices_;  ///< Those that were not cancelled, by their numbers.
  std::uint64_t next_notice_ = 0;
};

}  // namespace dt::sim
