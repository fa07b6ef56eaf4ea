/// Waiters for a change of the job's state, on the control socket: {"op":"changes"}.
#pragma once

#include <cstdint>

#include "core/base/time.h"
#include "io/asio.h"

namespace dt::supervisor {

/// Numbers the changes of a job and wakes the waiters at the next one. One thread.
class Changes {
 public:
  explicit Changes(io::asio::any_io_executor executor);

  /// Something has changed that the status or the event log shows.
  void note();
  /// The newest one's.
  [[nodiscard]] std::uint64_t number() const { return number_; }
  /// Waits until the newest change is another than number `seen`, at most `limit`; its number. The
  /// first change has number 1, so that 0 never waits.
  io::awaitable<std::uint64_t> after(std::uint64_t seen, Duration limit);

 private:
  std::uint64_t number_ = 1;
  io::asio::steady_timer noted_;  ///< Never expires; cancelled by every change.
};

}  // namespace dt::supervisor
