/// Requests for keys whose arrays are on several devices of this process: the arrays' sum is copied
/// to the chunk's place before the request is sent, and the answer from the place to all devices,
/// as in copies.h. DeviceGroup makes the copies.
///
/// Calls are on the loop; the copies are on the group's thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "io/asio.h"
#include "kvstore/worker/device/copies.h"
#include "kvstore/worker/device/group.h"
#include "kvstore/worker/links/request.h"

namespace dt::kv {

class GroupCopies {
 public:
  using Owner = DeviceCopies::Owner;

  /// All of them outlive the copies. Destroyed once is_idle().
  GroupCopies(io::asio::io_context& context, Owner& owner, cuda::LocalGroup::Options options)
      : context_(context), owner_(owner), group_(std::move(options)) {}

  /// Ends with on_in().
  void bring_in(Request request);
  /// Ends with on_out().
  void bring_out(Request request, Outcome outcome);
  [[nodiscard]] bool is_idle() const { return busy_ == 0; }

 private:
  struct Moved;
  using Guard = io::asio::executor_work_guard<io::asio::io_context::executor_type>;

  void start(std::shared_ptr<Moved> moved, bool is_sum);
  void note_start(Moved& moved);
  void finish(Moved& moved, bool is_sum, std::optional<StoreError> error);

  io::asio::io_context& context_;
  Owner& owner_;
  std::size_t busy_ = 0;        ///< Requests whose copy has not ended.
  std::optional<Guard> guard_;  ///< Keeps the loop running while there are any.
  DeviceGroup group_;
};

}  // namespace dt::kv
