/// A worker's arrays on devices and its chunks' places in pinned memory, from which chunks travel
/// to the servers and in which answers land:
///
///     caller's stream --event--> in: array -> place --event--> the request may be sent
///                          `---> out: place -> array --event--> the request is answered
///
/// Copies are on streams of the store's own, one for each direction and device; those of later
/// chunks go on while earlier ones are on the network. The host waits for none of them: CUDA calls
/// back, and the loop looks which events have passed.
#pragma once

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/asio.h"
#include "kvstore/compute/cuda/device.h"
#include "kvstore/store.h"
#include "kvstore/worker/device/ends.h"
#include "kvstore/worker/links/request.h"

namespace dt::kv {

class DeviceCopies {
 public:
  class Owner {
   public:
    /// The request's bytes are where it says, or why not.
    virtual void on_in(Request request, std::optional<StoreError> error) = 0;
    /// The answer's copy is on its stream, or was refused there. Before on_out(), always: whoever
    /// puts work on a stream that is behind the copies may do so from now on.
    virtual void on_out_started(const Request& request) = 0;
    /// The answer is in the array, or why not.
    virtual void on_out(Request request, Outcome outcome, std::optional<StoreError> error) = 0;
    /// Everything that has passed was handed on.
    virtual void on_looked() = 0;

   protected:
    ~Owner() = default;
  };

  /// All of them outlive the copies.
  DeviceCopies(WorkerId worker, io::asio::io_context& context, Owner& owner);
  /// Once is_idle(), with the loop not driven any more.
  ~DeviceCopies();
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  // ---- the caller
  /// What is on the array's stream now.
  StoreResult<std::shared_ptr<DeviceCall>> begin_call(const Array& array);
  /// hold_back() is behind what this one is behind as well.
  [[nodiscard]] static cuda::Stream stream_out(const DeviceCall& call);
  /// What is put on the calls' streams from now on comes after the copies that are on their way.
  Status hold_back(const DeviceCalls& calls);

  // ---- the loop
  /// The more urgent first, and in turn. on_in() says when it is done.
  void bring_in(Request request);
  /// on_out_started() says when the copy is on its stream, on_out() when it is done.
  void bring_out(Request request, Outcome outcome);
  [[nodiscard]] bool is_idle() const { return busy_ == 0; }

 private:
  struct Copy;
  using Queue = std::deque<std::unique_ptr<Copy>>;

  void bring_in_more(DeviceLane& lane);
  cuda::Status put(DeviceLane& lane, Copy& copy, bool is_in);
  void follow(const std::shared_ptr<DeviceLane>& lane);
  void look();
  void look_at(DeviceLane& lane, bool is_in);
  void finish(std::unique_ptr<Copy> copy, bool is_in, const char* error);
  void ring();
  void tick();
  [[nodiscard]] StoreError error_of(int device, const char* what) const;
  friend struct DeviceLane;

  WorkerId worker_;
  io::asio::io_context& context_;
  Owner& owner_;
  std::map<int, std::shared_ptr<DeviceLane>> lanes_;  ///< The caller's.

  // The loop's.
  std::vector<std::shared_ptr<DeviceLane>> followed_;  ///< Those that were used so far.
  std::size_t busy_ = 0;                               ///< Requests here.
  io::asio::steady_timer timer_;
  bool is_ticking_ = false;

  std::atomic<bool> is_rung_ = false;  ///< A look is posted.
};

}  // namespace dt::kv
