/// A worker's membership: the view it was released into, the commits since, and the answer to its
/// arrival at a boundary. No socket, no clock: JobControl passes messages in, the store reads.
///
/// Any thread; the boundary's calls are the caller's, in this order: arrive(), then, when
/// is_answered() or the wait is over for another reason, leave_boundary().
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "core/protocol/control_messages.h"
#include "kvstore/store.h"
#include "kvstore/worker/client.h"

namespace dt::kv {

class MemberState {
 public:
  explicit MemberState(const ClientOptions& start);

  [[nodiscard]] View view() const { return locked(view_); }
  /// Generation of the view that the worker was released into, sent in its frames. Every server
  /// knows this view; a later commit may reach the worker before it reaches a server.
  [[nodiscard]] Generation generation() const { return Generation(generation_.load()); }
  /// Whether the worker has the duties of rank 0.
  [[nodiscard]] bool is_lead() const { return locked(is_lead_); }
  /// False for a newcomer before its first release.
  [[nodiscard]] bool is_member() const { return locked(is_member_); }
  [[nodiscard]] bool must_leave() const { return locked(must_leave_); }
  /// The epoch that it was released into last; nothing: it has passed no boundary.
  [[nodiscard]] std::optional<Epoch> epoch() const { return locked(last_released_); }

  /// The supervisor's messages. Each may come twice.
  void on_release(const Release& release);
  void on_shrunk(const Shrunk& shrunk);
  /// Why the supervisor's messages do not come any more.
  void on_lost(Error error);
  [[nodiscard]] std::optional<Error> lost() const { return locked(lost_); }

  /// Begins an arrival and returns the message to send. `servers`: Servers::since of the connected
  /// servers; a release of an earlier generation does not answer the arrival.
  [[nodiscard]] Arrive arrive(Epoch epoch, Generation servers = {});
  [[nodiscard]] bool is_answered() const;
  /// Ends the arrival. The view that the worker was released into; none: it was not released, or
  /// must leave.
  [[nodiscard]] std::optional<View> leave_boundary();

 private:
  template <class T>
  [[nodiscard]] T locked(const T& member) const {
    const std::lock_guard lock(mutex_);
    return member;
  }

  const WorkerId worker_;
  std::atomic<std::uint64_t> generation_;  ///< Written under mutex_.
  mutable std::mutex mutex_;
  // Under mutex_:
  View view_;  ///< Its generation is that of the last commit that the supervisor sent.
  bool is_member_;
  bool is_lead_;
  bool must_leave_ = false;
  std::optional<Arrive> arriving_;
  std::optional<Release> release_;      ///< The answer to arriving_.
  std::optional<Epoch> last_released_;  ///< The epoch of the last release that was applied.
  std::optional<Error> lost_;
};

}  // namespace dt::kv
