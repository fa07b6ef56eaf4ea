/// Whole numbers of JSON from outside. nlohmann's own conversion turns 7.9 into 7, a number that is
/// too large into another one, and 1e300 into whatever the processor yields.
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "core/base/result.h"

namespace dt::io {

/// Throws std::runtime_error unless the value is a whole number that fits.
template <std::integral Number>
[[nodiscard]] Number whole_number(const nlohmann::json& value) {
  const bool fits =
      value.is_number_unsigned()
          ? std::in_range<Number>(value.get<std::uint64_t>())
          : value.is_number_integer() && std::in_range<Number>(value.get<std::int64_t>());
  if (fits) return value.get<Number>();
  throw std::runtime_error(
      fmt::format("{} is no whole number, or too large or small a one",
                  value.is_primitive() ? value.dump().substr(0, 60) : "a list"));
}

}  // namespace dt::io
