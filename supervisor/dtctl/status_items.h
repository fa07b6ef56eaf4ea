/// Shared by the readers of a status in JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

namespace dt::supervisor {

/// The elements of the array `key` of `object`; none if it is missing or no array.
[[nodiscard]] inline std::vector<nlohmann::json> items(const nlohmann::json& object,
                                                       const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return {};
  return found->get<std::vector<nlohmann::json>>();
}

}  // namespace dt::supervisor
