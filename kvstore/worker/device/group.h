/// Copies between places in the host's memory and the arrays that several GPUs of this process have
/// of a key or of a part of it: their sum to the place, and a value from there to all of them. Each
/// GPU carries its own part over its own bus; between GPUs NCCL does the rest (cuda/local_group.h).
///
///     arrays --> scratch --> summed by NCCL --> each GPU's part --> place
///     place --> each GPU's part, in its array --> gathered by NCCL
///
/// All is put on streams of the group's own, by a thread of its own: calls of NCCL may take long,
/// and are in the same order on all GPUs. A copy starts when the caller's streams have come to it,
/// in ReplicaOrder's order; several are under way at a time.
///
/// What NCCL does not end within its deadline is aborted. After a failure everything that was
/// handed over until then ends with its sentence, once no GPU writes any more; what comes later
/// begins anew.
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

class ReplicaGroup {
 public:
  static constexpr std::size_t kItem = 16;  ///< Bytes a thread of a GPU moves at once.

  struct Copy {
    bool is_sum = false;           ///< Else a value.
    std::vector<ReplicaEnd> ends;  ///< By rank, of different devices.
    std::byte* place = nullptr;    ///< Pinned, or the host waits for its copies.
    std::size_t count = 0;         ///< Elements.
    data::Dtype dtype{};
    int priority = 0;
    // By the group's thread; they do not wait.
    std::function<void()> on_started;  ///< It is on the streams. Null: nobody asks.
    std::function<void(std::optional<StoreError>)> on_ended;  ///< Once.
  };
  /// A key's arrays and their place in the host's memory.
  struct Key {
    std::span<const Array> arrays;
    std::byte* host = nullptr;
  };

  explicit ReplicaGroup(cuda::LocalGroup::Options options);
  /// Waits for what is under way.
  ~ReplicaGroup();
  ReplicaGroup(const ReplicaGroup&) = delete;
  ReplicaGroup& operator=(const ReplicaGroup&) = delete;

  /// Whether these are for this class: each on a device of its own, at a multiple of 16 bytes.
  [[nodiscard]] static bool takes(std::span<const Array> arrays);

  // ---- any thread
  void start(Copy copy);
  /// Each key's `host` becomes the sum of its arrays, which are only read. Waits for it.
  Status sum(const std::vector<Key>& keys) { return run(keys, true); }
  /// Each key's arrays become what is at `host`. Waits for it.
  Status spread(const std::vector<Key>& keys) { return run(keys, false); }

 private:
  using Clock = std::chrono::steady_clock;
  using Id = ReplicaOrder::Id;
  /// The streams of a device.
  struct Lane {
    cuda::OwnStream exchange;  ///< NCCL's calls.
    cuda::OwnStream down;      ///< To the host.
    cuda::OwnStream up;
    cuda::OwnStream door;  ///< Calls back when the caller's streams are there.
    cuda::OwnStream bell;  ///< Calls back when copies are over.
    cuda::Event step;      ///< From one stream to the next, at once.
    cuda::DeviceMemory scratch;
    std::shared_ptr<const cuda::Event> asked;  ///< The last that is on `door`.
    std::vector<std::unique_ptr<cuda::Event>> spare;
  };
  struct Work {
    Copy copy;
    std::size_t begun = 0;                             ///< So many of the ends' begins have passed.
    std::vector<std::unique_ptr<cuda::Event>> passed;  ///< By rank; empty: it has not started.
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
  cuda::Status call_back(cuda::Stream stream);
  void end(Works::iterator at, std::optional<StoreError> error);
  void end_all(const StoreError& error);

  // The thread's.
  std::map<int, Lane> lanes_;  ///< By device.
  cuda::LocalGroup group_;
  std::chrono::milliseconds deadline_;
  ReplicaOrder order_;
  Works works_;
  std::set<Id> not_ready_;
  std::set<Id> under_way_;
  Clock::time_point since_{};  ///< The last start with nothing under way, or end.

  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_:
  std::vector<Copy> fresh_;
  bool is_rung_ = false;
  bool is_stopping_ = false;
  std::thread thread_;  ///< Once there is a copy.
};

}  // namespace dt::kv
