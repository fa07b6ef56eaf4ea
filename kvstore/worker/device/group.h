/// Copies between places in host memory and the arrays of a key, or a part of them, on several GPUs
/// of this process: the arrays' sum to the place, and a value from the place to all arrays. Each
/// GPU carries its own part over its own bus; NCCL exchanges the parts between GPUs
/// (cuda/local_group.h).
///
///     arrays --> scratch --> summed by NCCL --> each GPU's part --> place
///     place --> each GPU's part, in its array --> gathered by NCCL
///
/// The group's own thread puts all work on the group's own streams: NCCL calls may take long, and
/// must be in the same order on all GPUs. A copy starts when the caller's streams have passed its
/// begin events, in GroupOrder's order; several are under way at a time.
///
/// NCCL calls that do not end within the deadline are aborted. After a failure all copies started
/// until then end with its error, once no GPU writes any more; the next copy creates new
/// communicators.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kvstore/compute/cuda/local_group.h"
#include "kvstore/store.h"
#include "kvstore/worker/device/ends.h"
#include "kvstore/worker/device/group_order.h"

namespace dt::kv {

class DeviceGroup {
 public:
  static constexpr std::size_t kItem = 16;  ///< Bytes a thread of a GPU moves at once.

  struct Copy {
    bool is_sum = false;         ///< Else a value.
    std::vector<GroupEnd> ends;  ///< By rank, of different devices.
    std::byte* place = nullptr;  ///< If it is not pinned memory, the host waits for its copies.
    std::size_t count = 0;       ///< Elements.
    data::Dtype dtype{};
    int priority = 0;
    // Called on the group's thread; they must not wait.
    std::function<void()> on_started;  ///< The copy is on the streams. May be null.
    std::function<void(std::optional<StoreError>)> on_ended;  ///< Called once.
  };
  /// A key's arrays and their place in host memory.
  struct Key {
    std::span<const Array> arrays;
    std::byte* host = nullptr;
  };

  explicit DeviceGroup(cuda::LocalGroup::Options options);
  /// Waits for the copies under way.
  ~DeviceGroup();
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;

  /// Whether this class can copy the arrays: each is on a device of its own, at a multiple of 16
  /// bytes.
  [[nodiscard]] static bool takes(std::span<const Array> arrays);

  // ---- any thread
  void start(Copy copy);
  /// Each key's `host` becomes the sum of its arrays, which are only read. Waits for it.
  Status sum(const std::vector<Key>& keys) { return run(keys, true); }
  /// Copies `host` to all of the key's arrays, for each key. Waits for it.
  Status spread(const std::vector<Key>& keys) { return run(keys, false); }

 private:
  using Clock = std::chrono::steady_clock;
  using Id = GroupOrder::Id;
  /// The streams of a device.
  struct Lane {
    cuda::UniqueStream exchange;  ///< NCCL's calls.
    cuda::UniqueStream down;      ///< To the host.
    cuda::UniqueStream up;
    cuda::UniqueStream door;  ///< Calls back when the caller's streams have passed a begin event.
    cuda::UniqueStream bell;  ///< Calls back when copies have ended.
    cuda::Event step;         ///< Orders one stream after another; used at once.
    cuda::DeviceMemory scratch;
    std::shared_ptr<const cuda::Event> asked;  ///< The last begin event that `door` waits for.
    std::vector<std::unique_ptr<cuda::Event>> spare;
  };
  struct Work {
    Copy copy;
    std::size_t begun = 0;  ///< Begin events of `ends` that have passed.
    std::vector<std::unique_ptr<cuda::Event>>
        passed;  ///< By rank; empty: the copy has not started.
  };
  using Works = std::map<Id, Work>;

  Status run(const std::vector<Key>& keys, bool is_sum);
  void serve();
  void ring();
  // The thread:
  void take(Copy copy);
  void look();
  void look_who_is_ready();
  void look_who_has_passed();
  void start_more();
  Status put_sum(Work& work, std::size_t offset);
  Status put_value(Work& work);
  Status prepare(const Copy& copy, std::size_t offset);
  StoreResult<Lane*> lane_of(int device);
  Status order(Lane& lane, int device, cuda::Stream first, cuda::Stream then);
  Status note_end(Work& work, std::size_t rank, cuda::Stream stream);
  cuda::Status add_callback(cuda::Stream stream);
  void end(Works::iterator at, std::optional<StoreError> error);
  void end_all(const StoreError& error);

  // The thread's.
  std::map<int, Lane> lanes_;  ///< By device.
  cuda::LocalGroup group_;
  std::chrono::milliseconds deadline_;
  GroupOrder order_;
  Works works_;
  std::set<Id> not_ready_;
  std::set<Id> under_way_;
  Clock::time_point since_{};  ///< The last end of a copy, or start while none was under way.

  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_:
  std::vector<Copy> fresh_;
  bool is_rung_ = false;
  bool is_stopping_ = false;
  std::thread thread_;  ///< Once there is a copy.
};

}  // namespace dt::kv
