/// A job's progress, for people and for monitoring: the duration of epochs and boundaries, the age
/// of the last boundary and checkpoint; and each process's rate, memory and last output.
/// It only observes.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/base/id.h"
#include "core/base/lookup.h"
#include "core/base/time.h"
#include "core/job/events.h"
#include "core/protocol/control_messages.h"
#include "supervisor/control/pace.h"

namespace dt {
class Boundary;
class Job;
}  // namespace dt

namespace dt::supervisor {

/// One thread. Times are those of the job machine.
class JobFigures {
 public:
  // Input.
  /// Call it after the job machine has handled events.
  void look(const Job& job, Time now);
  /// The part of look() that sees boundaries.
  void look_at_boundary(const Boundary& view, Time now);
  void progress(WorkerId worker, std::uint64_t step, Time now);
  void figures(WorkerId worker, const Figures& figures, Time now);
  void traffic(ServerId server, const Traffic& report) {
    pace_.report(report);
    processes_[{Role::kServer, server.value}].seen.in_place = report.in_place;
  }
  void output(ProcessId process, Time now) { processes_[process].seen.output_at = now; }
  void resident(ProcessId process, std::uint64_t bytes) {
    processes_[process].seen.resident = bytes;
  }
  void forget(ProcessId process) { processes_.erase(process); }

  // Results; nullopt until the event has happened in this supervisor's life.
  /// Mean seconds of the last epochs, from boundary to boundary.
  [[nodiscard]] std::optional<double> epoch_s() const;
  [[nodiscard]] std::optional<double> boundary_age_s(Time now) const;
  [[nodiscard]] std::optional<double> checkpoint_age_s(Time now) const;
  /// Checkpoints that became the newest.
  [[nodiscard]] std::uint64_t checkpoints() const { return checkpoints_; }
  /// Boundaries from one epoch to the next, each from its first arrival to its last release.
  struct Crossings {
    std::uint64_t count = 0;
    Duration all{};   ///< Their sum.
    Duration last{};  ///< The latest one's.
  };
  [[nodiscard]] const Crossings& crossings() const { return crossings_; }
  struct Process {
    std::optional<double> steps_per_s;
    std::optional<Time> output_at;
    std::optional<std::uint64_t> resident;  ///< Its memory, in bytes.
    std::optional<Figures> figures;         ///< The latest of a worker.
    std::optional<std::uint64_t> in_place;  ///< A server's Traffic::in_place.
  };
  [[nodiscard]] Process of(ProcessId process) const { return value_in(processes_, process).seen; }
  /// Of the last 10 s; nullopt: no figures came in them.
  [[nodiscard]] std::optional<double> samples_per_s(ProcessId process, Time now) const;

  [[nodiscard]] const Pace& pace() const { return pace_; }
  /// That the others wait for a slow worker, once a minute while they do; to be called after
  /// look().
  [[nodiscard]] std::optional<Note> news(const Job& job, Time now);

  /// "epoch 31, 4 workers, 2.6 s/epoch, last boundary 3 s ago, checkpoint of epoch 30 (8 s ago),
  /// goodput 99.7 %, 2 restarts"; without unknown parts.
  [[nodiscard]] std::string line(const Job& job, Time now, double uptime_s) const;

 private:
  /// How far a worker came since its rate was last known.
  struct Progress {
    std::uint64_t last = 0;   ///< Step reported last.
    std::uint64_t steps = 0;  ///< Made since then.
    Time since{};
  };
  struct Observed {
    Process seen;
    std::optional<Progress> progress;
    std::deque<std::pair<Time, std::uint64_t>> samples;  ///< Pushed until then; the last 10 s.
  };

  std::deque<Time> boundaries_;  ///< Boundaries of consecutive epochs, the newest last.
  std::optional<Epoch> epoch_;
  std::optional<Epoch> crossed_to_;
  std::optional<Time> arrived_at_;      ///< The first arrival at the next boundary.
  std::optional<Time> crossing_since_;  ///< That of the boundary before this epoch, until its last
                                        ///< release.
  Crossings crossings_;
  std::optional<Epoch> checkpoint_;
  std::optional<Time> checkpoint_at_;  ///< It was seen to become the newest.
  Pace pace_;
  Generation generation_;          ///< At the last look.
  std::optional<Time> slow_told_;  ///< By news().
  bool has_looked_ = false;
  std::uint64_t checkpoints_ = 0;
  std::map<ProcessId, Observed> processes_;
};

}  // namespace dt::supervisor
