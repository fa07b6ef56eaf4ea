/// Copies between a worker's arrays on devices and its chunks' places in pinned memory. Chunks are
/// sent to the servers from these places, and answers are received into them:
///
///     caller's stream --event--> in: array -> place --event--> the request may be sent
///                          `---> out: place -> array --event--> the request is answered
///
/// Copies run on the store's own streams, one for each direction and device; later chunks are
/// copied while earlier ones are on the network. The host waits for no copy: CUDA calls back, and
/// the loop checks which events have passed.
///
/// For arrays on several devices DeviceGroup makes the copies: the arrays' sum to the place, and
/// the answer from the place to all of them.
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
#include "kvstore/worker/device/group.h"
#include "kvstore/worker/links/request.h"

namespace dt::kv {

class DeviceCopies {
 public:
  class Owner {
   public:
    /// The request's bytes are in its place; else the error.
    virtual void on_in(Request request, std::optional<StoreError> error) = 0;
    /// The answer's copy is on its stream, or CUDA refused it. Always comes before on_out(). From
    /// now on work that must come after the copy may be put on a stream (make_wait()).
    virtual void on_out_started(const Request& request) = 0;
    /// The answer is in the array; else the error.
    virtual void on_out(Request request, Outcome outcome, std::optional<StoreError> error) = 0;
    /// All copies that have ended were passed to on_in() and on_out().
    virtual void on_looked() = 0;

   protected:
    ~Owner() = default;
  };

  /// All of them outlive the copies.
  DeviceCopies(WorkerId worker, io::asio::io_context& context, Owner& owner,
               cuda::LocalGroup::Options group);
  /// Only if is_idle() and no thread runs the loop any more.
  ~DeviceCopies();
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  // ---- the caller
  /// Records an event on the array's stream: the call's copies come after what is on the stream
  /// now.
  StoreResult<std::shared_ptr<DeviceCall>> begin_call(const Array& array);
  /// The stream of the copies to the call's array. make_wait() waits for what is on this stream.
  [[nodiscard]] static cuda::Stream stream_out(const DeviceCall& call);
  /// Makes the calls' streams wait for the copies to arrays that are on a stream now.
  Status make_wait(const DeviceCalls& calls);

  // ---- the loop
  /// Copies by priority, and in order of arrival within a priority. Ends with on_in().
  void bring_in(Request request);
  /// Calls on_out_started() when the copy is on its stream, and on_out() when it has ended.
  void bring_out(Request request, Outcome outcome);
  [[nodiscard]] bool is_idle() const { return busy_ == 0; }

 private:
  struct Copy;
  using Queue = std::deque<std::unique_ptr<Copy>>;

  void start_group(std::shared_ptr<Copy> copy, bool is_in);
  void bring_in_more(DeviceLane& lane);
  cuda::Status put(DeviceLane& lane, Copy& copy, bool is_in);
  void follow(const std::shared_ptr<DeviceLane>& lane);
  void look();
  void look_at(DeviceLane& lane, bool is_in);
  void start_out(Copy& copy);
  void finish(Copy& copy, bool is_in, std::optional<StoreError> error);
  void ring();
  void tick();
  [[nodiscard]] StoreError error_of(int device, const char* what) const;
  friend struct DeviceLane;

  WorkerId worker_;
  io::asio::io_context& context_;
  Owner& owner_;
  std::map<int, std::shared_ptr<DeviceLane>> lanes_;  ///< The caller's.

  // The loop's.
  std::vector<std::shared_ptr<DeviceLane>> followed_;  ///< The lanes that were used so far.
  std::size_t busy_ = 0;                               ///< Requests whose copy has not ended.
  io::asio::steady_timer timer_;
  bool is_ticking_ = false;

  std::atomic<bool> is_rung_ = false;  ///< look() is posted.
  DeviceGroup group_;
};

}  // namespace dt::kv
