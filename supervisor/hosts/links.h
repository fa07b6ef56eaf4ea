/// The links to all agents of a job: reaches hosts, checks that they have the working folder,
/// notices silence, and ends the agents at the end. What arrives goes to the LinkListener.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/lookup.h"
#include "launcher/backend/backend.h"
#include "supervisor/context/supervisor_context.h"
#include "supervisor/hosts/agent_connection.h"

namespace dt::supervisor {

/// What a link has learnt of a host.
struct HostLink {
  std::unique_ptr<AgentConnection> link;
  std::string address;  ///< See host_address; empty until an agent was attached.
  bool synced = false;  ///< The working folder was brought there.
  std::uint32_t cores = 0;
  std::string machine;
  std::string reach_command;  ///< Repeats the last failed connection by hand.
  bool ever_attached = false;
  bool leaving = false;          ///< Released: its link closes when the agent has ended.
  bool silent = false;           ///< AgentSilent was posted.
  bool machine_is_gone = false;  ///< Nothing can run there.
  /// The state of an agent that was asked for the working folder and has not answered.
  std::optional<AgentState> asked;
  Time asked_at;
  std::optional<std::uint64_t> has_folder;  ///< Incarnation of the agent that has the folder.
  std::optional<bool> has_program;  ///< The activated_program(); nothing: it has not answered.

  [[nodiscard]] bool is_attached() const { return link && link->up() && ever_attached; }
  /// The host is still part of the job.
  [[nodiscard]] bool is_kept() const { return link && !leaving; }
  /// Nothing says yet that all that ran there has ended.
  [[nodiscard]] bool may_run() const { return link && !link->ended() && !machine_is_gone; }
};

/// Hears what comes over the links.
class LinkListener {
 public:
  /// The agent is attached and has the working folder; before AgentAttached is posted.
  virtual void admitted(const Host& host, const AgentState& state) = 0;
  /// The same, after it.
  virtual void attached(const Host& host, const AgentState& state) = 0;
  virtual void frame(const Host& host, const wire::Frame& frame) = 0;
  /// The host's link is, or will be, a new one.
  virtual void link_begins(const Host& host) = 0;
  /// No agent is there: what ran there is gone.
  virtual void agent_gone(const Host& host) = 0;

 protected:
  ~LinkListener() = default;
};

/// One thread. Everything given outlives it.
class HostLinks {
 public:
  /// Brings the working folder to a host before anything starts there; empty: nothing to bring.
  using Sync = std::function<io::awaitable<Result<void>>(Host)>;

  HostLinks(SupervisorContext& context, launcher::Backend& backend, Sync sync);

  /// Makes the link to a host's agent, and starts one if `start` and none is there. Answered by
  /// AgentAttached or AttachFailed.
  void attach(const Host& host, bool start);
  /// The agent stops everything and ends.
  void release(const Host& host);
  /// False: the link is down, and the message is dropped.
  template <class Message>
  bool send(const Host& host, const Message& message) {
    HostLink& h = hosts_[host];
    return h.link && h.link->send(message);
  }
  /// What the agent answers to CheckFolder, also to the one for activated_program().
  void folder_checked(const Host& host, const FolderChecked& answer);
  /// Posts which agents have fallen silent and which are heard again; gives up hosts whose folder
  /// does not answer. `job_now`: the job's time.
  void tick(Time now, Time job_now);
  /// Nothing can run on the host until an agent answers there: shut_down() does not wait for it.
  void machine_gone(const Host& host) { hosts_[host].machine_is_gone = true; }
  /// Every agent kills what it runs, drops output that is left there, and ends.
  void kill_all();
  /// The job ends: no host is reached any more.
  void stop_reaching() { is_ending_ = true; }
  /// Every agent ends, with `grace` for its processes, or without any after kill_all(); waits for
  /// them, as long as output comes. Returns the hosts that did not confirm it.
  io::awaitable<std::vector<Host>> shut_down(Duration grace);
  /// The end of a taken-over job is not waited for any more.
  void hurry() { is_hurried_ = true; }
  /// Set before the first attach(); outlives it.
  LinkListener* listener = nullptr;
  /// An agent obeys a supervisor of a higher term. May be empty.
  std::function<void(const Host&, Term)> on_outranked;

  [[nodiscard]] const std::map<Host, HostLink>& all() const { return hosts_; }
  /// An unknown host is like one that was never reached.
  [[nodiscard]] const HostLink& at(const Host& host) const { return value_in(hosts_, host); }
  /// A host's address; its name while that is not known.
  [[nodiscard]] std::string address_of(const Host& host) const;

 private:
  AgentConnection& make_link(const Host& host);
  /// Makes the link to a host's agent and starts one if none runs.
  io::awaitable<void> reach(Host host);
  /// What keeps the host from being linked; nothing: it can be.
  io::awaitable<Result<void>> get_ready(Host host);
  void cannot_attach(const Host& host, const Error& error);
  void attached(const Host& host, const AgentState& state);
  void admitted(const Host& host, const AgentState& state);
  /// Once all base hosts have answered: one line about hosts without the activated_program().
  void warn_of_lacking();
  /// Another host of the job is the same machine.
  void warn_of_twin(const Host& host);
  /// The host lacks the working folder, or does not answer.
  void kept_away(const Host& host, const Error& error);
  void broke(const Host& host, const Error& error, bool gone);
  /// Says now and then which hosts have not confirmed the end of a taken-over job.
  void tell_awaited(Time until);
  void notice_silence(const Host& host, HostLink& h, Time now, Time job_now);

  SupervisorContext& context_;
  const io::JobSpec& spec_;
  launcher::Backend& backend_;
  Sync sync_;
  std::string folder_;  ///< What every host needs before processes start there; empty: nothing.
  const std::string program_;  ///< The activated_program().
  std::map<Host, HostLink> hosts_;
  std::set<Host> lack_program_;  ///< Not warned of yet.
  bool is_ending_ = false;
  bool is_hurried_ = false;
  bool is_killed_ = false;
  Time tell_at_{};
  Time ticked_at_;
  Time listens_since_;  ///< Before that nothing could be heard: this process did not run.
};

}  // namespace dt::supervisor
