/// Worker-seconds of members, and the lost ones among them, in which they waited for something
/// other than their own work, by cause. Sums only; core/job/lost_time.h measures. Pure.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/base/time.h"

namespace dt {

/// The cause of the time in which a group restarts. What its program repeats after that is not
/// seen.
inline constexpr const char* kRestartCause = "restart";
/// All members wait for each other.
inline constexpr const char* kStandstillCause = "standstill";
/// Members wait in a round for a worker that does nothing.
inline constexpr const char* kHangCause = "hang";
/// All causes. core/job/lost_time.h says what each is.
inline constexpr std::array kLossCauses = {
    "boundary",        "join",       "leave",       "below-min-workers", "death",   "server",
    "server recovery", "supervisor", kRestartCause, kStandstillCause,    kHangCause};

class Goodput {
 public:
  /// From now on there are `members`; the time since the last call is added for the former ones.
  void pass(std::size_t members, Time now);
  void lose(const std::string& cause, Duration worker_time) { lost_[cause] += worker_time; }
  /// The sums of an earlier term; only before this one has counted any.
  void resume(Duration total, std::map<std::string, Duration> lost) {
    total_ = total;
    lost_ = std::move(lost);
  }

  /// Since the begin of the job, without the time that a dead supervisor had not journalled.
  [[nodiscard]] const std::map<std::string, Duration>& by_cause() const { return lost_; }
  [[nodiscard]] Duration lost() const;
  [[nodiscard]] Duration total() const { return total_; }
  /// The goodput: the share that was not lost, 0 to 1; nothing before there was any time.
  [[nodiscard]] std::optional<double> share() const;
  /// "98.5 % of 1200 worker-seconds; lost: boundary 10.0 s, death 8.0 s"
  [[nodiscard]] std::string summary() const;

 private:
  std::map<std::string, Duration> lost_;
  Duration total_{};
  std::optional<Time> since_;
  std::size_t members_ = 0;
};

}  // namespace dt
