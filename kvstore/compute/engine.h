/// The memory of chunks and the arithmetic there: the host's, by the calling thread, or a device's
/// (device_engine.h), which does things in their order, and has done them after wait(). Both give
/// the same bits. A call is for a whole chunk; pointers of the arithmetic are to the engine's
/// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "kvstore/compute/optimizer.h"
#include "kvstore/compute/payload.h"
#include "kvstore/compute/reduce.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

class Engine {
 public:
  virtual ~Engine() = default;

  /// Uninitialised memory of the engine's; empty: there is none (take_failure).
  [[nodiscard]] virtual Payload take(std::size_t bytes) = 0;
  /// Memory of the engine's for the next one of its size, or of the host's, which is kept until
  /// the engine has read it.
  virtual void give(Payload payload) = 0;
  /// Memory of the engine's that comes back when the last reference to it ends.
  [[nodiscard]] virtual std::shared_ptr<Payload> share(Payload ours) = 0;
  /// What the host has, in memory of the engine's.
  [[nodiscard]] virtual Payload bring(Payload host) = 0;
  /// to = from, of which one at least is the engine's.
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  /// The memory of `ours`, which gets a copy in the host's memory instead; waits. `guard` is held
  /// while it changes. Empty: it is the host's already, or it failed, and nothing has changed.
  [[nodiscard]] virtual Payload swap_out(Payload& ours, std::mutex& guard) = 0;
  virtual void wait() = 0;
  /// Why something since the last call was not done; empty: all was.
  [[nodiscard]] virtual std::string take_failure() = 0;
  /// Nothing failed since.
  [[nodiscard]] virtual bool goes_on() const = 0;

  /// What the functions of these names do (reduce.h, compression.h, optimizer.h). The non-finite
  /// elements are added to nonfinite(), on a device once it has come so far.
  virtual void reduce(data::Dtype dtype, const Reduction& reduction, std::byte* out,
                      std::size_t elements) = 0;
  virtual void count(data::Dtype dtype, std::byte* values, std::size_t elements) = 0;
  virtual void update(const OptimizerSpec& spec, OptimizerState& state, data::Dtype dtype,
                      double learning_rate, std::byte* values, const Reduction& gradient,
                      std::size_t elements) = 0;
  /// Counts what of `from` is not finite.
  virtual void add_and_count(data::Dtype dtype, std::byte* into, const std::byte* from,
                             std::size_t elements) = 0;
  /// These count nothing.
  virtual void add(data::Dtype dtype, std::byte* into, const std::byte* from, double weight,
                   std::size_t elements) = 0;
  virtual void scale(data::Dtype dtype, std::byte* values, double factor, std::size_t elements) = 0;
  /// `codes` are the host's and stay as they are until the engine has come so far.
  virtual void decode(data::Codec codec, std::byte* out, const Payload& codes,
                      std::size_t elements) = 0;
  virtual void decode_add(data::Codec codec, std::byte* into, const Payload& codes, float weight,
                          std::size_t elements) = 0;

  /// All since the last call.
  [[nodiscard]] virtual std::uint64_t take_nonfinite() = 0;
};

/// By the calling thread.
class HostEngine final : public Engine {
 public:
  explicit HostEngine(std::shared_ptr<PayloadPool> pool) : pool_(std::move(pool)) {}

  [[nodiscard]] Payload take(std::size_t bytes) override { return pool_->take(bytes); }
  void give(Payload payload) override { pool_->give(std::move(payload)); }
  [[nodiscard]] std::shared_ptr<Payload> share(Payload ours) override {
    return kv::share(std::move(ours), pool_);
  }
  [[nodiscard]] Payload bring(Payload host) override { return host; }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  [[nodiscard]] Payload swap_out(Payload& /*ours*/, std::mutex& /*guard*/) override { return {}; }
  void wait() override {}
  [[nodiscard]] std::string take_failure() override { return {}; }
  [[nodiscard]] bool goes_on() const override { return true; }

  void reduce(data::Dtype dtype, const Reduction& reduction, std::byte* out,
              std::size_t elements) override;
  void count(data::Dtype dtype, std::byte* values, std::size_t elements) override;
  void update(const OptimizerSpec& spec, OptimizerState& state, data::Dtype dtype,
              double learning_rate, std::byte* values, const Reduction& gradient,
              std::size_t elements) override;
  void add_and_count(data::Dtype dtype, std::byte* into, const std::byte* from,
                     std::size_t elements) override;
  void add(data::Dtype dtype, std::byte* into, const std::byte* from, double weight,
           std::size_t elements) override;
  void scale(data::Dtype dtype, std::byte* values, double factor, std::size_t elements) override;
  void decode(data::Codec codec, std::byte* out, const Payload& codes,
              std::size_t elements) override;
  void decode_add(data::Codec codec, std::byte* into, const Payload& codes, float weight,
                  std::size_t elements) override;
  [[nodiscard]] std::uint64_t take_nonfinite() override;

 private:
  std::shared_ptr<PayloadPool> pool_;
  std::uint64_t nonfinite_ = 0;
};

}  // namespace dt::kv
