#include "kvstore/compute/engine.h"

#include <cstring>
#include <utility>

#include "kvstore/compute/compression.h"

namespace dt::kv {

void HostEngine::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void HostEngine::reduce(data::Dtype dtype, const Reduction& reduction, std::byte* out,
                        std::size_t elements) {
  nonfinite_ += kv::reduce(dtype, reduction, out, elements);
}

void HostEngine::count(data::Dtype dtype, std::byte* values, std::size_t elements) {
  nonfinite_ += count_nonfinite(dtype, values, elements);
}

void HostEngine::update(const OptimizerSpec& spec, OptimizerState& state, data::Dtype dtype,
                        double learning_rate, std::byte* values, const Reduction& gradient,
                        std::size_t elements) {
  nonfinite_ += kv::update(spec, state, dtype, learning_rate, values, gradient, elements);
}

void HostEngine::add_and_count(data::Dtype dtype, std::byte* into, const std::byte* from,
                               std::size_t elements) {
  nonfinite_ += add_to(dtype, into, from, 1, elements);
}

void HostEngine::add(data::Dtype dtype, std::byte* into, const std::byte* from, double weight,
                     std::size_t elements) {
  static_cast<void>(add_to(dtype, into, from, weight, elements));
}

void HostEngine::scale(data::Dtype dtype, std::byte* values, double factor, std::size_t elements) {
  kv::scale(dtype, values, factor, elements);
}

void HostEngine::decode(data::Codec codec, std::byte* out, const Payload& codes,
                        std::size_t elements) {
  kv::decode(codec, reinterpret_cast<float*>(out), codes.data(), elements);
}

void HostEngine::decode_add(data::Codec codec, std::byte* into, const Payload& codes, float weight,
                            std::size_t elements) {
  kv::decode_add(codec, reinterpret_cast<float*>(into), codes.data(), weight, elements);
}

std::uint64_t HostEngine::take_nonfinite() { return std::exchange(nonfinite_, 0); }

}  // namespace dt::kv
