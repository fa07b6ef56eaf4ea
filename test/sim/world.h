/// The parts of the simulated world; test/sim/cluster.h moves them.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "core/job/job.h"

namespace dt::sim {

inline constexpr Duration kOrphanTimeout = std::chrono::seconds(30);

/// The faults of a run, with probabilities. Each seed leaves some of them out.
struct Faults {
  double cut = 0, isolate = 0, kill_worker = 0, kill_agent = 0, kill_host = 0, kill_server = 0;
  double freeze = 0, hang_worker = 0, hang_in_epoch = 0, hang_server = 0, edit = 0, refuse = 0,
         stop = 0;
  double crash_per_effect = 0, duplicate = 0;
  double newcomer_fails = 0, newcomer_hangs = 0, prepare_fails = 0, base_fails = 0;
  double exits_early = 0, leave_ignored = 0, late_ack = 0, silent_server = 0;
  double save_fails = 0, save_hangs = 0, seal_fails = 0, server_fails = 0;
  double damage = 0;
  double worker_fails = 0, unkillable = 0,
         never_runs = 0;  ///< Chances, in jobs with --on-change restart.
  double notice = 0;
  double two_orders = 0;  ///< Chance of a worker in an epoch, in programs that have the fault.
};

struct Process {
  ProcessId id;
  std::size_t host = 0;
  bool running = true;
  bool hung = false;
  std::optional<ExitStatus> exit;
  Time ended{};
  bool never_ran = false;
  bool stalls = false;  ///< It was created, and its exec hangs.
  // Its messages, kept by its agent.
  bool opened = false;
  bool listens = false;
  std::optional<FromWorker<Arrive>> arrived;
  std::optional<Generation> acked;
  // A worker's own state.
  bool newcomer = false;
  bool has_servers = false;
  bool warming = false;
  bool waits = false;
  bool released = false;
  bool told_to_leave = false;
  Epoch epoch;
  bool busy = false;          ///< Pushed or pulled since the servers last reported.
  std::optional<Epoch> done;  ///< Trained this epoch; waits for the others' contributions.
  /// Waits in this epoch in a round to which others come only after those that this one lacks.
  std::optional<Epoch> crossed;
  std::uint64_t turn = 0;  ///< The turn that the servers' replacement interrupts.
  // A server's generation, or that of the servers that a worker is connected to.
  Generation since;
  // A server's own state.
  Term term;
  Generation generation;
  std::vector<WorkerId> set;
  std::optional<Generation> asked_to_save;
  std::optional<Saved> saved;   ///< Kept by its agent.
  bool damaged = false;         ///< Its first checkpoint cannot be read.
  bool unusable = false;        ///< It has reported that; kept by its agent.
  std::optional<Epoch> values;  ///< It has those at that epoch's begin; none: before any training.
  std::uint64_t chain = 0;      ///< Stands for the values: a hash of the epochs that led to them.
};

struct Agent {
  bool alive = false;
  std::uint64_t incarnation = 0;
  Term term;
  std::uint64_t link = 0;  ///< 0 without a link.
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
  Time last_to_supervisor{};  ///< Nothing arrives before this.
};

struct Machine {
  Host host;
  bool up = true;
  bool control = true;  ///< ssh gets through.
  bool data = true;     ///< Gradients get through.
  int boot = 1;
  /// What its agent says at each attach.
  std::map<std::uint64_t, std::function<NoticeGiven()>> notices;
  Term taken_over_by;  ///< Agents are started for no lower term.
  Time refuse_until{};
  Time hang_until{};
  Agent agent;
  Link link;
};

}  // namespace dt::sim
