#include "kvstore/server/worker_memories.h"

#include <utility>

#include "kvstore/link/ipc_memory.h"
#include "kvstore/link/shared_memory.h"

namespace dt::kv {

namespace {

constexpr std::size_t kMostMemories = 1024;
constexpr std::size_t kDeviceItem = 16;  ///< Bytes that a device accesses at once.

}  // namespace

Result<void> WorkerMemories::open(const data::ShareMemory& told) {
  if (memories_.size() >= kMostMemories)
    return fail(ErrorKind::kUnavailable, "worker {} shares {} memories already", worker_,
                kMostMemories);
  auto memory = opened(told);
  if (!memory) return tl::unexpected(memory.error());
  memories_[told.number] = std::move(*memory);
  return {};
}

Result<WorkerMemories::Memory> WorkerMemories::opened(const data::ShareMemory& told) const {
  if (told.handle.empty()) {
    auto memory = SharedMemory::open(told);
    if (!memory) return tl::unexpected(memory.error());
    if (device_) (*memory)->pin();
    const auto bytes = (*memory)->bytes();
    return Memory{bytes, false, std::move(*memory)};
  }
  if (!device_) return fail(ErrorKind::kUnavailable, "this server computes on its host");
  auto memory = OpenedDeviceMemory::open(told, *device_);
  if (!memory) return tl::unexpected(memory.error());
  const auto bytes = (*memory)->bytes();
  return Memory{bytes, true, std::move(*memory)};
}

/// The host's kernels take any alignment; a device's need places at a multiple of kDeviceItem.
Result<WorkerMemories::Memory> WorkerMemories::place(std::uint32_t number, std::uint64_t offset,
                                                     std::size_t size, bool is_on_device) const {
  if (number == data::SharedPlaces::kNowhere) return Memory{};
  const auto it = memories_.find(number);
  if (it == memories_.end()) return fail(ErrorKind::kProtocol, "memory {} is not shared", number);
  Memory found = it->second;
  if (offset > found.bytes.size() || size > found.bytes.size() - offset)
    return fail(ErrorKind::kProtocol, "a place outside of shared memory");
  if (found.is_on_device && (offset % kDeviceItem != 0 || !is_on_device))
    return fail(ErrorKind::kProtocol, "a place on a device that does not suit the chunk");
  found.bytes = found.bytes.subspan(offset, size);
  return found;
}

Result<SharedBuffers> WorkerMemories::find(const data::SharedPlaces& where, std::size_t size,
                                           bool is_on_device, bool has_values) const {
  auto in = place(where.in, where.in_offset, size, is_on_device);
  if (!in) return tl::unexpected(in.error());
  auto out = place(where.out, where.out_offset, size, is_on_device);
  if (!out) return tl::unexpected(out.error());
  if (has_values && !in->owner && size > 0)
    return fail(ErrorKind::kProtocol, "a push without its values");
  return SharedBuffers{in->bytes.data(),
                       out->bytes.data(),
                       in->is_on_device,
                       out->is_on_device,
                       {std::move(in->owner), std::move(out->owner)}};
}

}  // namespace dt::kv
