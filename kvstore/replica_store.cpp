#include "kvstore/replica_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kvstore/dtkv.h"
#include "kvstore/reduce.h"

namespace dt::kv {

namespace {

/// Sums begin at a multiple of this: aligned for any kernel.
constexpr std::size_t kAlign = 64;

std::size_t bytes_of(const Array& array) { return array.count * data::element_bytes(array.dtype); }
std::size_t rounded(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

bool ReplicaStore::has_repeats(const std::vector<std::string>& keys) {
  return std::adjacent_find(keys.begin(), keys.end()) != keys.end();
}

ReplicaStore::Groups ReplicaStore::group(const std::vector<std::string>& keys) {
  Groups groups;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i > 0 && keys[i] == keys[i - 1]) continue;
    groups.keys.push_back(keys[i]);
    groups.begins.push_back(i);
  }
  groups.begins.push_back(keys.size());
  return groups;
}

std::string ReplicaStore::mismatch(const Groups& groups, const std::vector<Array>& arrays) {
  for (std::size_t k = 0; k < groups.keys.size(); ++k) {
    const auto& first = arrays[groups.begins[k]];
    if (groups.begins[k + 1] - groups.begins[k] == 1) continue;
    for (std::size_t i = groups.begins[k]; i < groups.begins[k + 1]; ++i) {
      if (arrays[i].is_ordered())
        return fmt::format(
            "key '{}' is given {} times, with an array on CUDA device {}: such arrays are not "
            "added "
            "up yet, give one of them",
            groups.keys[k], groups.begins[k + 1] - groups.begins[k], arrays[i].place.device);
      if (arrays[i].count != first.count || arrays[i].dtype != first.dtype)
        return fmt::format(
            "key '{}' is given {} times, and its arrays differ: {} and {} elements{}",
            groups.keys[k], groups.begins[k + 1] - groups.begins[k], first.count, arrays[i].count,
            arrays[i].dtype == first.dtype ? "" : " of different types");
    }
  }
  return {};
}

std::vector<Array> ReplicaStore::firsts(const Groups& groups, const std::vector<Array>& arrays) {
  std::vector<Array> out;
  for (std::size_t k = 0; k < groups.keys.size(); ++k) out.push_back(arrays[groups.begins[k]]);
  return out;
}

void ReplicaStore::note_copies(const Groups& groups, const std::vector<Array>& arrays, Open& open) {
  open.values = firsts(groups, arrays);
  for (std::size_t k = 0; k < groups.keys.size(); ++k)
    open.copies.emplace_back(arrays.begin() + static_cast<std::ptrdiff_t>(groups.begins[k] + 1),
                             arrays.begin() + static_cast<std::ptrdiff_t>(groups.begins[k + 1]));
}

StoreResult<std::vector<Array>> ReplicaStore::add_up(const Groups& groups,
                                                     const std::vector<Array>& arrays, Open& open) {
  std::vector<Array> sums = firsts(groups, arrays);
  std::size_t bytes = 0;
  for (std::size_t k = 0; k < sums.size(); ++k) {
    if (groups.begins[k + 1] - groups.begins[k] == 1) continue;
    if (!is_supported(sums[k].dtype))
      return store_error(
          DTKV_MISMATCH,
          fmt::format("key '{}': arrays of this type cannot be summed", groups.keys[k]));
    bytes += rounded(bytes_of(sums[k]));
  }
  auto block = take(bytes);
  if (!block) return tl::unexpected(block.error());
  open.sums = *block;
  std::size_t at = 0;
  std::vector<Addend> addends;
  for (std::size_t k = 0; k < sums.size(); ++k) {
    addends.clear();
    for (std::size_t i = groups.begins[k]; i < groups.begins[k + 1]; ++i)
      addends.push_back({static_cast<const std::byte*>(arrays[i].data), 1});
    if (addends.size() == 1) continue;
    Reduction sum;
    sum.addends = addends;
    sums[k].data = open.sums.data + at;
    at += rounded(bytes_of(sums[k]));
    (void)reduce(sums[k].dtype, sum, static_cast<std::byte*>(sums[k].data), sums[k].count);
  }
  return sums;
}

StoreResult<ReplicaStore::Block> ReplicaStore::take(std::size_t bytes) {
  const auto fits = std::find_if(free_.begin(), free_.end(),
                                 [bytes](const Block& block) { return block.bytes >= bytes; });
  if (fits != free_.end()) {
    const Block block = *fits;
    free_.erase(fits);
    return block;
  }
  const auto memory = inner_->allocate(bytes);
  if (!memory) return tl::unexpected(memory.error());
  return Block{static_cast<std::byte*>(*memory), bytes};
}

StoreResult<Handle> ReplicaStore::opened(StoreResult<Handle> handle, Open open) {
  if (handle)
    open_.emplace(*handle, std::move(open));
  else
    close(open, false);
  return handle;
}

void ReplicaStore::close(Open& open, bool is_good) {
  if (is_good)
    for (std::size_t k = 0; k < open.values.size(); ++k)
      for (const auto& copy : open.copies[k])
        if (copy.count > 0) std::memcpy(copy.data, open.values[k].data, bytes_of(copy));
  if (!open.sums.data) return;
  // The smallest that fits is the first that fits.
  const auto at = std::find_if(free_.begin(), free_.end(),
                               [&](const Block& block) { return block.bytes >= open.sums.bytes; });
  free_.insert(at, open.sums);
}

// ---------------------------------------------------------------- the calls

Status ReplicaStore::init(const std::vector<std::string>& keys, const std::vector<Array>& values,
                          std::uint8_t flags) {
  if (!has_repeats(keys)) return inner_->init(keys, values, flags);
  const Groups groups = group(keys);
  if (auto wrong = mismatch(groups, values); !wrong.empty())
    return store_error(DTKV_MISMATCH, std::move(wrong));
  return inner_->init(groups.keys, firsts(groups, values), flags);
}

StoreResult<Handle> ReplicaStore::push(const std::vector<std::string>& keys,
                                       const std::vector<Array>& values,
                                       const PushOptions& options) {
  if (!has_repeats(keys)) return inner_->push(keys, values, options);
  const Groups groups = group(keys);
  if (auto wrong = mismatch(groups, values); !wrong.empty())
    return store_error(DTKV_MISMATCH, std::move(wrong));
  Open open;
  const auto sums = add_up(groups, values, open);
  if (!sums) return tl::unexpected(sums.error());
  auto handle = inner_->push(groups.keys, *sums, options);
  return opened(std::move(handle), std::move(open));
}

StoreResult<Handle> ReplicaStore::pull(const std::vector<std::string>& keys,
                                       const std::vector<Array>& out, const PullOptions& how) {
  if (!has_repeats(keys)) return inner_->pull(keys, out, how);
  const Groups groups = group(keys);
  if (auto wrong = mismatch(groups, out); !wrong.empty())
    return store_error(DTKV_MISMATCH, std::move(wrong));
  Open open;
  note_copies(groups, out, open);
  auto handle = inner_->pull(groups.keys, open.values, how);
  return opened(std::move(handle), std::move(open));
}

StoreResult<Handle> ReplicaStore::pushpull(const std::vector<std::string>& keys,
                                           const std::vector<Array>& values,
                                           const std::vector<Array>& out,
                                           const PushOptions& options) {
  if (!has_repeats(keys)) return inner_->pushpull(keys, values, out, options);
  const Groups groups = group(keys);
  for (const auto* arrays : {&values, &out})
    if (auto wrong = mismatch(groups, *arrays); !wrong.empty())
      return store_error(DTKV_MISMATCH, std::move(wrong));
  Open open;
  const auto sums = add_up(groups, values, open);
  if (!sums) return tl::unexpected(sums.error());
  note_copies(groups, out, open);
  auto handle = inner_->pushpull(groups.keys, *sums, open.values, options);
  return opened(std::move(handle), std::move(open));
}

Status ReplicaStore::wait(Handle handle, double timeout_s) {
  auto done = inner_->wait(handle, timeout_s);
  const auto found = open_.find(handle);
  if (found == open_.end()) return done;
  if (!done && done.error().code == DTKV_TIMEOUT) return done;  // still under way
  close(found->second, done.has_value());
  open_.erase(found);
  return done;
}

Status ReplicaStore::wait_all(double timeout_s) {
  // One by one: what was good is copied also where another one failed.
  Status all;
  while (!open_.empty() && (all || all.error().code != DTKV_TIMEOUT)) {
    auto done = wait(open_.begin()->first, timeout_s);
    if (all) all = std::move(done);
  }
  auto rest = inner_->wait_all(timeout_s);
  return all ? rest : all;
}

}  // namespace dt::kv
