/// While the journal's disk is full the supervisor does nothing that is not journalled. Effects
/// wait in order from the first record that could not be written, events wait for them, and the
/// job's clock stands still, so that no deadline passes. Training continues to the next boundary,
/// as it does while the supervisor is dead. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/job/events.h"

namespace dt::supervisor {

class JournalRoom {
 public:
  /// Between tries to write.
  static constexpr Duration kTryAgain = std::chrono::seconds(1);

  /// Effects wait. Events that matter() are kept by the caller until they do no longer.
  [[nodiscard]] bool is_out() const { return !held_.empty(); }
  /// `effects` cannot be carried out; the first one is the record that could not be written.
  void hold(std::vector<Effect> effects, std::string why, Time now);
  [[nodiscard]] const Append& first() const { return std::get<Append>(held_.front()); }
  /// It is time to try the record again.
  [[nodiscard]] bool is_due(Time now) const { return is_out() && now >= next_try_; }
  void put_off(std::string why, Time now);
  /// The record is written: returns the effects that waited behind it.
  [[nodiscard]] std::vector<Effect> let_go(Time now);
  /// Discards the waiting effects.
  void drop() { held_.clear(); }

  /// The job's time: without the times in which its clock stood.
  [[nodiscard]] Time job_time(Time now) const { return (is_out() ? since_ : now) - stood_; }
  /// How long the effects have waited, 0 if there are none; and why.
  [[nodiscard]] Duration waited(Time now) const { return is_out() ? now - since_ : Duration{}; }
  [[nodiscard]] const std::string& why() const { return why_; }

  /// A message about a shortage, once each time that one begins; otherwise empty.
  [[nodiscard]] std::string news(const std::string& shortage);

  /// Whether the event still matters after the wait. Events that repeat all the time do not.
  [[nodiscard]] static bool matters(const JobEvent& event);
  /// Whether an event that waits is void after the host's release: its agent ends.
  [[nodiscard]] static bool is_void(const JobEvent& event, const Host& released);

 private:
  std::vector<Effect> held_;
  std::string why_;
  Time since_{};
  Time next_try_{};
  Duration stood_{};
  bool is_short_ = false;
};

}  // namespace dt::supervisor
