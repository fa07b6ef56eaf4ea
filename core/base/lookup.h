/// Reads from maps that have no entry for some keys; what a variant may be.
#pragma once

#include <variant>

namespace dt {

/// The value at `key`; null if there is none.
template <class Map>
[[nodiscard]] auto* find_in(Map& map, const typename Map::key_type& key) {
  const auto it = map.find(key);
  return it == map.end() ? nullptr : &it->second;
}

/// The value at `key`; a default one, which stays, if there is none.
template <class Map>
[[nodiscard]] const typename Map::mapped_type& value_in(const Map& map,
                                                        const typename Map::key_type& key) {
  static const typename Map::mapped_type kNone{};
  const auto* value = find_in(map, key);
  return value ? *value : kNone;
}

/// Whether it is of one of these types.
template <class... Types>
[[nodiscard]] bool is_any_of(const auto& variant) {
  return (std::holds_alternative<Types>(variant) || ...);
}

}  // namespace dt
