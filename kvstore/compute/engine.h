/// The arithmetic of chunks where their memory is: in the host's, by the calling thread, or on a
/// device (device_engine.h). Both give the same bits. A call is for a whole chunk; pointers are to
/// the engine's memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvstore/compute/optimizer.h"
#include "kvstore/compute/payload.h"
#include "kvstore/compute/reduce.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

class Engine {
 public:
  virtual ~Engine() = default;

  /// What the functions of these names do (reduce.h, compression.h, optimizer.h). The non-finite
  /// elements are added to nonfinite(), on a device once it has come so far.
  virtual void reduce(data::Dtype dtype, const Reduction& reduction, std::byte* out,
                      std::size_t elements) = 0;
  virtual void count(data::Dtype dtype, std::byte* values, std::size_t elements) = 0;
  virtual void update(const OptimizerSpec& spec, OptimizerState& state, data::Dtype dtype,
                      double learning_rate, std::byte* values, const Reduction& gradient,
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
  void reduce(data::Dtype dtype, const Reduction& reduction, std::byte* out,
              std::size_t elements) override;
  void count(data::Dtype dtype, std::byte* values, std::size_t elements) override;
  void update(const OptimizerSpec& spec, OptimizerState& state, data::Dtype dtype,
              double learning_rate, std::byte* values, const Reduction& gradient,
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
  std::uint64_t nonfinite_ = 0;
};

}  // namespace dt::kv
