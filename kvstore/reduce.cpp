#include "kvstore/reduce.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace dt::kv {

namespace {

/// Elements of one pass: the double accumulator stays in the first-level cache.
constexpr std::size_t kBlock = 1024;

template <class T>
void reduce_as(std::span<const Addend> addends, double divisor, T* out, std::size_t elements) {
  std::array<double, kBlock> sum;
  for (std::size_t at = 0; at < elements; at += kBlock) {
    const std::size_t n = std::min(kBlock, elements - at);
    std::fill_n(sum.begin(), n, 0.0);
    for (const auto& addend : addends) {
      const T* from = reinterpret_cast<const T*>(addend.data) + at;
      const double weight = addend.weight;
      for (std::size_t i = 0; i < n; ++i) sum[i] += weight * static_cast<double>(from[i]);
    }
    for (std::size_t i = 0; i < n; ++i) out[at + i] = static_cast<T>(sum[i] / divisor);
  }
}

void reduce_int64(std::span<const Addend> addends, std::int64_t* out, std::size_t elements) {
  std::fill_n(out, elements, 0);
  for (const auto& addend : addends) {
    const auto* from = reinterpret_cast<const std::int64_t*>(addend.data);
    for (std::size_t i = 0; i < elements; ++i)  // wraps, as the hardware's addition does
      out[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(out[i]) +
                                         static_cast<std::uint64_t>(from[i]));
  }
}

}  // namespace

void reduce(data::Dtype dtype, std::span<const Addend> addends, double divisor, std::byte* out,
            std::size_t elements) {
  switch (dtype) {
    case data::Dtype::kFloat32:
      return reduce_as(addends, divisor, reinterpret_cast<float*>(out), elements);
    case data::Dtype::kFloat64:
      return reduce_as(addends, divisor, reinterpret_cast<double*>(out), elements);
    case data::Dtype::kInt64:
      return reduce_int64(addends, reinterpret_cast<std::int64_t*>(out), elements);
    case data::Dtype::kFloat16:
    case data::Dtype::kBfloat16:
      break;
  }
  DT_CHECK(false, "a dtype the store does not compute with");
}

namespace {

template <class T>
void add_as(T* into, const T* from, T weight, std::size_t elements) {
  if (weight == T(1))
    for (std::size_t i = 0; i < elements; ++i) into[i] += from[i];
  else
    for (std::size_t i = 0; i < elements; ++i) into[i] += weight * from[i];
}

}  // namespace

void add_to(data::Dtype dtype, std::byte* into, const std::byte* from, double weight,
            std::size_t elements) {
  if (dtype == data::Dtype::kFloat32)
    return add_as(reinterpret_cast<float*>(into), reinterpret_cast<const float*>(from),
                  static_cast<float>(weight), elements);
  if (dtype == data::Dtype::kFloat64)
    return add_as(reinterpret_cast<double*>(into), reinterpret_cast<const double*>(from), weight,
                  elements);
  DT_CHECK(dtype == data::Dtype::kInt64 && weight == 1, "a sum the store does not compute");
  auto* sum = reinterpret_cast<std::uint64_t*>(into);  // wraps, as the hardware's addition does
  const auto* more = reinterpret_cast<const std::uint64_t*>(from);
  for (std::size_t i = 0; i < elements; ++i) sum[i] += more[i];
}

void scale(data::Dtype dtype, std::byte* values, double factor, std::size_t elements) {
  if (dtype == data::Dtype::kFloat32) {
    const auto by = static_cast<float>(factor);
    auto* v = reinterpret_cast<float*>(values);
    for (std::size_t i = 0; i < elements; ++i) v[i] *= by;
    return;
  }
  DT_CHECK(dtype == data::Dtype::kFloat64, "only floating-point values are scaled");
  auto* v = reinterpret_cast<double*>(values);
  for (std::size_t i = 0; i < elements; ++i) v[i] *= factor;
}

void divide(data::Dtype dtype, std::byte* values, double divisor, std::size_t elements) {
  if (divisor == 1) return;
  if (dtype == data::Dtype::kFloat32) {
    const auto by = static_cast<float>(divisor);
    auto* v = reinterpret_cast<float*>(values);
    for (std::size_t i = 0; i < elements; ++i) v[i] /= by;
    return;
  }
  DT_CHECK(dtype == data::Dtype::kFloat64, "only floating-point values are divided");
  auto* v = reinterpret_cast<double*>(values);
  for (std::size_t i = 0; i < elements; ++i) v[i] /= divisor;
}

bool is_supported(data::Dtype dtype) {
  return dtype == data::Dtype::kFloat32 || dtype == data::Dtype::kFloat64 ||
         dtype == data::Dtype::kInt64;
}

}  // namespace dt::kv
