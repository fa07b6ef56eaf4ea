#include "kvstore/replica_group.h"

#include <algorithm>
#include <cstdint>

#include "kvstore/device_arrays.h"
#include "kvstore/dtkv.h"

namespace dt::kv {

namespace {

constexpr std::size_t kItem = 16;      ///< Bytes a thread of a GPU moves at once.
constexpr std::size_t kAligned = 256;  ///< Of arrays in scratch memory.

std::size_t scratch_bytes(std::size_t bytes) {
  return (bytes + kAligned - 1) / kAligned * kAligned;
}

cuda::NcclType type_of(data::Dtype dtype) {
  switch (dtype) {
    case data::Dtype::kFloat32:
      return cuda::NcclType::kFloat32;
    case data::Dtype::kFloat64:
      return cuda::NcclType::kFloat64;
    case data::Dtype::kFloat16:
      return cuda::NcclType::kFloat16;
    case data::Dtype::kBfloat16:
      return cuda::NcclType::kBFloat16;
    case data::Dtype::kInt64:
      return cuda::NcclType::kInt64;
  }
  return cuda::NcclType::kFloat32;
}

Status on_device(const Array& array, cuda::Status status) {
  if (status.ok()) return {};
  return store_error(DTKV_INTERNAL,
                     fmt::format("CUDA device {}: {}", array.place.device, status.error));
}

Status in_group(std::string why) {
  if (why.empty()) return {};
  return store_error(DTKV_UNAVAILABLE, std::move(why));
}

/// A part of an array, in bytes.
struct Bytes {
  std::size_t begin = 0;
  std::size_t size = 0;
};

Bytes part_of(const ReplicaGroup::Key& key, std::size_t rank) {
  const auto& array = key.arrays[rank];
  const auto part = cuda::part_of(array.count, type_of(array.dtype), key.arrays.size(), rank);
  const std::size_t width = data::element_bytes(array.dtype);
  return {part.begin * width, part.size * width};
}

}  // namespace

bool ReplicaGroup::takes(std::span<const Array> arrays) {
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (!arrays[i].is_on_device()) return false;
    if (reinterpret_cast<std::uintptr_t>(arrays[i].data) % kItem != 0) return false;
    for (std::size_t k = 0; k < i; ++k)
      if (arrays[k].place == arrays[i].place) return false;
  }
  return true;
}

Status ReplicaGroup::sum(const std::vector<Key>& keys) {
  std::size_t offset = 0;
  for (const auto& key : keys) offset += scratch_bytes(bytes_of(key.arrays.front()));
  for (const auto& key : keys)
    for (const auto& array : key.arrays)
      if (auto place = scratch(array.place.device, offset); !place)
        return tl::unexpected(place.error());
  offset = 0;
  Status all;
  for (const auto& key : keys) {
    all = start_sum(key, offset);
    if (!all) break;
    offset += scratch_bytes(bytes_of(key.arrays.front()));
  }
  // Also after an error: what is under way must not write to anybody's memory later.
  auto done = finish(keys);
  return all ? done : all;
}

Status ReplicaGroup::spread(const std::vector<Key>& keys) {
  Status all;
  for (const auto& key : keys) {
    all = start_spread(key);
    if (!all) break;
  }
  auto done = finish(keys);
  return all ? done : all;
}

Status ReplicaGroup::use(const Key& key) {
  std::vector<int> devices;
  for (const auto& array : key.arrays) devices.push_back(array.place.device);
  if (devices == group_.devices()) return in_group(group_.use(devices));
  // The communicators of before must not be in use any more.
  if (auto done = in_group(group_.wait()); !done) return done;
  return in_group(group_.use(devices));
}

StoreResult<std::byte*> ReplicaGroup::scratch(int device, std::size_t bytes) {
  auto& memory = scratch_[device];
  if (memory.size() < bytes) {
    const OnDevice here(device);
    if (const auto status = memory.allocate(bytes); !status.ok())
      return store_error(DTKV_INTERNAL,
                         fmt::format("CUDA device {}: {} bytes to add gradients up in: {}", device,
                                     bytes, status.error));
  }
  return static_cast<std::byte*>(memory.data());
}

Status ReplicaGroup::start_sum(const Key& key, std::size_t offset) {
  if (auto ready = use(key); !ready) return ready;
  std::vector<cuda::LocalGroup::Array> copies;
  for (const auto& array : key.arrays) {
    const OnDevice here(array.place.device);
    auto* copy = static_cast<std::byte*>(scratch_[array.place.device].data()) + offset;
    auto status = on_device(array, cuda::copy(copy, array.data, bytes_of(array), array.stream));
    if (!status) return status;
    copies.push_back({copy, array.stream});
  }
  const auto& first = key.arrays.front();
  auto summed = in_group(group_.reduce_scatter(copies, first.count, type_of(first.dtype)));
  if (!summed) return summed;
  for (std::size_t rank = 0; rank < key.arrays.size(); ++rank) {
    const auto& array = key.arrays[rank];
    const OnDevice here(array.place.device);
    const Bytes part = part_of(key, rank);
    const auto* from = static_cast<const std::byte*>(copies[rank].data) + part.begin;
    auto status =
        on_device(array, cuda::copy(key.host + part.begin, from, part.size, array.stream));
    if (!status) return status;
  }
  return {};
}

Status ReplicaGroup::start_spread(const Key& key) {
  if (auto ready = use(key); !ready) return ready;
  std::vector<cuda::LocalGroup::Array> arrays;
  for (std::size_t rank = 0; rank < key.arrays.size(); ++rank) {
    const auto& array = key.arrays[rank];
    const OnDevice here(array.place.device);
    const Bytes part = part_of(key, rank);
    auto* to = static_cast<std::byte*>(array.data) + part.begin;
    auto status = on_device(array, cuda::copy(to, key.host + part.begin, part.size, array.stream));
    if (!status) return status;
    arrays.push_back({array.data, array.stream});
  }
  const auto& first = key.arrays.front();
  return in_group(group_.all_gather(arrays, first.count, type_of(first.dtype)));
}

Status ReplicaGroup::finish(const std::vector<Key>& keys) {
  // First what NCCL does, with its deadline: after a failure of its own the streams come to an end.
  Status all = in_group(group_.wait());
  for (const auto& key : keys) {
    for (const auto& array : key.arrays) {
      const OnDevice here(array.place.device);
      auto status = on_device(array, cuda::wait(array.stream));
      if (all) all = std::move(status);
    }
  }
  return all;
}

}  // namespace dt::kv
