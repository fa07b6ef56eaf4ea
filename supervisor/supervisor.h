/// The supervisor: the only loop of the job. It turns what happens (agents, host_worker, requests,
/// time) into events of the job machine (core/job/job.h) and carries out its effects. It decides
/// nothing itself.
///
///     JobFiles          journal, lock, and what the job writes to the shared volume
///     HostLinks         links to agents            AgentReports      what comes over them
///     PrepareRuns       data checks                CheckpointKeeper  sealing, and the place
///     HostWorkerEditor  dtctl add and remove       JournalRoom       while the disk is full
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "io/asio.h"
#include "io/clock.h"
#include "io/job/spec.h"
#include "io/log.h"
#include "io/task_group.h"
#include "launcher/backend/backend.h"
#include "supervisor/agent_reports.h"
#include "supervisor/checkpoint_keeper.h"
#include "supervisor/control/changes.h"
#include "supervisor/control/console_log.h"
#include "supervisor/control/event_log.h"
#include "supervisor/control/pulse.h"
#include "supervisor/control/server.h"
#include "supervisor/host_worker_editor.h"
#include "supervisor/hosts/host_links.h"
#include "supervisor/job_files.h"
#include "supervisor/journal_room.h"
#include "supervisor/prepare_runs.h"
#include "supervisor/shell.h"
#include "supervisor/volume/client.h"
#include "supervisor/volume/host_worker.h"
#include "supervisor/volume/output.h"

namespace dt::supervisor {

struct SupervisorOptions {
  io::JobSpec spec;
  bool resume = false;  ///< Continue from the journal of an earlier supervisor.
  /// The folder is taken from a supervisor of which nothing can be seen from here.
  bool take_over = false;
  bool adopt = false;  ///< JobOptions::is_adopted
  /// A dtlaunch owns the job, or will: the job stops when that ends.
  bool owned = false;
  int ready_fd = -1;                       ///< Gets "READY\n" or "ERROR <exit code> <sentence>\n".
  std::vector<std::string> volume_helper;  ///< Program and arguments of the volume's helper.
  /// A foreground job is stopped if its dtlaunch has not connected to the console by then.
  Duration owner_comes = std::chrono::seconds(30);
  /// Between lines that show how the job goes on, at first; after ten of them ten times that.
  Duration heartbeat = std::chrono::minutes(1);
  /// Brings the working folder to a host before anything starts there; empty: nothing to bring.
  std::function<io::awaitable<Result<void>>(Host)> sync;
};

/// One thread, that of `context`.
class Supervisor {
 public:
  Supervisor(io::asio::io_context& context, SupervisorOptions options,
             std::unique_ptr<launcher::Backend> backend);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Runs the job to its end; the job's exit code. Everything it opened is closed afterwards.
  io::awaitable<int> run();
  /// Ends the job, as Ctrl-C does: processes have --stop-timeout to end. Once is enough.
  void stop(std::string why);
  /// The same, or in the middle of it: processes are killed at once.
  void kill(std::string why);

 private:
  // Life of the job.
  /// run(), without the end of what it began.
  io::awaitable<int> live();
  io::awaitable<Result<void>> open_files();
  /// The same; what it throws is an error, too.
  io::awaitable<Result<void>> try_open_files();
  Result<void> open_control();
  void begin_job(const JobFiles::State& state);
  void watch_host_worker();
  /// Notes changes that an earlier term has journalled and not noted.
  void note_past_changes(const KnownEvents& noted);
  void begin_tasks();
  io::awaitable<void> tick_loop();
  /// A line now and then that shows how the job goes on.
  io::awaitable<void> heartbeat();
  /// Wakes run() when a task has failed and all are cancelled.
  io::awaitable<void> notice_failure();
  /// Looks whether another master has taken the folder over: then nothing is left to be done here.
  io::awaitable<void> watch_lock();
  /// Ends a foreground job whose dtlaunch died before it connected to the console.
  io::awaitable<void> expect_owner();
  io::awaitable<void> shut_down();
  /// Reports the share of the members' time that was not lost, and the causes of the rest.
  void note_goodput();
  void show_end();
  /// Writes the line to the starter; false if that is gone.
  bool say_ready(const std::string& line);

  // Events into the machine, effects out of it.
  void post(JobEvent event);
  void pump();
  void carry_out(std::vector<Effect> effects);
  /// Writes the record, or why it cannot be written now. Other trouble than want of room ends the
  /// job.
  Result<void> append(const Append& e);
  /// Tries again what the journal's disk had no room for, and notes when little is left.
  void look_at_journal_room();
  /// The job ends though the journal cannot be written.
  void end_unwritten(int exit_code, std::string why);
  /// The job's time (JournalRoom), and the wall clock's.
  [[nodiscard]] Instant now() const;
  void act(const Attach& e) { links_.attach(e.host, e.start); }
  void act(const ReleaseHost& e);
  void act(const Prepare& e) { prepares_.run(e.host); }
  void act(const StartWorker& e);
  void act(const StartServer& e);
  void act(const Stop& e);
  void act(const Inspect& e) { links_.send(e.host, AskProcess{e.process}); }
  void act(const Acknowledge& e);
  void act(const SendServers& e) { send_to({Role::kWorker, e.worker.value}, e); }
  void act(const SendRelease& e) { send_to({Role::kWorker, e.worker.value}, e); }
  void act(const SendShrunk& e) { send_to({Role::kWorker, e.worker.value}, e); }
  void act(const SendCommit& e) { send_to({Role::kServer, e.server.value}, e); }
  void act(const SealCheckpoint& e) { group_.spawn(checkpoints_->seal(e.what)); }
  void act(const Note& e);
  void act(const End& e);
  template <class Effect>
  void send_to(ProcessId process, const Effect& e) {
    using Message = decltype(e.message);
    links_.send(e.host, ToProcess{process, Message::kType, wire::body_of(e.message)});
  }
  void start_process(const Host& host, StartProcess start, const launcher::ProcessFacts& facts);
  [[nodiscard]] launcher::ProcessFacts facts_for(ProcessId process, const Host& host) const;

  // Requests (supervisor_requests.cpp).
  io::awaitable<std::string> answer(std::string request);
  io::awaitable<std::string> edit_host_worker(std::string op, std::string host,
                                              std::uint32_t slots);
  [[nodiscard]] std::string status() const;
  [[nodiscard]] double uptime_s() const;

  io::asio::any_io_executor executor_;
  SupervisorOptions options_;
  io::JobSpec& spec_;
  std::unique_ptr<launcher::Backend> backend_;
  io::FdLog own_log_{STDERR_FILENO};
  VolumeClient volume_;
  io::TaskGroup group_;
  io::asio::steady_timer done_;
  Shell shell_;

  JobFiles files_;
  JournalRoom journal_room_;
  ControlServer control_;
  ConsoleLog console_;
  EventLog event_log_;
  Changes changes_;
  Pulse pulse_;
  ProcessOutput output_;
  HostLinks links_;
  PrepareRuns prepares_;

  std::unique_ptr<Job> job_;  ///< From here on: once the journal is read.
  std::optional<CheckpointKeeper> checkpoints_;
  std::optional<AgentReports> reports_;
  std::optional<HostWorkerEditor> editor_;
  std::unique_ptr<HostWorker> host_worker_;
  Term term_;
  std::string secret_;
  std::string master_address_;

  std::deque<JobEvent> events_;
  bool pumping_ = false;
  bool journal_failed_ = false;  ///< Nothing is carried out any more.
  std::optional<End> end_;
  std::optional<std::string> stopped_why_;  ///< stop() was called.
  bool is_killed_ = false;                  ///< kill() was called.
  bool has_folder_ = true;                  ///< No other supervisor has taken it over.
  Time started_ = io::steady_now();
};

}  // namespace dt::supervisor
