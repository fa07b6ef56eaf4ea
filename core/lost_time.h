/// Worker-seconds in which members waited for something other than their own work, by cause. Pure
/// bookkeeping; core/job.h knows who waits and for what.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "core/id.h"

namespace dt {

class LostTime {
 public:
  /// So many members are there from now on; what they had since the last call is counted.
  void pass(std::size_t members, Time now);
  void lose(const std::string& cause, Duration worker_time) { lost_[cause] += worker_time; }
  /// A server is silent since then. Returns the time that was not counted yet.
  [[nodiscard]] Duration uncounted_silence(Time since, Time now);
  /// What was lost until then is counted under another cause.
  void counted_until(Time until) {
    silence_counted_until_ = std::max(silence_counted_until_.value_or(until), until);
  }
  [[nodiscard]] const std::optional<Time>& silence_counted_until() const {
    return silence_counted_until_;
  }

  /// Since the begin of this supervisor's life.
  [[nodiscard]] const std::map<std::string, Duration>& by_cause() const { return lost_; }
  [[nodiscard]] Duration lost() const;
  [[nodiscard]] Duration total() const { return total_; }
  /// The share that was not lost, 0 to 1; nothing before there was any time.
  [[nodiscard]] std::optional<double> goodput() const;
  /// "98.5 % of 1200 worker-seconds; lost: boundary 10.0 s, death 8.0 s"
  [[nodiscard]] std::string summary() const;

 private:
  std::map<std::string, Duration> lost_;
  Duration total_{};
  std::optional<Time> since_;
  std::size_t members_ = 0;
  std::optional<Time> silence_counted_until_;
};

}  // namespace dt
