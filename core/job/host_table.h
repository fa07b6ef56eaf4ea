/// The job's hosts: the link to each one's agent, tries and retries, restart budgets. Reaches hosts
/// and lets them go; what the loss of one means for servers and workers is Job's to decide. Pure.
///
///     kNone --reach()--> kAttaching --AgentAttached--> kUp <--AgentAttached/Detached--> kDown
///       ^---- AttachFailed ----'                        `--- lost(), let_go(), gone ---> kNone
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "core/base/id.h"
#include "core/base/lookup.h"
#include "core/files/hosts.h"
#include "core/job/context.h"
#include "core/job/liveness.h"
#include "core/job/retry.h"
#include "core/job/start_failures.h"

namespace dt {

/// How long after its start or its isolation a supervisor may take to reach the agents before their
/// silence counts.
inline constexpr Duration kReattachGrace = std::chrono::seconds(15);

struct HostState {
  enum class Link { kNone, kAttaching, kUp, kDown };

  Link link = Link::kNone;
  bool prepared = false;
  /// Incarnation of the agent then; nothing: in an earlier term. Not in the journal.
  std::optional<std::uint64_t> prepared_by;
  bool preparing = false;
  std::uint32_t attempts = 0;  ///< Failed tries in a row.
  Failures restarts;           ///< Deaths of members here.
  /// Restarts in a row, each after a death of a member that had not been one for kLives, or for
  /// restart_refill if that is less. Not in the journal.
  std::uint32_t futile_restarts = 0;
  std::optional<Time> cooling_until;
  bool given_up = false;
  std::string why;         ///< Last failure.
  std::string last_death;  ///< What ended the last worker that was started again. Not replayed.
  /// What failed then: reach, preflight, prepare, start (until its first epoch), run.
  std::string check;
  std::optional<Time> told_at;  ///< When its last failure became an event.
  std::string boot_id;
  std::uint64_t incarnation = 0;  ///< Incarnation of its processes' agent; 0: none yet.
  bool had_agent = false;         ///< An agent of the job was attached once.
  AgentPlace place;               ///< Place of the last agent.
  /// When it was last kept although it was silent for too long: this supervisor is cut off.
  std::optional<Time> spared_at;

  [[nodiscard]] bool is_attached() const { return link == Link::kUp || link == Link::kDown; }
  /// Prepared since its agent was started: what prepare-data started may still run.
  [[nodiscard]] bool is_prepared_now() const {
    return prepared && prepared_by.value_or(incarnation) == incarnation;
  }
  /// Processes of the job may exist here.
  [[nodiscard]] bool has_agent() const { return incarnation != 0; }
};

class HostTable {
 public:
  using Link = HostState::Link;

  explicit HostTable(JobContext& job)
      : job_(job), liveness_(job.options.liveness), start_failures_(job.options.start_timeout) {}

  // A term begins.
  /// The host's row, which stays where it is; a new one if it has none.
  const HostState& row(const Host& host) { return hosts_[host]; }
  /// Reaches `needed` hosts; on those with an agent nothing is started.
  void begin(const std::set<Host>& needed);
  /// Attaches to every known agent, so that an End can be sent there.
  void reach_agents();

  // Events.
  /// Another agent than the one that the host's processes belong to.
  [[nodiscard]] bool is_replaced(const AgentAttached& e) const;
  void attached(const AgentAttached& e);
  void moved(const AgentMoved& e);
  /// The link broke, and the agent may live.
  void detached(const AgentDetached& e);
  /// The job forgets the agent: no process of the job runs there.
  void forget_agent(const Host& host);
  void silent(const AgentSilent& e);
  void heard(const AgentHeard& e);
  /// False if nothing was being attached.
  [[nodiscard]] bool attach_failed(const Host& host);
  /// The data check passed.
  void prepared(const Host& host);
  /// A data check ended; false if none is awaited.
  [[nodiscard]] bool prepare_ended(const Host& host);

  // What happens to its processes.
  /// Something failed before a process ran: counts the try and sets the next one's time.
  /// `is_start`: base workers or servers wait for it; then too many tries end the job. `is_final`:
  /// waiting does not mend it.
  void failed(const Host& host, std::string check, const std::string& why, bool is_start,
              bool is_final = false);
  /// A member died here then (JobContext::moment_of()); `budget`: the number of restarts.
  void member_died(const Host& host, Time then, std::uint32_t budget);
  /// Notes the death (WorkerGone::death()), and sets the time of the restart. `lived`: how long the
  /// worker was a member.
  void restart_later(const Host& host, WorkerId worker, const std::string& death,
                     std::uint32_t budget, Duration lived);
  /// Notes the death of a worker. `delay`: until its restart; nothing: the group restarts.
  void note_death(const Host& host, WorkerId worker, const std::string& death, std::uint32_t budget,
                  std::optional<Duration> delay = {});
  /// A new group has workers here.
  void group_began(const Host& host);
  /// One of its workers became a member.
  void member_joined(const Host& host);
  /// One of its workers has left by itself.
  void member_left(const Host& host, std::string why);
  void places_wanted(const Host& host) { change(host).why.clear(); }
  /// Fewer workers are wanted here: failures are forgotten.
  void wanted_less(const Host& host);
  /// The next try is after `attempt` failed ones.
  void cool(const Host& host, std::uint32_t attempt);

  // What it does.
  /// Attaches to the host's agent, and starts one where none is; nothing if that is under way.
  void reach(const Host& host);
  /// Reaches rank 0's host, whose ports the environment of others needs.
  void reach_first();
  /// Starts its data check; nothing if it is under way.
  void prepare(const Host& host);
  void spare(const Host& host) { hosts_[host].spared_at = job_.now(); }
  /// No agent is there, or it was silent for too long.
  void lost(const Host& host);
  /// Releases a host where no worker is wanted and no process runs.
  void let_go(const Host& host);
  /// Ends the job, naming every base host that could not be reached or prepared.
  void end_failed_start();
  /// A base host has failed for --start-timeout, or in a way that waiting does not mend and the
  /// others have said theirs.
  [[nodiscard]] bool start_has_failed() const;

  void apply(const JobBegan& r);
  void apply(const FileTaken& r);
  void apply(const HostPrepared& r) { change(r.host).prepared = true; }
  void apply(const AgentKnown& r);
  void apply(const AgentPlaced& r) { change(r.host).place = r.place; }

  [[nodiscard]] const std::map<Host, HostState>& all() const { return hosts_; }
  /// A default row for a host that is not known.
  [[nodiscard]] const HostState& at(const Host& host) const { return value_in(hosts_, host); }
  /// With its way and its GPUs as the launch or the last accepted file gives them.
  [[nodiscard]] const Host& as_given(const Host& host) const;
  [[nodiscard]] bool is_up(const Host& host) const { return at(host).link == Link::kUp; }
  [[nodiscard]] bool is_cooling(const Host& host) const;
  /// A process may be started there.
  [[nodiscard]] bool usable(const Host& host) const;
  [[nodiscard]] bool is_given_up(const Host& host) const { return at(host).given_up; }
  /// Its agent is attached and not silent.
  [[nodiscard]] bool is_heard(const Host& host) const { return is_heard(host, at(host)); }
  [[nodiscard]] bool is_heard(const Host& host, const HostState& its_row) const {
    return its_row.link == Link::kUp && !liveness_.is_down(host);
  }
  [[nodiscard]] std::set<Host> unreachable() const;
  /// No agent is heard at all: it may be this supervisor that is cut off.
  [[nodiscard]] bool cut_off() const;
  /// The agent of rank 0's host is known, and with it the ports that the job's programs may use.
  [[nodiscard]] bool knows_ports() const;
  /// An agent of an earlier term was attached in this one.
  [[nodiscard]] bool found_an_agent() const { return found_an_agent_; }
  /// Restarts after members' deaths, in all terms of the job.
  [[nodiscard]] std::uint64_t worker_restarts() const { return worker_restarts_; }

  [[nodiscard]] Liveness& liveness() { return liveness_; }
  [[nodiscard]] const Liveness& liveness() const { return liveness_; }

 private:
  /// The host's row, to be changed: the next decisions look at the host.
  HostState& change(const Host& host);
  /// Nothing is tried there before `delay` has passed.
  void cool_for(const Host& host, Duration delay);
  [[nodiscard]] Duration delay_before_retry(const Host& host, std::uint32_t attempt) const;

  JobContext& job_;
  std::map<Host, HostState> hosts_;
  std::set<Host> given_;
  Liveness liveness_;
  StartFailures start_failures_;
  bool found_an_agent_ = false;
  std::uint64_t worker_restarts_ = 0;
};

}  // namespace dt
