#include "kvstore/compute/reduce.h"

#include <cstdint>
#include <cstring>

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
  if (dtype == data::Dtype::kInt64)
    return reduce_int64(reduction, reinterpret_cast<std::int64_t*>(out), elements);
  return as_float(dtype, [&]<class T>(const Arithmetic<T>& with) {
    return with.sum(reinterpret_cast<T*>(out), TypedSum<T>(reduction).sum(), elements);
  });
}

std::size_t add_to(data::Dtype dtype, std::byte* into, const std::byte* from, double weight,
                   std::size_t elements) {
  if (dtype == data::Dtype::kInt64) {
    DT_CHECK(weight == 1, "integers are not weighted");
    kernels().add_int64(reinterpret_cast<std::int64_t*>(into),
                        reinterpret_cast<const std::int64_t*>(from), elements);
    return 0;
  }
  return as_float(dtype, [&]<class T>(const Arithmetic<T>& with) {
    auto* sum = reinterpret_cast<T*>(into);
    const auto* more = reinterpret_cast<const T*>(from);
    if (weight == 1) return with.add(sum, more, elements);
    return with.add_weighted(sum, more, static_cast<T>(weight), elements);
  });
}

void scale(data::Dtype dtype, std::byte* values, double factor, std::size_t elements) {
  as_float(dtype, [&]<class T>(const Arithmetic<T>& with) {
    with.scale(reinterpret_cast<T*>(values), static_cast<T>(factor), elements);
  });
}

std::size_t count_nonfinite(data::Dtype dtype, const std::byte* values, std::size_t elements) {
  if (dtype != data::Dtype::kFloat32 && dtype != data::Dtype::kFloat64) return 0;
  return as_float(dtype, [&]<class T>(const Arithmetic<T>& with) {
    return with.count_nonfinite(reinterpret_cast<const T*>(values), elements);
  });
}

bool is_supported(data::Dtype dtype) {
  return dtype == data::Dtype::kFloat32 || dtype == data::Dtype::kFloat64 ||
         dtype == data::Dtype::kInt64;
}

}  // namespace dt::kv
