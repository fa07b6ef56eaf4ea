/// Shared by the readers of a status in JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/time.h"

namespace dt::supervisor {

/// The elements of the array `key` of `object`; none if it is missing or no array.
[[nodiscard]] inline std::vector<nlohmann::json> items(const nlohmann::json& object,
                                                       const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return {};
  return found->get<std::vector<nlohmann::json>>();
}

/// A text as it is, a list with commas, anything else in JSON.
[[nodiscard]] inline std::string text_of(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array())
    return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string out;
  for (const nlohmann::json& item : value) out += (out.empty() ? "" : ",") + text_of(item);
  return out;
}

/// The number `key` of `object`; 0 if it is missing or none.
[[nodiscard]] inline double number(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

/// Why a worker makes no step; empty: it stalls for less than `least` seconds.
[[nodiscard]] inline std::string stall_text(const nlohmann::json& worker, double least) {
  const auto stalls = worker.find("stalls");
  if (stalls == worker.end() || !stalls->is_object() || number(*stalls, "for_s") < least) return "";
  const std::string process = stalls->value("process", "");
  return fmt::format("no step for {}{}{}", duration_text(number(*stalls, "for_s")),
                     stalls->value("waited_for", false) ? "; the others wait for it" : "",
                     process.empty() ? "" : "; " + process);
}

/// A change of the workers restarts all of them (--on-change restart): there are no boundaries.
[[nodiscard]] inline bool restarts_group(const nlohmann::json& status) {
  const auto found = status.find("on_change");
  return found != status.end() && *found == "restart";
}

}  // namespace dt::supervisor
