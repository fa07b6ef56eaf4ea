/// A worker's part with the kvstore, through the public interface: a blocking call on the whole
/// list of keys, or one on each key after the other (--stream).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvstore/compute/optimizer.h"
#include "kvstore/store.h"
#include "test/bench/kv/device_tensors.h"
#include "test/bench/kv/options.h"
#include "test/bench/kv/worker.h"

namespace dt::bench {

inline constexpr double kWaitLimit = 300;  ///< Seconds, for one operation.

/// Tensors in the store's memory, or in the worker's.
class TensorMemory {
 public:
  TensorMemory() = default;
  TensorMemory(Memory whose, std::size_t elements, kv::Store& store);
  [[nodiscard]] std::span<float> values() const { return values_; }

 private:
  struct Release {
    kv::Store* store;
    void operator()(float* memory) const;
  };
  std::span<float> values_;
  Buffer own_;
  std::unique_ptr<float, Release> given_;  ///< The memory if it is the store's.
};

class StoreExchange final : public Exchange {
 public:
  /// Allocates memory and creates the keys. `options.workers` workers have such a store. Keys are
  /// named after `prefix`. With `device` the arrays are on that device, else in host memory.
  StoreExchange(const KvOptions& options, const TensorList& list, kv::Store& store,
                const std::string& prefix, std::optional<int> device = {});

  std::span<float> gradient() override {
    return device_ ? on_device_.gradient.mirror() : gradient_.values();
  }
  std::span<const float> result() override { return results(); }
  void load() override;
  void fetch() override;
  void run() override;
  void run_to_check() override;
  std::uint64_t count_bad(std::uint32_t workers, std::uint32_t round) override;
  void was_repeated(std::uint32_t operations) override;
  bool grows() override { return total_.has_value() || options_.is_in_place; }

 private:
  [[nodiscard]] std::span<float> results() {
    if (options_.is_in_place) return gradient();
    return device_ ? on_device_.result.mirror() : result_.values();
  }
  [[nodiscard]] DeviceTensors& device_result() {
    return options_.is_in_place ? on_device_.gradient : on_device_.result;
  }
  void take_memory();
  void take_device_memory();
  void exchange(const kv::Keys& keys, const kv::Arrays& gradients, const kv::Arrays& results);
  void wait(const kv::StoreResult<kv::Handle>& handle);
  std::uint64_t count_wrong_total(std::uint32_t workers, std::uint32_t round);
  std::uint64_t count_wrong_weights();
  std::uint64_t count_wrong_decoded(std::uint32_t workers, std::uint32_t round);
  void repeat_update(std::uint32_t operations);

  const KvOptions& options_;
  const TensorList& list_;
  kv::Store& store_;
  std::optional<int> device_;
  // Where the arrays are; in place there is no result.
  TensorMemory gradient_;
  TensorMemory result_;
  struct OnDevice {
    kv::cuda::UniqueStream stream;  ///< Like the stream of a training step.
    DeviceTensors gradient;
    DeviceTensors result;
  };
  OnDevice on_device_;
  std::vector<std::string> keys_;
  std::vector<kv::Array> gradients_;
  std::vector<kv::Array> results_;
  kv::PushOptions push_;  ///< wait() follows at once, as in a blocking call.
  kv::PushOptions awaited_;
  std::optional<Buffer> total_;  ///< Sum of all pushes, if the store accumulates them.

  // With an optimizer:
  std::optional<kv::OptimizerSpec> spec_;
  std::vector<std::size_t> tracked_;
  std::vector<float> weights_;
  kv::OptimizerState state_;
  std::uint32_t round_ = 0;  ///< The round of the values in gradient().
};

}  // namespace dt::bench
