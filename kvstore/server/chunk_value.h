/// A chunk's value at a server, and the contributions of its open round that will change it: the
/// arithmetic of a round. rounds.h decides which contribution counts, and when the round is
/// complete.
///
///     contribute() for each counted one -> apply() once -> the next round
///
/// A contribution that comes as bytes is added as it arrives (RoundSum). One in memory shared with
/// its worker is not read before apply(), which reads all of them in one pass: the worker does not
/// change it until the round is answered. This promise ends with the worker's connection, so
/// detach() then copies the contribution. Deterministic: contributions are added in worker id
/// order; one that arrives out of order is kept until those before it have arrived.
///
/// With a device (ComputeOptions::device) values, states and open rounds lie in its memory, except
/// those of types it does not compute with. Contributions are copied there as they arrive, those in
/// shared host memory too; apply() and detach() read contributions in a worker's device memory in
/// place. Both return when the device is done. The order of operations, and so the bits, are the
/// same as on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvstore/compute/device_engine.h"
#include "kvstore/compute/engine.h"
#include "kvstore/compute/optimizer.h"
#include "kvstore/compute/payload.h"
#include "kvstore/compute/reduce.h"
#include "kvstore/protocol/messages.h"
#include "kvstore/server/checkpoint/saved.h"
#include "kvstore/server/round_sum.h"

namespace dt::kv {

/// A chunk's gradient and the place for its value, in memory that is shared with the worker.
struct SharedBuffers {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  bool in_is_on_device = false;  ///< The host may not touch it; only where is_on_device().
  bool out_is_on_device = false;
  std::shared_ptr<const void> owners[2];  ///< Keep them mapped.
};

struct ComputeOptions {
  /// Contributions of a round are summed in worker id order: its bits then do not depend on the
  /// order of arrival. Otherwise each is added as it arrives.
  bool deterministic = false;
  /// A contribution with infinite or NaN elements is an error; otherwise they are counted.
  bool refuse_nonfinite = false;
  /// The device that has the chunks' memory; null: it is host memory.
  std::shared_ptr<DeviceEngine> device;
  /// Called on the shard's thread, maybe repeatedly: the device has failed. Requests that it should
  /// have computed get no answer.
  std::function<void(std::string why)> on_device_lost;
};

/// Engines, memory pools and counters that all chunks of a shard share. One thread; outlives them.
struct ShardContext : ComputeOptions {
  explicit ShardContext(const ComputeOptions& options)
      : ComputeOptions(options),
        pool(device ? device->host_pool() : std::make_shared<PayloadPool>()),
        host(pool) {}

  /// Whether the device has failed: then no request is answered any more.
  [[nodiscard]] bool has_lost_device() const {
    if (!device || !device->is_broken()) return false;
    if (on_device_lost) on_device_lost(device->take_failure());
    return true;
  }

  std::optional<OptimizerSpec> optimizer;  ///< Changes while no round of a parameter is open.
  bool has_state = false;                  ///< The optimizer has updated a chunk.
  std::uint64_t step = 0;                  ///< The latest step of a parameter's contributions.
  std::uint64_t nonfinite = 0;             ///< Elements of gradients that were infinite or NaN.
  std::uint64_t in_place = 0;  ///< Contributions that were read in their worker's device memory.
  std::uint64_t fenced = 0;    ///< Requests refused because their worker is not a member.
  std::shared_ptr<PayloadPool> pool;  ///< Host memory.
  HostEngine host;
  std::vector<Addend> addends;  ///< Scratch.
  std::vector<Addend> block;    ///< Scratch.
};

class ChunkValue {
 public:
  /// `value` holds `elements` of `dtype`. Construction may fail: see failure().
  ChunkValue(ShardContext& context, data::Dtype dtype, bool is_auxiliary, std::size_t elements,
             Payload value);

  /// Sets a saved optimizer state. To be called before the first contribution.
  void restore(RestoredSlice slice);
  /// The optimizer's first or second state in host memory, zeros before the first update. With
  /// another reference these bytes do not change.
  [[nodiscard]] std::shared_ptr<const Payload> state(bool second);
  [[nodiscard]] std::uint64_t updates() const { return state_.updates; }
  /// Sets one of the states. To be called between rounds, while may_set_state().
  void set_state(bool second, Payload values, std::uint64_t updates);
  /// The optimizer has not updated the chunk; a state that was set does not count.
  [[nodiscard]] bool may_set_state() const { return state_.updates == 0 || is_state_set_; }
  /// References to the present arrays, whose content does not change any more; the caller fills in
  /// key and chunk. With a device the caller waits for it before it reads the arrays.
  [[nodiscard]] SavedChunk save() const;
  /// Moves arrays that a checkpoint references from the device's memory to the host's; the chunk
  /// keeps the device memory for itself. A thread that reads saved arrays holds `guard`.
  void leave_saved(std::mutex& guard);
  /// Why the device failed since the last call, outside of a round (see Applied); empty: it did
  /// not.
  [[nodiscard]] std::string failure() { return engine_.take_failure(); }

  [[nodiscard]] data::Dtype dtype() const { return dtype_; }
  [[nodiscard]] bool is_auxiliary() const { return is_auxiliary_; }
  [[nodiscard]] std::size_t elements() const { return elements_; }
  [[nodiscard]] std::size_t bytes() const { return elements_ * data::element_bytes(dtype_); }
  /// Whether a device computes it.
  [[nodiscard]] bool is_on_device() const { return &engine_ != &context_.host; }
  /// The present value, written to `shared.out`.
  void write_to(const SharedBuffers& shared);
  /// The present value. While a reference is held, these bytes do not change: a round that is
  /// applied meanwhile goes into other memory.
  [[nodiscard]] const std::shared_ptr<Payload>& present();
  /// Whether an optimizer may update the chunk.
  [[nodiscard]] bool is_parameter() const {
    return !is_auxiliary_ && dtype_ != data::Dtype::kInt64;
  }

  /// Uninitialised memory for a contribution of `bytes` bytes.
  [[nodiscard]] Payload take(std::size_t bytes);
  /// Why the payload of a contribution is malformed; empty: it is valid.
  [[nodiscard]] static std::string refusal(const data::Header& header, const Payload& payload);
  /// With refuse_nonfinite: an error with the number of infinite and NaN elements of a parameter's
  /// contribution, which are counted; empty: there are none.
  [[nodiscard]] std::string nonfinite_in(const data::Header& header, const Payload& payload,
                                         const SharedBuffers& shared);
  /// A counted contribution of the open round; `is_last`: it completes the round.
  void contribute(const data::Header& header, Payload payload, SharedBuffers shared, bool is_last);
  /// Deterministic: adds the kept contributions of workers before `missing`, the lowest id that may
  /// still contribute; none: all. To be called after contribute().
  void add_in_order(std::optional<WorkerId> missing);
  /// Copies or adds what `worker` contributed to the open round from shared memory, as it is now.
  /// Afterwards the worker's memory is not read any more.
  void detach(WorkerId worker);
  [[nodiscard]] bool has_contributions() const { return !parts_.empty(); }

  struct Applied {
    /// Why the contributions do not fit together, or do not fit into the device: nothing was
    /// changed.
    std::string wrong;
    bool is_there = false;  ///< The value was written to all `places`.
  };
  /// Applies the open round's contributions to the value. `places`: where workers want the value in
  /// shared memory; it is written there if that takes no further pass.
  Applied apply(std::span<std::byte* const> places);
  /// dist_async: applies one gradient by itself. True: the value was written to `shared.out`.
  bool apply_async(const data::Header& header, Payload payload, const SharedBuffers& shared);

 private:
  struct Part {
    data::Header header;
    Payload bytes;  ///< Empty if they were added to the sum, or are in shared memory.
    SharedBuffers shared;
    bool is_added = false;  ///< It is in the sum; a device may still read `shared`.

    /// Null: there is nothing left to add.
    [[nodiscard]] const std::byte* values() const {
      if (is_added) return nullptr;
      return bytes.empty() ? shared.in : bytes.data();
    }
  };

  [[nodiscard]] bool uses_optimizer() const { return context_.optimizer && is_parameter(); }
  /// Statistics and masks may be infinite: elements of gradients alone are counted.
  void count_nonfinite_of(std::size_t found) {
    if (is_parameter()) context_.nonfinite += found;
  }
  /// Whether the contribution asks for a mean, else for a sum.
  [[nodiscard]] bool is_mean(const data::Header& header) const;
  /// Why `header` does not fit the round's first part; empty: it does.
  [[nodiscard]] std::string disagreement(const data::Header& header) const;
  /// The values of a compressed payload.
  Payload decoded(data::Codec codec, Payload codes);
  /// Sorts parts_: first those whose values are not added, in worker id order. Returns their
  /// number.
  std::size_t sort_waiting();
  /// Adds a part's values to the sum.
  void add_part(Part& part, bool is_last);
  /// Deterministic: makes sure that one reduction of the remaining parts has the same bits as
  /// adding them one by one; else adds them one by one.
  void prepare_in_order();
  /// True: the value was written to `places` as well.
  bool apply_parts(std::span<std::byte* const> places);
  Reduction contributions();
  /// The value of a round in which no contribution had samples.
  Payload zeros();
  void sum_shared(const Reduction& reduction, std::span<std::byte* const> places);
  void update_with(const Reduction& gradient, float learning_rate);
  void add_async(const std::byte* gradient, std::byte* place);
  void publish(Payload bytes);
  /// The value's memory, to be changed: a copy of the present one if answers still hold that.
  Payload& writable();
  /// Makes value_ writable without its content. Returns the present memory if answers or a
  /// checkpoint hold it, and they keep it; else null.
  std::shared_ptr<Payload> replace();

  /// Engine memory for values.
  Payload take_ours();
  /// A copy of a worker's memory in engine memory.
  Payload copy_of(const std::byte* shared);
  /// The number of infinite and NaN elements in a worker's device memory.
  std::size_t nonfinite_at(const std::byte* values);
  /// The contribution in the engine's memory; `shared`: null, or the contribution in shared memory,
  /// which the host reads in place.
  Payload bring(Payload payload, const std::byte* shared);
  void finish_on_device(std::span<std::byte* const> places, Applied& applied);
  /// Begins to copy the value to host memory, from which answers are sent.
  void show();

  ShardContext& context_;
  Engine& engine_;
  data::Dtype dtype_;
  bool is_auxiliary_;
  std::size_t elements_;
  std::shared_ptr<Payload> value_;  ///< In engine memory.
  std::shared_ptr<Payload> shown_;  ///< With a device: the host's copy, or null.
  Payload spare_;  ///< An earlier round's memory, for the next round's first contribution.
  OptimizerState state_;
  bool is_state_set_ = false;  ///< By set_state(), and not updated since.
  // The open round:
  std::vector<Part> parts_;  ///< The counted contributions.
  RoundSum sum_;             ///< Sum of the values of the added parts.
  std::string wrong_;        ///< Why the parts do not fit together; empty: they do.
};

}  // namespace dt::kv
