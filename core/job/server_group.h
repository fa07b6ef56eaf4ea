/// The job's servers: their hosts, their start, and the reaction to a loss: back to the newest
/// checkpoint with new servers, or the end of the job. Pure.
///
/// New servers get new ids; those that they replace are retired, and stopped wherever they show up.
/// Opaque servers (the user's own programs, which do not know the protocol) are started and stopped
/// only; the job cannot go on without one that failed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/id.h"
#include "core/base/lookup.h"
#include "core/files/hosts.h"
#include "core/job/checkpoints.h"
#include "core/job/context.h"
#include "core/job/host_table.h"
#include "core/job/lost_time.h"
#include "core/job/server_watch.h"

namespace dt {

struct ServerState {
  Host host;
  std::uint32_t index = 0;  ///< Among the servers.
  bool started = false;
  bool ended = false;   ///< Opaque ones only: it exited with code 0.
  std::string address;  ///< Empty until it listens.
  std::uint16_t port = 0;
  std::uint32_t attempts = 0;  ///< Failed tries to reach its host.
  const HostState* its_host = nullptr;
};

class ServerGroup {
 public:
  ServerGroup(JobContext& job, HostTable& hosts, Checkpoints& checkpoints, LostTime& lost_time)
      : job_(job),
        hosts_(hosts),
        checkpoints_(checkpoints),
        lost_time_(lost_time),
        watch_(job.options.server_dead_after) {}

  /// After the replay: servers of hosts with an agent may run.
  void replayed();
  void begin(Term term, bool is_resumed) {
    term_ = term;
    is_resumed_ = is_resumed;
  }

  // Events.
  /// An agent is attached, with these processes: starts and informs the servers of its host.
  void attached(const Host& host, const std::vector<ProcessReport>& there);
  /// True: now all servers listen, and this one did not before.
  [[nodiscard]] bool listening(const FromServer<ServerReady>& e);
  void acked(const FromServer<CommitAck>& e);
  void reported(const FromServer<Traffic>& e) {
    watch_.reported(e.server, e.message.stuck, job_.now());
  }
  void data_seen(const FromWorker<ServersHeard>& e);
  void inspected(ServerId server, const std::string& text) { watch_.inspected(server, text); }
  void ended(const ProcessEnded& e);
  void saved(const FromServer<Saved>& e);
  void checkpoint_unusable(const FromServer<GivingUp>& e);
  /// A host could not be reached: its servers are tried again later, or elsewhere.
  void host_failed(const Host& host, const std::string& why);
  /// The processes of a host are lost. `unreachable`: hosts, it among them, on which nothing can be
  /// started either; empty: it can.
  void host_lost(const Host& host, const std::string& why, const std::set<Host>& unreachable);
  /// Looks for servers that are silent or stuck.
  void tick();

  /// Attaches to the hosts of servers that are not started, among those of the agenda.
  void reach_hosts();
  /// Starts those of attached hosts that could not be started so far.
  void start_waiting();
  /// Sends the present commit to every server.
  void tell_commit();

  void apply(const JobBegan& r);
  void apply(const BaseReplaced& r);
  void apply(const RolledBack& r);

  [[nodiscard]] const std::map<ServerId, ServerState>& all() const { return servers_; }
  [[nodiscard]] bool has(ServerId server) const { return servers_.count(server) > 0; }
  [[nodiscard]] std::set<Host> hosts() const;
  [[nodiscard]] bool serves(const Host& host) const { return !on(host).empty(); }
  /// One of this host was not started yet.
  [[nodiscard]] bool awaits_start_on(const Host& host) const;
  [[nodiscard]] bool all_listen() const {
    return job_.options.opaque_servers || listening_ == servers_.size();
  }
  /// All know the present generation; opaque ones need not.
  [[nodiscard]] bool all_acked() const {
    return job_.options.opaque_servers || job_.boundary.acked() == servers_.size();
  }
  /// What workers connect to.
  [[nodiscard]] Servers list() const;
  /// The rollback that brought the servers; 0: none.
  [[nodiscard]] Generation since() const { return since_; }
  /// Why the servers of the last rollback were lost.
  [[nodiscard]] const std::string& why() const { return why_; }
  /// The epoch that the last rollback interrupted.
  [[nodiscard]] std::optional<Epoch> interrupted() const { return interrupted_; }
  /// There are servers, and none of their hosts is heard.
  [[nodiscard]] bool are_unseen() const;
  /// An opaque server may still run: it gets time to end after the workers, the last of which ended
  /// at `last_worker`.
  [[nodiscard]] bool awaits_opaque(Time last_worker) const;
  /// How long this host may be silent while it has servers; nothing: as long as workers get data
  /// from them. `is_seen`: workers are heard who could report that.
  [[nodiscard]] std::optional<Duration> patience_with(const Host& host, bool is_seen) const;
  /// Whether the boundary before this epoch saves a checkpoint.
  [[nodiscard]] bool saves_at(Epoch epoch) {
    return !servers_.empty() && checkpoints_.saves_at(epoch);
  }
  /// For tests: what is kept beside the servers agrees with them.
  [[nodiscard]] bool index_holds() const;
  [[nodiscard]] const ServerWatch& watch() const { return watch_; }

 private:
  struct Loss {
    std::string why;
    int code = 0;               ///< The job's exit code where it cannot go back.
    std::set<Host> avoid = {};  ///< Hosts where no server can run.
    /// The checkpoint that the servers were to load cannot be read: an older one is taken.
    bool is_checkpoint = false;
  };
  /// The checkpoint that new servers load.
  struct Origin {
    Epoch epoch;
    bool is_inherited = false;  ///< The checkpoint that the job began with.
  };

  template <class Is>
  [[nodiscard]] bool any(Is is) const {
    return std::ranges::any_of(servers_, [&is](const auto& s) { return is(s.second); });
  }
  /// Those of this host.
  [[nodiscard]] const std::vector<ServerId>& on(const Host& host) const {
    return value_in(on_host_, host);
  }
  /// Goes back to the newest checkpoint, or ends the job where it cannot.
  void lost(const Loss& loss);
  void roll_back(const Loss& loss, const Origin& origin);
  [[nodiscard]] std::optional<Origin> checkpoint_to_use(const Loss& loss) const;
  /// The hosts of new servers, in order; nothing: no living one is left instead of `lost`.
  [[nodiscard]] std::optional<std::vector<Host>> hosts_for_new(const std::set<Host>& lost) const;
  void add(const std::vector<Host>& hosts);
  void start(ServerId id);
  void tell_commit(ServerId id);
  void opaque_ended(ServerId id, const ProcessEnded& e);
  /// Stops retired servers of this host, and forgets those that it does not report.
  void stop_retired(const Host& host, const std::vector<ProcessReport>& there);

  JobContext& job_;
  HostTable& hosts_;
  Checkpoints& checkpoints_;
  LostTime& lost_time_;
  std::map<ServerId, ServerState> servers_;
  std::map<Host, std::vector<ServerId>> on_host_;
  std::size_t listening_ = 0;
  ServerWatch watch_;
  std::map<ServerId, Host> retired_;  ///< Replaced, and their exit was not reported yet.
  std::vector<Host> homes_;           ///< Hosts of the first servers.
  std::set<Host> base_hosts_;
  ServerId next_;
  Generation since_;
  Epoch epoch_;           ///< The checkpoint that they loaded, after a rollback.
  bool inherits_ = true;  ///< They loaded the checkpoint that the job began with, if any.
  std::string why_;
  std::optional<Epoch> interrupted_;
  Term term_;
  bool is_resumed_ = false;  ///< This is not the first term.
};

}  // namespace dt
