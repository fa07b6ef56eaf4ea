/// A loop's report on its workers, and whether the loop is stuck. The loop's thread publishes it;
/// the reporting thread reads it and never waits for the loop.
///
///     reporter: is_to_ask() --post--> loop: publish()      reporter: take(), stuck_for()
///
/// A loop turns as long as it answers requests to publish; such a request wakes an idle loop.
#pragma once

#include <sys/types.h>

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/id.h"
#include "core/base/time.h"
#include "core/protocol/control_messages.h"
#include "kvstore/server/shard.h"

namespace dt::kv {

class LoopReport {
 public:
  struct Seen {
    struct Worker {
      bool connected = false;
      bool active = false;  ///< Bytes moved.
      bool busy = false;    ///< Frames other than beats came.
    };
    std::map<WorkerId, Worker>
        workers;  ///< Connected workers, and contributors that were connected.
    std::set<WorkerId> owing;
    std::set<WorkerId> waiting;
    LateRounds late;                ///< Since the last take().
    std::vector<WaitingFor> waits;  ///< Once no worker has sent a request for a while.
  };

  // ---- the loop's thread
  /// At the thread's start: names the thread after the loop and notes its id.
  void begin_thread(std::uint32_t loop);
  /// Answers the request. Workers that were active or busy stay so until take().
  void publish(Seen seen);

  // ---- any other thread
  /// True: the caller must make the loop publish; false: the last request is not answered yet.
  [[nodiscard]] bool is_to_ask(Time now);
  /// The last published report, with the workers that were active or busy since the last call.
  [[nodiscard]] Seen take();
  /// How long the loop has not turned.
  [[nodiscard]] Duration stuck_for(Time now) const;
  /// The kernel's state of the loop's thread; empty if it is unknown.
  [[nodiscard]] std::string thread_state() const;

 private:
  mutable std::mutex mutex_;  ///< Held for copies alone, a few times a second.
  // Under mutex_:
  Seen seen_;
  std::optional<Time> asked_;  ///< When the unanswered request was made.
  pid_t thread_ = 0;
};

}  // namespace dt::kv
