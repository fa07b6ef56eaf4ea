/// The memory of chunks and the arithmetic on it: on the host, by the calling thread, or on a
/// device (device_engine.h), which executes calls in their order; they are done after wait(). Both
/// give the same bits. A call is for a whole chunk; the arithmetic's pointers are to the engine's
/// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "kvstore/compute/compression.h"
#include "kvstore/compute/optimizer.h"
#include "kvstore/compute/payload.h"
#include "kvstore/compute/reduce.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

class Engine {
 public:
  virtual ~Engine() = default;

  /// Uninitialised engine memory; empty: there is none (take_failure).
  [[nodiscard]] virtual Payload take(std::size_t bytes) = 0;
  /// Gives memory back: engine memory is reused by take(); host memory is kept until the engine has
  /// read it.
  virtual void give(Payload payload) = 0;
  /// Engine memory that is given back when the last reference to it ends.
  [[nodiscard]] virtual std::shared_ptr<Payload> share(Payload ours) = 0;
  /// Moves a payload in host memory to engine memory.
  [[nodiscard]] virtual Payload bring(Payload host) = 0;
  /// to = from, at least one of which is engine memory.
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  /// Replaces `ours` by a copy in host memory and returns its engine memory; waits. Holds `guard`
  /// while `ours` changes. Empty: it is host memory already, or the copy failed; nothing changed.
  [[nodiscard]] virtual Payload swap_out(Payload& ours, std::mutex& guard) = 0;
  virtual void wait() = 0;
  /// The error of calls since the last take_failure(); empty: there was none.
  [[nodiscard]] virtual std::string take_failure() = 0;
  /// Whether no call has failed since then.
  [[nodiscard]] virtual bool goes_on() const = 0;

  /// As the functions of these names (reduce.h, compression.h, optimizer.h). The non-finite
  /// elements are added to take_nonfinite(), on a device once the stream has passed the call.
  virtual void reduce(data::Dtype dtype, const Reduction& reduction, std::byte* out,
                      std::size_t elements) = 0;
  virtual void count(data::Dtype dtype, std::byte* values, std::size_t elements) = 0;
  virtual void update(const OptimizerSpec& spec, OptimizerState& state, data::Dtype dtype,
                      double learning_rate, std::byte* values, const Reduction& gradient,
                      std::size_t elements) = 0;
  /// Counts the non-finite elements of `from` if it `counts`; what follows counts nothing.
  virtual void add(data::Dtype dtype, std::byte* into, const std::byte* from, double weight,
                   std::size_t elements, bool counts) = 0;
  virtual void scale(data::Dtype dtype, std::byte* values, double factor, std::size_t elements) = 0;
  /// `codes` are in host memory and must not change until the engine has passed the call.
  virtual void decode(data::Codec codec, std::byte* out, const Payload& codes,
                      std::size_t elements) = 0;
  virtual void decode_add(data::Codec codec, std::byte* into, const Payload& codes, float weight,
                          std::size_t elements) = 0;

  /// The count of non-finite elements since the last call.
  [[nodiscard]] virtual std::uint64_t take_nonfinite() = 0;
};

/// Computes on the calling thread.
class HostEngine final : public Engine {
 public:
  explicit HostEngine(std::shared_ptr<PayloadPool> pool) : pool_(std::move(pool)) {}

  [[nodiscard]] Payload take(std::size_t bytes) override { return pool_->take(bytes); }
  void give(Payload payload) override { pool_->give(std::move(payload)); }
  [[nodiscard]] std::shared_ptr<Payload> share(Payload ours) override {
    return kv::share(std::move(ours), pool_);
  }
  [[nodiscard]] Payload bring(Payload host) override { return host; }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  [[nodiscard]] Payload swap_out(Payload& /*ours*/, std::mutex& /*guard*/) override { return {}; }
  void wait() override {}
  [[nodiscard]] std::string take_failure() override { return {}; }
  [[nodiscard]] bool goes_on() const override { return true; }

  void reduce(data::Dtype dtype, const Reduction& reduction, std::byte* out,
              std::size_t elements) override {
    nonfinite_ += kv::reduce(dtype, reduction, out, elements);
  }
  void count(data::Dtype dtype, std::byte* values, std::size_t elements) override {
    nonfinite_ += count_nonfinite(dtype, values, elements);
  }
  void update(const OptimizerSpec& spec, OptimizerState& state, data::Dtype dtype,
              double learning_rate, std::byte* values, const Reduction& gradient,
              std::size_t elements) override {
    nonfinite_ += kv::update(spec, state, dtype, learning_rate, values, gradient, elements);
  }
  void add(data::Dtype dtype, std::byte* into, const std::byte* from, double weight,
           std::size_t elements, bool counts) override {
    const std::size_t found = add_to(dtype, into, from, weight, elements);
    if (counts) nonfinite_ += found;
  }
  void scale(data::Dtype dtype, std::byte* values, double factor, std::size_t elements) override {
    kv::scale(dtype, values, factor, elements);
  }
  void decode(data::Codec codec, std::byte* out, const Payload& codes,
              std::size_t elements) override {
    kv::decode(codec, reinterpret_cast<float*>(out), codes.data(), elements);
  }
  void decode_add(data::Codec codec, std::byte* into, const Payload& codes, float weight,
                  std::size_t elements) override {
    kv::decode_add(codec, reinterpret_cast<float*>(into), codes.data(), weight, elements);
  }
  [[nodiscard]] std::uint64_t take_nonfinite() override { return std::exchange(nonfinite_, 0); }

 private:
  std::shared_ptr<PayloadPool> pool_;
  std::uint64_t nonfinite_ = 0;
};

}  // namespace dt::kv
