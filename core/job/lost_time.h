/// Worker-seconds in which members waited for something other than their own work, by cause. Pure
/// bookkeeping; core/job/job.h knows who waits and for what.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/base/time.h"

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

  /// An earlier term counted so much; only before this one has counted any.
  void resume(Duration total, std::map<std::string, Duration> lost) {
    total_ = total;
    lost_ = std::move(lost);
  }
  /// It is time to journal the sums; each time it says so once.
  [[nodiscard]] bool is_save_due(Time now);

  /// Since the begin of the job; what a dead supervisor had not journalled is missing.
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
  std::optional<Time> saved_at_;
  std::size_t members_ = 0;
  std::optional<Time> silence_counted_until_;
};

}  // namespace dt
