/// What a server's loop says of its workers, and whether it turns at all: handed from the loop's
/// thread to whoever reports, who never waits for the loop.
///
///     reporter: is_to_ask() --post--> loop: publish()      reporter: take(), stuck_for()
///
/// A loop turns as long as it answers: an idle one is woken by the question.
#pragma once

#include <sys/types.h>

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "core/base/id.h"
#include "core/base/time.h"

namespace dt::kv {

class LoopReport {
 public:
  struct Seen {
    struct Worker {
      bool connected = false;
      bool active = false;  ///< Bytes moved.
      bool busy = false;    ///< More than beats came.
    };
    std::map<WorkerId, Worker> workers;  ///< The connected ones, and contributors that were.
    std::set<WorkerId> owing;
    std::set<WorkerId> waiting;
  };

  // ---- the loop's thread
  /// At its begin: names the thread after the loop and notes its id.
  void begin_thread(std::uint32_t loop);
  /// Answers the question. What was active or busy stays so until take().
  void publish(Seen seen);

  // ---- any other thread
  /// True: the caller makes the loop publish; false: it has not answered the last question.
  [[nodiscard]] bool is_to_ask(Time now);
  /// What was published last, with all that was active or busy since the last call.
  [[nodiscard]] Seen take();
  /// How long the loop has not turned.
  [[nodiscard]] Duration stuck_for(Time now) const;
  /// What the loop's thread does, by the kernel; empty if it is unknown.
  [[nodiscard]] std::string thread_state() const;

 private:
  mutable std::mutex mutex_;  ///< Held for copies alone, a few times a second.
  // Under mutex_:
  Seen seen_;
  std::optional<Time> asked_;  ///< A question that is not answered.
  pid_t thread_ = 0;
};

}  // namespace dt::kv
