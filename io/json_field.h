/// Fields of a JSON object from outside, and whole numbers. Each error is a std::runtime_error for
/// people; that of a field names the key.
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/base/result.h"

namespace dt::io {

/// Throws unless the value is a whole number that fits. nlohmann's own conversion turns 7.9 into 7,
/// a number that is too large into another one, and 1e300 into whatever the processor yields.
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

[[nodiscard]] inline nlohmann::json json_object(const std::string& text) {
  auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_object()) return json;
  throw std::runtime_error(json.is_discarded() ? "it is no JSON" : "it is no JSON object");
}

[[nodiscard]] inline const nlohmann::json& field(const nlohmann::json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end()) throw std::runtime_error(fmt::format("\"{}\" is missing", key));
  return *at;
}

[[nodiscard]] inline std::string text_field(const nlohmann::json& object, const char* key) {
  const auto& value = field(object, key);
  if (!value.is_string()) throw std::runtime_error(fmt::format("\"{}\" is no text", key));
  return value.get<std::string>();
}

template <std::integral Number>
[[nodiscard]] Number number_field(const nlohmann::json& object, const char* key) {
  const auto& value = field(object, key);
  try {
    return whole_number<Number>(value);
  } catch (const std::runtime_error& e) {
    throw std::runtime_error(fmt::format("\"{}\": {}", key, e.what()));
  }
}

}  // namespace dt::io
