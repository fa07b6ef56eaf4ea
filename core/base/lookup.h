/// Reads from maps that have no entry for some keys.
#pragma once

namespace dt {

/// The value at `key`; null if there is none.
template <class Map>
[[nodiscard]] auto* find_in(Map& map, const typename Map::key_type& key) {
  const auto it = map.find(key);
  return it == map.end() ? nullptr : &it->second;
}

/// The value at `key`; a default one if there is none.
template <class Map>
[[nodiscard]] typename Map::mapped_type value_in(const Map& map,
                                                 const typename Map::key_type& key) {
  const auto* value = find_in(map, key);
  return value ? *value : typename Map::mapped_type{};
}

}  // namespace dt
