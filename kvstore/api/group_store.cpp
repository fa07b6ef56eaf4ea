#include "kvstore/api/group_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kvstore/compute/reduce.h"

namespace dt::kv {

namespace {

bool has_repeats(const Keys& keys) {
  return std::adjacent_find(keys.begin(), keys.end()) != keys.end();
}

Array with_groups(std::span<const Array> arrays) {
  Array all = arrays.front();
  all.group = std::make_shared<const Arrays>(arrays.begin(), arrays.end());
  return all;
}

}  // namespace

GroupStore::Groups GroupStore::group(const Keys& keys) {
  Groups groups;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i > 0 && keys[i] == keys[i - 1]) continue;
    groups.keys.push_back(keys[i]);
    groups.begins.push_back(i);
  }
  groups.begins.push_back(keys.size());
  return groups;
}

std::string GroupStore::mismatch(const Groups& groups, const Arrays& arrays) {
  for (std::size_t k = 0; k < groups.keys.size(); ++k) {
    const auto& first = arrays[groups.begins[k]];
    for (std::size_t i = groups.begins[k]; i < groups.begins[k + 1]; ++i)
      if (arrays[i].count != first.count || arrays[i].dtype != first.dtype)
        return fmt::format(
            "key '{}' is given {} times, and its arrays differ: {} and {} elements{}",
            groups.keys[k], groups.begins[k + 1] - groups.begins[k], first.count, arrays[i].count,
            arrays[i].dtype == first.dtype ? "" : " of different types");
  }
  return {};
}

StoreResult<Blocks::Block> GroupStore::take(const Groups& groups, const Arrays* pushed,
                                            const Arrays* pulled) {
  std::size_t bytes = 0;
  for (std::size_t k = 0; k < groups.keys.size(); ++k) {
    if (groups.count(k) == 1) continue;
    if (pushed && !is_for_inner(groups.of(k, *pushed)))
      bytes += Blocks::room_for((*pushed)[groups.begins[k]]);
    if (pulled && std::ranges::any_of(groups.of(k, *pulled), &Array::is_ordered) &&
        !is_for_inner(groups.of(k, *pulled)))
      bytes += Blocks::room_for((*pulled)[groups.begins[k]]);
  }
  return blocks_.take(inner(), bytes);
}

StoreResult<Arrays> GroupStore::add_up(const Groups& groups, const Arrays& arrays,
                                       Blocks::Block& block) {
  Arrays sums;
  std::vector<DeviceGroup::Key> on_devices;
  for (std::size_t k = 0; k < groups.keys.size(); ++k) {
    const auto of_key = groups.of(k, arrays);
    if (of_key.size() == 1) {
      sums.push_back(of_key.front());
      continue;
    }
    if (is_for_inner(of_key)) {
      sums.push_back(with_groups(of_key));
      continue;
    }
    sums.push_back(block.place(of_key.front()));
    if (DeviceGroup::takes(of_key))
      on_devices.push_back({of_key, static_cast<std::byte*>(sums.back().data)});
    else if (auto added = add_up_on_host(of_key, sums.back()); !added)
      return store_error(added.error().code,
                         fmt::format("key '{}': {}", groups.keys[k], added.error().message));
  }
  if (on_devices.empty()) return sums;
  if (auto known = devices_.check(arrays); !known) return tl::unexpected(known.error());
  if (auto summed = group_.sum(on_devices); !summed) return tl::unexpected(summed.error());
  return sums;
}

Status GroupStore::add_up_on_host(std::span<const Array> arrays, const Array& sum) {
  if (!is_supported(sum.dtype))
    return store_error(Code::kMismatch, "arrays of this type cannot be added up on the host");
  const Arrays all(arrays.begin(), arrays.end());
  HostArrays on_host(all);
  if (auto made = on_host.make(devices_, true); !made) return made;
  std::vector<Addend> addends;
  for (const auto& array : on_host.get())
    addends.push_back({static_cast<const std::byte*>(array.data), 1});
  (void)reduce(sum.dtype, {addends}, static_cast<std::byte*>(sum.data), sum.count);
  return {};
}

Arrays GroupStore::values_of(const Groups& groups, const Arrays& arrays, Open& open) const {
  Arrays values;
  for (std::size_t k = 0; k < groups.keys.size(); ++k) {
    const auto of_key = groups.of(k, arrays);
    values.push_back(of_key.front());
    if (of_key.size() == 1) continue;
    if (is_for_inner(of_key)) {
      values.back() = with_groups(of_key);
      continue;
    }
    const bool are_on_host = std::ranges::none_of(of_key, &Array::is_ordered);
    if (!are_on_host) values.back() = open.block.place(of_key.front());
    const auto rest = are_on_host ? of_key.subspan(1) : of_key;
    open.spreads.push_back({values.back(), {rest.begin(), rest.end()}});
  }
  return values;
}

Status GroupStore::spread_from_host(const Spread& spread) {
  HostArrays on_host(spread.arrays);
  if (auto made = on_host.make(devices_, false); !made) return made;
  for (const auto& array : on_host.get())
    if (array.count > 0) std::memcpy(array.data, spread.value.data, bytes_of(array));
  return on_host.write();
}

Status GroupStore::close(const Open& open, bool is_good) {
  Status all;
  if (is_good) {
    std::vector<DeviceGroup::Key> on_devices;
    for (const auto& spread : open.spreads) {
      if (DeviceGroup::takes(spread.arrays))
        on_devices.push_back({spread.arrays, static_cast<std::byte*>(spread.value.data)});
      else if (auto done = spread_from_host(spread); !done && all)
        all = std::move(done);
    }
    if (all && !on_devices.empty()) all = group_.spread(on_devices);
  }
  blocks_.give(open.block);
  return all;
}

// ---------------------------------------------------------------- the calls

Status GroupStore::init(const Keys& keys, const Arrays& values, std::uint8_t flags) {
  if (!has_repeats(keys)) return inner().init(keys, values, flags);
  const Groups groups = group(keys);
  if (auto wrong = mismatch(groups, values); !wrong.empty())
    return store_error(Code::kMismatch, std::move(wrong));
  Arrays firsts;
  for (std::size_t k = 0; k < groups.keys.size(); ++k)
    firsts.push_back(groups.of(k, values).front());
  return inner().init(groups.keys, firsts, flags);
}

StoreResult<Handle> GroupStore::begin(const Keys& keys, const Arrays* values, const Arrays* out,
                                      const PushOptions& options) {
  if (!has_repeats(keys)) return inner().begin(keys, values, out, options);
  const Groups groups = group(keys);
  for (const auto* arrays : {values, out})
    if (arrays)
      if (auto wrong = mismatch(groups, *arrays); !wrong.empty())
        return store_error(Code::kMismatch, std::move(wrong));
  auto block = take(groups, values, out);
  if (!block) return tl::unexpected(block.error());
  Open open;
  open.block = *block;
  Arrays pushed;
  if (values) {
    auto sums = add_up(groups, *values, open.block);
    if (!sums) {
      (void)close(open, false);
      return tl::unexpected(sums.error());
    }
    pushed = std::move(*sums);
  }
  Arrays pulled;
  if (out) pulled = values_of(groups, *out, open);
  auto handle =
      inner().begin(groups.keys, values ? &pushed : nullptr, out ? &pulled : nullptr, options);
  if (!handle) {
    (void)close(open, false);
    return handle;
  }
  if (!open.block.data && open.spreads.empty()) return handle;
  Ending ending;
  for (const auto& spread : open.spreads)
    ending.written.insert(ending.written.end(), spread.arrays.begin(), spread.arrays.end());
  ending.end = [this, open = std::move(open)](bool is_good) { return close(open, is_good); };
  at_end_of(*handle, std::move(ending));
  return handle;
}

}  // namespace dt::kv
