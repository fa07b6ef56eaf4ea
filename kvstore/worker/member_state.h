/// What a worker knows of its own membership: the view it was released into, the commits since, and
/// the answer to its arrival at a boundary. No socket, no clock: told by the job link, asked by the
/// store.
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

namespace dt::kv {

class MemberState {
 public:
  /// What the environment said. A newcomer's rank and number are predictions.
  struct Start {
    WorkerId worker;
    Rank rank;
    std::uint32_t num_workers = 1;
    bool newcomer = false;
  };
  explicit MemberState(const Start& start);

  [[nodiscard]] View view() const;
  /// Of the view that it was released into, which every server knows: what its frames say. Of a
  /// commit since then it may hear before a server does.
  [[nodiscard]] Generation generation() const { return Generation(generation_.load()); }
  /// It has the duties of rank 0.
  [[nodiscard]] bool is_lead() const;
  /// A member of some view: false for a newcomer before its first release.
  [[nodiscard]] bool is_member() const;
  [[nodiscard]] bool must_leave() const;

  /// The supervisor's words. They may come twice.
  void on_release(const Release& release);
  void on_shrunk(const Shrunk& shrunk);

  /// The arrival to announce. `servers` are those the worker is connected to (Servers::since): no
  /// earlier release answers it.
  [[nodiscard]] Arrive arrive(Epoch epoch, Generation servers = {});
  [[nodiscard]] bool is_answered() const;
  /// The view it was released into; none: it was not, or is to leave.
  [[nodiscard]] std::optional<View> leave_boundary();

 private:
  const WorkerId worker_;
  std::atomic<std::uint64_t> generation_;  ///< Written under mutex_.
  mutable std::mutex mutex_;
  // Under mutex_:
  Generation told_;  ///< Of the last commit that it was told of.
  bool is_member_;
  bool is_lead_;
  bool must_leave_ = false;
  Rank rank_;
  std::uint32_t num_workers_;
  Epoch epoch_;
  std::optional<Arrive> arriving_;
  std::optional<Release> release_;      ///< The answer to arriving_.
  std::optional<Epoch> last_released_;  ///< The epoch of the last release that was taken.
};

}  // namespace dt::kv
