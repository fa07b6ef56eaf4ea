/// The supervisor: the only loop of the job. It turns what happens (agents, host_worker, requests,
/// time) into events of the job machine (core/job/job.h) and carries out its effects. It decides
/// nothing itself.
///
///     supervisor.cpp           life: files, start, end
///     supervisor_effects.cpp   events into the machine, effects out of it
///     supervisor_hosts.cpp     agents, processes, the data check
///     supervisor_requests.cpp  what dtctl and dtlaunch ask for
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "io/asio.h"
#include "io/clock.h"
#include "io/job/spec.h"
#include "io/log.h"
#include "io/task_group.h"
#include "launcher/backend/backend.h"
#include "launcher/environment.h"
#include "supervisor/control/changes.h"
#include "supervisor/control/event_log.h"
#include "supervisor/control/pulse.h"
#include "supervisor/control/server.h"
#include "supervisor/control/status.h"
#include "supervisor/hosts/agent_link.h"
#include "supervisor/hosts/checkpoint_place.h"
#include "supervisor/hosts/folder_checks.h"
#include "supervisor/journal_file.h"
#include "supervisor/journal_room.h"
#include "supervisor/volume/change_log_file.h"
#include "supervisor/volume/client.h"
#include "supervisor/volume/host_worker.h"
#include "supervisor/volume/job_lock.h"
#include "supervisor/volume/journal_copy.h"
#include "supervisor/volume/output.h"
#include "supervisor/volume/story_files.h"

namespace dt::supervisor {

struct SupervisorOptions {
  io::JobSpec spec;
  bool resume = false;  ///< The journal of an earlier life is to be taken up.
  /// The folder is taken from a supervisor of which nothing can be seen from here.
  bool take_over = false;
  bool adopt = false;  ///< JobOptions::is_adopted
  /// A dtlaunch is there or comes, and the job stops when that goes.
  bool owned = false;
  int ready_fd = -1;  ///< "READY\n" or "ERROR <exit code> <sentence>\n" is written here.
  std::vector<std::string> volume_helper;  ///< Program and arguments of the volume's helper.
  /// A foreground job whose dtlaunch has not come for its console by then is stopped.
  Duration owner_comes = std::chrono::seconds(30);
  /// Between lines that tell how the job goes on, at first; after ten of them ten times that.
  Duration heartbeat = std::chrono::minutes(1);
  /// Brings the working folder to a host before anything starts there; empty: nothing to bring.
  std::function<io::awaitable<Result<void>>(Host)> sync;
};

// The few helpers that every part needs.
[[nodiscard]] std::uint32_t milliseconds(Duration d);

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
  struct HostShell {
    [[nodiscard]] bool is_attached() const { return link && link->up() && ever_attached; }

    std::unique_ptr<AgentLink> link;
    std::string address;  ///< Literal; empty until known.
    std::uint32_t cores = 0;
    std::string machine;
    std::string reach_command;  ///< Repeats the last failed connection by hand.
    bool ever_attached = false;
    bool leaving = false;  ///< Let go: its link closes when the agent has ended.
    bool silent = false;   ///< The job machine was told that its agent says nothing.
    KeptOut kept_out;      ///< By its agent.
    GpuHealth gpus;        ///< As its agent last said.
    std::map<std::string, std::vector<std::string>> gpu_troubles;  ///< Of each, as last told.
  };
  struct PrepareRun {
    Host host;
    std::string tail;  ///< Last output, for the failure's reason.
    std::optional<ExitStatus> exit;
    std::string failed;
    bool forgotten = false;  ///< The job machine waits for it no longer.
    std::unique_ptr<io::asio::steady_timer> ended;
  };

  // Life of the job.
  /// run(), without the end of what it began.
  io::awaitable<int> live();
  io::awaitable<Result<void>> open_files();
  /// The same; what it throws is an error, too.
  io::awaitable<Result<void>> try_open_files();
  io::awaitable<Result<void>> make_job_files();
  /// Of changes that an earlier term has journalled and not told.
  void tell_past_changes(const ToldEvents& told);
  io::awaitable<void> tick_loop();
  /// A line now and then that tells how the job goes on.
  io::awaitable<void> heartbeat();
  /// Tells the job machine which agents have fallen silent, and which are heard again.
  void notice_silence(Time now);
  /// Wakes run() when a task has failed and all are cancelled.
  io::awaitable<void> notice_failure();
  /// Looks whether another master has taken the folder over: then nothing is left to be done here.
  io::awaitable<void> watch_lock();
  /// Ends a foreground job whose dtlaunch died before it came for its console.
  io::awaitable<void> expect_owner();
  io::awaitable<void> shut_down();
  /// At the end: hosts that an earlier term gave up as lost, where it could not say so.
  void reach_all_once_more();
  /// The last lines of the folder's files; the lock goes.
  io::awaitable<void> close_files();
  /// What share of the members' time was not lost, and by what the rest was.
  void tell_goodput();
  /// Whether a host may still say that everything there has ended.
  [[nodiscard]] bool awaits_agents(Time since) const;
  /// At the end: how long hosts whose link is not up are tried. As long as one connection may take,
  /// so that nothing runs on there beside whoever goes on with the job.
  [[nodiscard]] Duration last_reach() const;
  /// Whether somebody was there to hear it, if anybody was to.
  bool say_ready(const std::string& line);

  // The machine.
  void post(JobEvent event);
  void pump();
  void carry_out(std::vector<Effect> effects);
  /// Writes the record, or says why it cannot be written now. Other trouble than want of room ends
  /// the job.
  Result<void> append(const Append& e);
  /// Tries again what the journal's disk had no room for, and tells when little is left.
  void look_at_journal_room();
  /// The job ends though the journal cannot be written.
  void end_unwritten(int exit_code, std::string why);
  /// The job's time (JournalRoom), beside the wall clock's.
  [[nodiscard]] Instant now() const;
  void act(const Attach& e);
  void act(const ReleaseHost& e);
  void act(const Prepare& e);
  void act(const StartWorker& e);
  void act(const StartServer& e);
  void act(const Stop& e);
  void act(const Inspect& e);
  void act(const Acknowledge& e);
  void act(const TellServers& e);
  void act(const TellRelease& e);
  void act(const TellShrunk& e);
  void act(const TellCommit& e);
  void act(const SealCheckpoint& e);
  io::awaitable<void> seal(Checkpoints::Saving what);
  /// Finds out, and again now and then, whether there is a place for checkpoints.
  io::awaitable<void> watch_checkpoint_place();
  /// Has the host look for the place, if it has not yet; `known`: what its agent knows of.
  void look_for_place(const Host& host, const std::vector<ProcessReport>& known);
  void act(const Note& e);
  void act(const End& e);

  // Hosts and processes.
  HostShell& shell(const Host& host);
  void cannot_attach(const Host& host, std::string why);
  AgentLink& make_link(const Host& host);
  /// Makes the link to an agent of an earlier term.
  io::awaitable<void> reattach(Host host);
  /// Not given up as lost meanwhile; at the job's end each of them is to be told.
  [[nodiscard]] bool awaits_agent_of_earlier_term(const Host& host) const;
  /// Makes the link to a host's agent and starts one if none is there.
  io::awaitable<void> reach(Host host);
  void attached(const Host& host, const AgentState& state);
  /// It has the folder that processes start in.
  void admitted(const Host& host, const AgentState& state);
  /// It has not, or does not say.
  void kept_away(const Host& host, std::string why);
  void broke(const Host& host, const Error& error, bool gone);
  void heard(const Host& host, const wire::Frame& frame);
  /// Events of what is newly wrong with a host's GPUs.
  void tell_gpu_troubles(const Host& host, const GpuHealth& health);
  void said(const Host& host, ProcessId process, std::uint16_t type, const std::string& body);
  void ended(ProcessId process, ExitStatus status, std::string why, bool never_ran);
  io::awaitable<void> prepare(Host host);
  /// Nobody waits any more for the data checks that run there.
  void forget_prepares(const Host& host);
  launcher::ProcessFacts facts_for(ProcessId process, const Host& host) const;
  /// Of rank 0: of whoever is going to be it when everybody who is gone has left the view; `host`
  /// if nobody is there.
  [[nodiscard]] const Host& host_of_rank_0(const Host& host) const;
  [[nodiscard]] std::string address_of(const Host& host) const;
  [[nodiscard]] AgentPlace place_of(const Host& host) const;
  template <class Message>
  void send(const Host& host, const Message& message) {
    if (HostShell& h = shell(host); h.link) h.link->send(message);
  }
  template <class Message>
  void send_to(const Host& host, ProcessId process, const Message& message) {
    send(host, ToProcess{process, Message::kType, wire::body_of(message)});
  }

  // Requests.
  io::awaitable<std::string> answer(std::string request);
  io::awaitable<std::string> edit_host_worker(std::string op, std::string host,
                                              std::uint32_t slots);
  io::awaitable<Result<void>> rewrite_host_worker(std::string op, std::string host,
                                                  std::uint32_t slots);
  [[nodiscard]] std::string status() const;
  [[nodiscard]] double uptime_s() const;

  [[nodiscard]] std::string path(const std::string& name) const {
    return spec_.job_dir + "/" + name;
  }

  io::asio::any_io_executor executor_;
  SupervisorOptions options_;
  io::JobSpec& spec_;
  std::unique_ptr<launcher::Backend> backend_;
  io::FdLog own_log_{STDERR_FILENO};
  VolumeClient volume_;
  io::TaskGroup group_;
  io::asio::steady_timer done_;

  std::optional<Store> store_;
  JournalRoom journal_room_;
  std::optional<CheckpointPlace> checkpoint_place_;  ///< Set with --checkpoint-interval.
  std::optional<LockHolder> lock_;
  std::unique_ptr<ControlServer> control_;
  std::unique_ptr<io::Log> console_;
  std::unique_ptr<Story> story_;
  std::unique_ptr<StoryFiles> story_files_;
  std::unique_ptr<ProcessOutput> output_;
  std::unique_ptr<HostWorker> host_worker_;
  std::unique_ptr<ChangeLogFile> change_log_;
  std::unique_ptr<JournalCopy> journal_copy_;
  std::unique_ptr<Job> job_;
  Term term_;

  std::map<Host, HostShell> hosts_;
  std::map<ProcessId, ProcessNotes> processes_;
  FolderChecks folder_checks_;
  Pulse pulse_;
  std::map<std::uint32_t, PrepareRun> prepares_;
  std::set<Host> waits_told_;
  std::set<Host> synced_;
  std::uint32_t reattaching_ = 0;  ///< Agents of an earlier term whose link is not made yet.
  std::uint32_t next_prepare_ = 0;
  std::string secret_;
  std::string master_address_;

  Changes changes_;
  std::deque<JobEvent> events_;
  bool pumping_ = false;
  bool journal_failed_ = false;  ///< Nothing is carried out any more.
  bool refused_ = false;         ///< Another job has the folder, or another supervisor this job.
  bool editing_ = false;         ///< Somebody is changing host_worker for dtctl.
  std::optional<End> end_;
  std::optional<std::string> stopped_why_;  ///< stop() was called.
  bool is_killed_ = false;                  ///< kill() was called.
  bool has_folder_ = true;                  ///< No other supervisor has taken it over.
  Time started_ = io::steady_now();
  Time ticked_at_ = started_;
  Time listens_since_ = started_;  ///< Before that nothing could be heard: we did not run.
};

}  // namespace dt::supervisor
