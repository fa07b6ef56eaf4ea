/// A chunk's value at a server, and the contributions of its open round that will change it: the
/// arithmetic of a round. Which contribution counts, and when the round is complete, is decided
/// elsewhere (shard.h, rounds.h).
///
///     contribute() for each counted one -> apply() once -> the next round
///
/// What comes as bytes is added as it arrives (RoundSum). What lies in memory shared with its
/// worker is not touched before apply(), which reads all of it in one pass: until the round is
/// answered the worker leaves it as it is. That promise ends with the worker's connection, so
/// detach() then copies it. Deterministic: everything is added in worker id order, and what comes
/// out of this order is kept until those before it have come.
///
/// With a device (Workbench::device) values, states and open rounds lie in its memory, except those
/// of types it does not compute with. Contributions are copied there as they arrive, those in
/// shared memory of the host too; what lies in a worker's device memory is read where it is, by
/// apply() and detach(). Both return when the device is done. The order of operations is the same,
/// and so are the bits.
#pragma once

#include <cstddef>
#include <cstdint>
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

/// What all chunks of a shard compute with. One thread; outlives them.
struct Workbench {
  explicit Workbench(std::shared_ptr<DeviceEngine> on_device)
      : device(std::move(on_device)),
        pool(device ? device->host_pool() : std::make_shared<PayloadPool>()),
        host(pool) {}

  bool deterministic = false;
  bool refuse_nonfinite = false;
  std::optional<OptimizerSpec> optimizer;  ///< Changes while no round of a parameter is open.
  bool has_state = false;                  ///< The optimizer has updated a chunk.
  std::uint64_t step = 0;                  ///< The latest of a parameter's contributions.
  std::uint64_t nonfinite = 0;             ///< Elements of gradients that were infinite or NaN.
  std::uint64_t in_place = 0;  ///< Contributions that were read in their worker's device memory.
  std::shared_ptr<DeviceEngine> device;  ///< Null: there is none. Comes with its pool.
  std::shared_ptr<PayloadPool> pool;     ///< Of the host's memory.
  HostEngine host;
  std::vector<Addend> addends;  ///< Scratch.
  std::vector<Addend> block;    ///< Scratch.
};

class ChunkValue {
 public:
  /// `value` holds `elements` of `dtype`. It may fail: see failure().
  ChunkValue(Workbench& bench, data::Dtype dtype, bool is_auxiliary, std::size_t elements,
             Payload value);

  /// The optimizer's state as it was saved, before the first contribution.
  void restore(OptimizerState state);
  /// What is kept of it stays as it is; key and chunk are for the caller to fill in. Where there is
  /// a device the caller waits for it before the copies are read.
  [[nodiscard]] SavedChunk save() const;
  /// What a checkpoint keeps of it lies in the host's memory from now on, and the device's is the
  /// chunk's alone. `guard` is held by whoever reads what was saved.
  void leave_saved(std::mutex& guard);
  /// What the device has not done of what was asked, but for a round (see Applied); empty: nothing.
  [[nodiscard]] std::string failure();

  [[nodiscard]] data::Dtype dtype() const { return dtype_; }
  [[nodiscard]] bool is_auxiliary() const { return is_auxiliary_; }
  [[nodiscard]] std::size_t elements() const { return elements_; }
  [[nodiscard]] std::size_t bytes() const { return elements_ * data::element_bytes(dtype_); }
  /// Whether a device computes it.
  [[nodiscard]] bool is_on_device() const { return &engine_ != &bench_.host; }
  /// The present value, written to `shared.out`.
  void write_to(const SharedBuffers& shared);
  /// The present value. Whoever keeps it keeps these very bytes: a round that is applied meanwhile
  /// goes into other memory.
  [[nodiscard]] const std::shared_ptr<Payload>& present();
  /// Parameters are what optimizers work on.
  [[nodiscard]] bool is_parameter() const {
    return !is_auxiliary_ && dtype_ != data::Dtype::kInt64;
  }

  /// Uninitialised memory for a contribution that comes as `bytes` plain bytes.
  [[nodiscard]] Payload take(std::size_t bytes);
  /// Why the payload of a contribution is none; empty: it is one.
  [[nodiscard]] static std::string refusal(const data::Header& header, const Payload& payload);
  /// With refuse_nonfinite: what is infinite or NaN in a contribution, counted; empty: nothing.
  [[nodiscard]] std::string nonfinite_in(const data::Header& header, const Payload& payload,
                                         const SharedBuffers& shared);
  /// A counted contribution of the open round; `is_last`: it completes the round.
  void contribute(const data::Header& header, Payload payload, SharedBuffers shared, bool is_last);
  /// Deterministic: adds what was kept, as far as nobody before it can come any more; `missing` is
  /// the lowest id of those who can. To be called after contribute().
  void add_in_order(std::optional<WorkerId> missing);
  /// What `worker` contributed to the open round counts as it is at this moment, and no memory of
  /// the worker's is read for it any more.
  void detach(WorkerId worker);
  [[nodiscard]] bool has_contributions() const { return !parts_.empty(); }

  struct Applied {
    /// Why the contributions do not fit together, or do not fit into the device: nothing was
    /// changed.
    std::string wrong;
    bool is_there = false;  ///< The value was written to every place given.
  };
  /// The open round's contributions take effect on the value. `places`: where workers want it in
  /// shared memory; it is written there where that costs no further pass.
  Applied apply(std::span<std::byte* const> places);
  /// dist_async: one gradient takes effect by itself. True: the value was written to `shared.out`.
  bool apply_async(const data::Header& header, Payload payload, const SharedBuffers& shared);

 private:
  struct Part {
    data::Header header;
    Payload bytes;  ///< Empty when they went into the sum or are shared with the host.
    SharedBuffers shared;
    bool is_added = false;  ///< It is in the sum; `shared` says what a device may still read.

    /// Null: nothing is to be added any more.
    [[nodiscard]] const std::byte* values() const {
      if (is_added) return nullptr;
      return bytes.empty() ? shared.in : bytes.data();
    }
  };

  [[nodiscard]] bool uses_optimizer() const { return bench_.optimizer && is_parameter(); }
  [[nodiscard]] data::Reduce reduce_of(data::Reduce asked) const;
  /// Why `header` does not fit the round's first part; empty: it does.
  [[nodiscard]] std::string disagreement(const data::Header& header) const;
  /// The values that a compressed payload stands for.
  Payload decoded(data::Codec codec, Payload codes);
  /// The parts whose values are not added, in worker id order, before the others; how many.
  std::size_t sort_waiting();
  /// Adds a part's values to the sum.
  void add_part(Part& part, bool is_last);
  /// Deterministic: what is left to be added becomes one reduction with the bits that adding one by
  /// one would have.
  void prepare_in_order();
  /// True: the value was written to `places` as well.
  bool apply_parts(std::span<std::byte* const> places);
  Reduction contributions();
  void sum_shared(const Reduction& reduction, std::span<std::byte* const> places);
  void update_with(const Reduction& gradient, float learning_rate);
  void add_async(const std::byte* gradient, std::byte* place);
  void publish(Payload bytes);
  /// The value's memory, to be changed: a copy if answers still hold the present one.
  Payload& writable();
  /// The same, to be overwritten whole. The present one, if answers or a checkpoint hold it: they
  /// keep it.
  std::shared_ptr<Payload> replace();

  /// Memory of the engine's for values.
  Payload take_ours();
  /// A copy there of a worker's memory.
  Payload copy_of(const std::byte* shared);
  /// What is infinite or NaN in a worker's device memory.
  std::size_t nonfinite_at(const std::byte* values);
  /// The contribution where the engine computes; `shared`: null, or where it lies instead, which
  /// the host reads there.
  Payload bring(Payload payload, const std::byte* shared);
  void finish_on_device(std::span<std::byte* const> places, Applied& applied);
  /// Begins to copy the value to where answers are sent from.
  void show();

  Workbench& bench_;
  Engine& engine_;
  data::Dtype dtype_;
  bool is_auxiliary_;
  std::size_t elements_;
  std::shared_ptr<Payload> value_;  ///< The engine's.
  std::shared_ptr<Payload> shown_;  ///< With a device: the host's copy, or null.
  Payload spare_;  ///< An earlier round's memory, for the next round's first contribution.
  OptimizerState state_;
  // The open round:
  std::vector<Part> parts_;  ///< What was counted.
  RoundSum sum_;             ///< Of the parts' values.
  std::string wrong_;        ///< Why the parts do not fit together; empty: they do.
};

}  // namespace dt::kv
