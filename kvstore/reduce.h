/// The sum of a round's contributions.
///
/// Why not add on arrival: the result must not depend on the order in which frames arrive, and
/// float addition does. All contributions of a round are kept until it completes; then each
/// element is added up in double, in worker id order, and rounded once to the element's type. So
/// every run gives the same bits, and the float32 result is the float64 reference rounded to
/// float32 (up to the last bit of ties).
#pragma once

#include <cstddef>
#include <span>

#include "core/data_messages.h"

namespace dt::kv {

struct Addend {
  const std::byte* data = nullptr;
  double weight = 1;
};

/// out[i] = sum(weight * data[i]) / divisor over `addends`, in their order. `divisor` 1 with
/// weights 1 is a sum; weights n and divisor sum(n) is the sample-weighted mean. int64 elements are
/// added exactly; they take weights and divisor 1 only.
void reduce(data::Dtype dtype, std::span<const Addend> addends, double divisor, std::byte* out,
            std::size_t elements);

/// into[i] += weight * from[i], both rounded to the dtype. int64: the weight is 1.
void add_to(data::Dtype dtype, std::byte* into, const std::byte* from, double weight,
            std::size_t elements);
/// values[i] *= factor. Not for int64.
void scale(data::Dtype dtype, std::byte* values, double factor, std::size_t elements);
/// values[i] /= divisor; int64: the divisor is 1.
void divide(data::Dtype dtype, std::byte* values, double divisor, std::size_t elements);

/// The store computes with float32, float64 and int64.
[[nodiscard]] bool is_supported(data::Dtype dtype);

}  // namespace dt::kv
