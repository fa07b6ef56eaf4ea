/// Fields of a JSON object from outside. Each error is a std::runtime_error for people: it names
/// the key.
#pragma once

#include <concepts>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "io/json_number.h"

namespace dt::io {

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
