#include "kvstore/compute/reduce.h"

#include <cstdint>
#include <cstring>

#include "core/base/result.h"
#include "kvstore/compute/kernels/kernels.h"

namespace dt::kv {

namespace {

std::size_t reduce_int64(const Reduction& reduction, std::int64_t* out, std::size_t elements) {
  const std::byte* first = reduction.addends.front().data;
  const bool in_place = first == reinterpret_cast<const std::byte*>(out);
  if (!in_place && elements > 0) std::memcpy(out, first, elements * sizeof *out);
  for (const auto& addend : reduction.addends.subspan(1))
    kernels().add_int64(out, reinterpret_cast<const std::int64_t*>(addend.data), elements);
  return 0;
}

}  // namespace

std::size_t reduce(data::Dtype dtype, const Reduction& reduction, std::byte* out,
                   std::size_t elements) {
  DT_CHECK(!reduction.addends.empty(), "a sum of nothing");
  if (dtype == data::Dtype::kFloat32)
    return kernels().f32.sum(reinterpret_cast<float*>(out), TypedSum<float>(reduction).sum(),
                             elements);
  if (dtype == data::Dtype::kFloat64)
    return kernels().f64.sum(reinterpret_cast<double*>(out), TypedSum<double>(reduction).sum(),
                             elements);
  DT_CHECK(dtype == data::Dtype::kInt64, "a dtype the store does not compute with");
  return reduce_int64(reduction, reinterpret_cast<std::int64_t*>(out), elements);
}

std::size_t add_to(data::Dtype dtype, std::byte* into, const std::byte* from, double weight,
                   std::size_t elements) {
  if (dtype == data::Dtype::kFloat32) {
    auto* sum = reinterpret_cast<float*>(into);
    const auto* more = reinterpret_cast<const float*>(from);
    if (weight == 1) return kernels().f32.add(sum, more, elements);
    return kernels().f32.add_weighted(sum, more, static_cast<float>(weight), elements);
  }
  if (dtype == data::Dtype::kFloat64) {
    auto* sum = reinterpret_cast<double*>(into);
    const auto* more = reinterpret_cast<const double*>(from);
    if (weight == 1) return kernels().f64.add(sum, more, elements);
    return kernels().f64.add_weighted(sum, more, weight, elements);
  }
  DT_CHECK(dtype == data::Dtype::kInt64 && weight == 1, "a sum the store does not compute");
  kernels().add_int64(reinterpret_cast<std::int64_t*>(into),
                      reinterpret_cast<const std::int64_t*>(from), elements);
  return 0;
}

void scale(data::Dtype dtype, std::byte* values, double factor, std::size_t elements) {
  if (dtype == data::Dtype::kFloat32)
    return kernels().f32.scale(reinterpret_cast<float*>(values), static_cast<float>(factor),
                               elements);
  DT_CHECK(dtype == data::Dtype::kFloat64, "only floating-point values are scaled");
  kernels().f64.scale(reinterpret_cast<double*>(values), factor, elements);
}

std::size_t count_nonfinite(data::Dtype dtype, const std::byte* values, std::size_t elements) {
  if (dtype == data::Dtype::kFloat32)
    return kernels().f32.count_nonfinite(reinterpret_cast<const float*>(values), elements);
  if (dtype == data::Dtype::kFloat64)
    return kernels().f64.count_nonfinite(reinterpret_cast<const double*>(values), elements);
  return 0;
}

bool is_supported(data::Dtype dtype) {
  return dtype == data::Dtype::kFloat32 || dtype == data::Dtype::kFloat64 ||
         dtype == data::Dtype::kInt64;
}

}  // namespace dt::kv
