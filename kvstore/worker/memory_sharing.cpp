#include "kvstore/worker/memory_sharing.h"

#include <algorithm>
#include <utility>

#include "io/log.h"
#include "kvstore/compute/cuda/device_guard.h"
#include "kvstore/worker/links/server_links.h"

namespace dt::kv {

namespace {

/// Pinned memory is made in pieces of at least this size.
constexpr std::size_t kLeastPinned = std::size_t{4} << 20;

/// A kUnshare request: the server unmaps the memory.
Request unshare(std::uint32_t number) {
  return {.header = {.type = data::Type::kUnshare, .chunk = number}};
}

}  // namespace

StoreResult<void*> MemorySharing::allocate(std::size_t bytes) {
  auto made = SharedMemory::create(bytes, true);
  if (!made) return store_error(made.error());
  ClientMemory memory;
  memory.memory = std::move(*made);
  auto shared = share(memory);
  // share_again() announces the memory to the servers that replace lost ones.
  const bool is_later = !shared && shared.error().code == Code::kRollback;
  if (!shared && !is_later) return tl::unexpected(shared.error());
  void* at = memory.begin();
  allocated_.add(std::move(memory));
  return at;
}

Status MemorySharing::release(const ClientMemory& which) {
  const ClientMemory memory = allocated_.take(which.begin());
  std::vector<ServerLink*> links;
  for (const LoopId loop : memory.shared_with) links.push_back(&links_.at(loop));
  auto answers = links_.ask(links, unshare(memory.number), options_.lost_limit);
  if (!answers && answers.error().code != Code::kRollback) return tl::unexpected(answers.error());
  return {};
}

void MemorySharing::forget_servers() {
  sharers_.reset();
  staging_ = Staging();
  pinned_.clear();
  allocated_.forget_servers();
  on_devices_.clear();
  device_places_.forget_servers();
  refused_.clear();
  full_.clear();
}

Status MemorySharing::share_again() {
  for (ClientMemory* memory : allocated_.all())
    if (auto shared = share(*memory); !shared) return shared;
  return {};
}

/// Announces `memory` to the servers; those on this host map it.
Status MemorySharing::share(ClientMemory& memory) {
  memory.number = next_number_++;
  if (options_.transport == Transport::kTcp) return {};
  std::vector<ServerLink*> asked = sharers_ ? *sharers_ : links_.used();
  if (options_.may_share)
    std::erase_if(asked,
                  [this](ServerLink* link) { return !options_.may_share(link->to().server); });
  auto agreed = share(memory, asked);
  if (!agreed) return tl::unexpected(agreed.error());
  if (!sharers_) sharers_ = std::move(*agreed);
  return {};
}

Status MemorySharing::share_with(const std::set<ServerLink*>& links) {
  if (!sharers_) return {};  // no memory was announced yet
  std::set<std::uint32_t> servers;
  for (const ServerLink* sharer : *sharers_) servers.insert(sharer->to().server);
  std::vector<ServerLink*> asked(links.begin(), links.end());
  std::erase_if(asked, [&](ServerLink* link) {
    return !servers.contains(link->to().server) ||
           std::count(sharers_->begin(), sharers_->end(), link) > 0;
  });
  if (asked.empty()) return {};
  sharers_->insert(sharers_->end(), asked.begin(), asked.end());
  std::vector<ClientMemory*> memories = allocated_.all();
  for (ClientMemory* memory : staging_.all()) memories.push_back(memory);
  for (ClientMemory* memory : memories)
    if (auto agreed = share(*memory, asked); !agreed) return tl::unexpected(agreed.error());
  return {};
}

StoreResult<std::vector<ServerLink*>> MemorySharing::share(ClientMemory& memory,
                                                           const std::vector<ServerLink*>& asked) {
  const auto answers = tell(asked, memory.memory->describe(memory.number));
  if (!answers) return tl::unexpected(answers.error());
  std::vector<ServerLink*> agreed;
  for (const auto& answer : *answers) {
    if (!answer->outcome.error) {
      const LoopId loop = answer->link->to();
      agreed.push_back(answer->link);
      memory.shared_with.insert(loop);
      if (answer->outcome.header.flags & data::kOnDevice) on_devices_.insert(loop);
    } else if (options_.transport == Transport::kSharedMemory) {
      (void)links_.tell(asked, unshare(memory.number));
      return store_error(
          Code::kUnavailable,
          fmt::format("server {} at {} does not share memory with worker {} ({}): are they on one "
                      "host? --transport auto uses TCP where they are not",
                      answer->link->address().server, answer->link->address().address,
                      options_.worker, answer->outcome.error->message));
    }
  }
  return agreed;
}

StoreResult<Queries> MemorySharing::tell(const std::vector<ServerLink*>& asked,
                                         const data::ShareMemory& what) {
  Request request = request_with(data::Type::kShare, wire::body_of(what));
  request.header.chunk = what.number;
  auto answers = links_.ask(asked, request, options_.start_limit);
  // Or it would be shared again after a reconnection.
  if (!answers) (void)links_.tell(asked, unshare(what.number));
  return answers;
}

Status MemorySharing::stage(std::span<const KeyTable::Key> keys) {
  const bool shares = options_.transport != Transport::kTcp && (!sharers_ || !sharers_->empty());
  if (!shares) return {};
  std::size_t total = 0;
  std::vector<ChunkState*> large;
  for (const auto& key : keys) {
    for (const auto& chunk : key.chunks) {
      if (chunk->bytes == 0 || chunk->bytes < options_.share_from) continue;
      large.push_back(chunk.get());
      total += Staging::rounded(chunk->bytes);
    }
  }
  if (const std::size_t size = staging_.expect(total); size > 0)
    if (auto added = add_staging(size); !added) return added;
  const auto memories = staging_.all();
  for (ChunkState* chunk : large)
    chunk->is_shared =
        !memories.empty() && memories.back()->shared_with.contains(chunk->place.owner);
  return {};
}

/// Adds none if no server maps it, or if it cannot be made and need not be.
Status MemorySharing::add_staging(std::size_t bytes) {
  auto made = SharedMemory::create(bytes, false);
  if (!made && options_.transport == Transport::kAuto) return {};  // out of descriptors, say
  if (!made) return store_error(made.error());
  ClientMemory memory;
  memory.memory = std::move(*made);
  auto shared = share(memory);
  if (shared && !memory.shared_with.empty()) staging_.add(std::move(memory));
  return shared;
}

StoreResult<MemoryPlace> MemorySharing::staging_for(const ChunkState& chunk) {
  const LoopId server = chunk.place.owner;
  if (const auto place = staging_.take(chunk.bytes, server); place.at) return place;
  if (auto added = add_staging(staging_.to_add(chunk.bytes)); !added)
    return tl::unexpected(added.error());
  const auto place = staging_.take(chunk.bytes, server);
  if (place.at) return place;
  return store_error(Code::kUnavailable,
                     fmt::format("worker {}: no more memory can be shared with server {}: is its "
                                 "limit of open files reached?",
                                 options_.worker, server.server));
}

void MemorySharing::give_back(const std::vector<MemoryPlace>& places) {
  for (const MemoryPlace& place : places) staging_.give_back(place);
}

// ---------------------------------------------------------------- arrays on devices

Status MemorySharing::reach(const std::vector<OnDevice>& arrays) {
  std::map<int, std::vector<ChunkState*>> to_place;
  for (const auto& array : arrays)
    for (const auto& chunk : array.key->chunks)
      if (wants_place(array, *chunk)) to_place[*array.device].push_back(chunk.get());
  for (const auto& [device, chunks] : to_place)
    if (auto done = place_on(device, chunks); !done) return done;
  std::vector<ChunkState*> others;
  for (const auto& array : arrays)
    for (const auto& chunk : array.key->chunks)
      if (!chunk->on_device.at || chunk->on_device.device != array.device)
        others.push_back(chunk.get());
  return others.empty() ? Status() : pin(others, arrays.front().first);
}

bool MemorySharing::wants_place(const OnDevice& array, const ChunkState& chunk) const {
  return array.device && chunk.is_shared && !chunk.on_device.at &&
         DeviceEngine::computes(array.key->spec.dtype) && on_devices_.contains(chunk.place.owner) &&
         !full_.contains(*array.device) && !refused_.contains({*array.device, chunk.place.owner});
}

/// Chunks for which there is no memory on the device, or whose server refused it, get no place.
Status MemorySharing::place_on(int device, const std::vector<ChunkState*>& chunks) {
  std::size_t left = 0;
  for (const ChunkState* chunk : chunks) left += Staging::rounded(chunk->bytes);
  for (ChunkState* chunk : chunks) {
    const std::size_t bytes = Staging::rounded(chunk->bytes);
    const std::size_t all = std::exchange(left, left - bytes);
    const std::pair of(device, chunk->place.owner);
    if (chunk->on_device.at || refused_.contains(of)) continue;
    auto* memory = device_places_.with_room(device, bytes);
    if (!memory) {
      auto made = SharedDeviceMemory::create(device, device_places_.to_add(device, all));
      if (!made) {
        full_.insert(device);
        io::FdLog(2).info("worker {}: {}: chunks go by way of the host's memory", options_.worker,
                          made.error().message);
        return {};
      }
      memory = &device_places_.add(device, std::move(*made));
    }
    if (!memory->open_at.contains(chunk->place.owner))
      if (auto opened = open_at_servers(device, *memory); !opened) return opened;
    if (!refused_.contains(of)) chunk->on_device = DevicePlaces::take(device, *memory, bytes);
  }
  return {};
}

/// Asks the servers that compute on devices, and have not opened the memory, to open it. Frees the
/// memory if none does. A server that refuses is not asked again.
Status MemorySharing::open_at_servers(int device, DevicePlaces::Memory& memory) {
  std::vector<ServerLink*> asked;
  for (const LoopId loop : on_devices_)
    if (!refused_.contains({device, loop}) && !memory.open_at.contains(loop))
      asked.push_back(&links_.at(loop));
  if (memory.open_at.empty()) memory.number = next_number_++;
  const auto answers = tell(asked, memory.memory->describe(memory.number));
  if (!answers) return tl::unexpected(answers.error());
  std::set<std::uint32_t> said;
  for (const auto& answer : *answers) {
    const LoopId loop = answer->link->to();
    if (!answer->outcome.error) {
      memory.open_at.insert(loop);
      continue;
    }
    refused_.insert({device, loop});
    if (said.insert(loop.server).second)
      io::FdLog(2).info("worker {}: server {} reads CUDA device {} by way of the host's memory: {}",
                        options_.worker, answer->link->address().server, device,
                        answer->outcome.error->message);
  }
  if (memory.open_at.empty()) device_places_.drop(device, memory);
  return {};
}

/// Gives each chunk a place in pinned memory, which all devices can access. `device`: one that the
/// caller uses, for pinning needs a context.
Status MemorySharing::pin(const std::vector<ChunkState*>& chunks, int device) {
  const cuda::DeviceGuard here(device);
  const auto failed = [this](const char* what) {
    return store_error(
        Code::kInternal,
        fmt::format("worker {}: pinned memory for arrays on devices: {}", options_.worker, what));
  };
  std::size_t total = 0;
  std::vector<ChunkState*> left;
  for (ChunkState* chunk : chunks) {
    if (chunk->pinned.at || chunk->bytes == 0) continue;
    if (!chunk->is_shared) {
      left.push_back(chunk);
      total += Staging::rounded(chunk->bytes);
      continue;
    }
    const auto place = staging_for(*chunk);
    if (!place) return tl::unexpected(place.error());
    chunk->pinned = *place;
    if (const auto status = staging_.pin(*place); !status.ok()) return failed(status.error);
  }
  if (left.empty()) return {};
  cuda::PinnedMemory memory;
  const auto status = memory.allocate(std::max(total, kLeastPinned));
  if (!status.ok()) return failed(status.error);
  auto* at = static_cast<std::byte*>(memory.data());
  for (ChunkState* chunk : left) {
    chunk->pinned.at = at;
    at += Staging::rounded(chunk->bytes);
  }
  pinned_.push_back(std::move(memory));
  return {};
}

}  // namespace dt::kv
