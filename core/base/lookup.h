/// Reads from maps that have no entry for some keys.
#pragma once

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

}  // namespace dt
