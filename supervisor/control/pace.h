/// How long each member works for a step and how long it waits for the others, and who of them is
/// the slow one. Pure: workers' figures and servers' reports in, a judgement every 10 s or more.
///
/// In dist_sync all members make the same number of steps at the same rate, whoever is slow. What
/// differs is what each needs for a step of its own, and how long its calls block.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/id.h"
#include "core/base/lookup.h"
#include "core/base/time.h"
#include "core/protocol/control_messages.h"

namespace dt::supervisor {

class Pace {
 public:
  /// A member in the last whole window.
  struct Share {
    Duration own{};    ///< Its own work, for a step.
    double waits = 0;  ///< The share of its time in which its calls blocked, 0 to 1.
  };
  struct Slowest {
    WorkerId worker;
    Duration own{};     ///< For a step.
    Duration others{};  ///< The median of the others.
    /// "slowest: 102 ms of own work a step, the others 11 ms"
    [[nodiscard]] std::string text() const;
  };

  void figures(WorkerId worker, const Figures& figures, Time now);
  void report(const Traffic& report);
  /// The members change, or what they do: a window begins again.
  void restart();
  /// True: a window has ended, and there are new results.
  bool tick(const std::vector<WorkerId>& members, Time now);

  /// Null: not known.
  [[nodiscard]] const Share* of(WorkerId worker) const { return find_in(shares_, worker); }
  /// The one that the others wait for; nothing: they are about equal.
  [[nodiscard]] const std::optional<Slowest>& slowest() const { return slowest_; }
  /// The share of all members' time that is their own work; nothing: not known.
  [[nodiscard]] std::optional<double> balance() const { return balance_; }

 private:
  struct Mark {
    Time at{};
    std::uint64_t waited_ns = 0;
    std::uint64_t steps = 0;
  };
  struct Window {
    Time due{};  ///< It may end then.
    std::map<WorkerId, Mark> first;
    std::map<WorkerId, std::uint64_t> late;  ///< Rounds in which it came last, by far.
    std::uint64_t rounds = 0;
  };

  void judge();

  std::map<WorkerId, Mark> latest_;
  std::optional<Window> window_;
  std::map<WorkerId, Share> shares_;  ///< What each worker did in the last complete window.
  std::optional<Slowest> slowest_;
  std::optional<double> balance_;
};

}  // namespace dt::supervisor
