#include "kvstore/worker/memory_sharing.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "io/log.h"
#include "kvstore/compute/cuda/device_guard.h"
#include "kvstore/worker/links/server_links.h"

namespace dt::kv {

namespace {

/// A kUnshare request: the server unmaps the memory.
Request unshare_request(std::uint32_t number) {
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
  auto unshared = unshare(allocated_.take(which.begin()));
  if (!unshared && unshared.error().code != Code::kRollback) return unshared;
  return {};
}

/// Success: no server has it open any more.
Status MemorySharing::unshare(const ClientMemory& memory) {
  if (memory.shared_with.empty()) return {};
  std::vector<ServerLink*> links;
  for (const LoopId loop : memory.shared_with) links.push_back(&links_.at(loop));
  return links_.ask(links, unshare_request(memory.number), options_.lost_limit)
      .map([](const Queries&) {});
}

std::vector<Staging*> MemorySharing::pools() {
  std::vector<Staging*> all = {&staging_, &pinned_};
  for (auto& [device, places] : on_device_) all.push_back(&places);
  return all;
}

void MemorySharing::trim() {
  for (Staging* pool : pools())
    for (ClientMemory& memory : pool->trim())
      if (!unshare(memory)) pool->add(std::move(memory));
  count();
}

void MemorySharing::count() {
  Bytes bytes{staging_.bytes(), pinned_.bytes()};
  for (const auto& [device, places] : on_device_) bytes.on_devices += places.bytes();
  const std::lock_guard lock(mutex_);
  bytes_ = bytes;
}

void MemorySharing::forget_servers() {
  sharers_.reset();
  staging_ = Staging(kLargestStep);
  pinned_ = Staging(kLargestStep);
  allocated_.forget_servers();
  on_devices_.clear();
  for (auto& [device, places] : on_device_) places.forget_servers();
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
  for (Staging* pool : {&staging_, &pinned_})
    for (ClientMemory* memory : pool->all())
      if (!memory->shared_with.empty()) memories.push_back(memory);
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
      if (answer->outcome.header.flags & data::kOnDevice) {
        on_devices_.insert(loop);
        memory.is_pinned_there = true;
      }
    } else if (options_.transport == Transport::kSharedMemory) {
      (void)links_.tell(asked, unshare_request(memory.number));
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
  if (!answers) (void)links_.tell(asked, unshare_request(what.number));
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
  if (!large.empty() && staging_.empty())
    if (auto added = add_staging(staging_.to_add(0)); !added) return added;
  // Without a device, memory that is not touched costs nothing.
  if (const std::size_t size = staging_.expect(total); size > 0 && on_devices_.empty())
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

StoreResult<MemoryPlace> MemorySharing::staging_for(const ChunkState& chunk, std::size_t left) {
  const LoopId server = chunk.place.owner;
  if (const auto place = staging_.take(chunk.bytes, server); place.at) return place;
  if (auto added = add_staging(staging_.to_add(left)); !added) return tl::unexpected(added.error());
  return found(staging_.take(chunk.bytes, server), chunk);
}

StoreResult<MemoryPlace> MemorySharing::found(const MemoryPlace& place, const ChunkState& chunk) {
  if (place.at) return place;
  return store_error(Code::kUnavailable,
                     fmt::format("worker {}: no more memory can be shared with server {}: is its "
                                 "limit of open files reached?",
                                 options_.worker, chunk.place.owner.server));
}

void MemorySharing::give_back(const std::vector<MemoryPlace>& places) {
  for (Staging* pool : pools())
    for (const MemoryPlace& place : places) pool->give_back(place);
  if (!places.empty()) count();
}

// ---------------------------------------------------------------- arrays on devices

StoreResult<MemoryPlace> MemorySharing::device_place_for(const ChunkState& chunk, data::Dtype dtype,
                                                         const Devices& devices, std::size_t left) {
  const bool may_be_there = devices.only && chunk.is_shared && DeviceEngine::computes(dtype) &&
                            on_devices_.contains(chunk.place.owner);
  if (may_be_there) {
    auto place = place_on(*devices.only, chunk, left);
    if (!place || place->at) return place;
  }
  return pinned_place(chunk, devices.first, left);
}

/// Without an address: there is no memory on the device, or the chunk's server refuses it.
StoreResult<MemoryPlace> MemorySharing::place_on(int device, const ChunkState& chunk,
                                                 std::size_t left) {
  const LoopId server = chunk.place.owner;
  const auto is_refused = [&] { return refused_.contains({device, server}); };
  Staging& places = on_device_.try_emplace(device, kLargestStep).first->second;
  if (const auto place = places.take(chunk.bytes, server); place.at) return place;
  for (ClientMemory* memory : places.all())
    if (!memory->shared_with.contains(server) && !is_refused())
      if (auto opened = open_at_servers(device, *memory); !opened)
        return tl::unexpected(opened.error());
  if (const auto place = places.take(chunk.bytes, server); place.at) return place;
  if (full_.contains(device) || is_refused()) return MemoryPlace();
  auto made = SharedDeviceMemory::create(device, places.to_add(left));
  if (!made) {
    full_.insert(device);
    io::FdLog(2).info("worker {}: {}: chunks go by way of the host's memory", options_.worker,
                      made.error().message);
    return MemoryPlace();
  }
  ClientMemory memory;
  memory.on_device = std::move(*made);
  if (auto opened = open_at_servers(device, memory); !opened) return tl::unexpected(opened.error());
  if (!memory.shared_with.empty()) places.add(std::move(memory));
  return places.take(chunk.bytes, server);
}

/// Asks the servers that compute on devices, and have not opened the memory, to open it. A server
/// that refuses is not asked again.
Status MemorySharing::open_at_servers(int device, ClientMemory& memory) {
  std::vector<ServerLink*> asked;
  for (const LoopId loop : on_devices_)
    if (!refused_.contains({device, loop}) && !memory.shared_with.contains(loop))
      asked.push_back(&links_.at(loop));
  if (memory.shared_with.empty()) memory.number = next_number_++;
  const auto answers = tell(asked, memory.on_device->describe(memory.number));
  if (!answers) return tl::unexpected(answers.error());
  std::set<std::uint32_t> said;
  for (const auto& answer : *answers) {
    const LoopId loop = answer->link->to();
    if (!answer->outcome.error) {
      memory.shared_with.insert(loop);
      continue;
    }
    refused_.insert({device, loop});
    if (said.insert(loop.server).second)
      io::FdLog(2).info("worker {}: server {} reads CUDA device {} by way of the host's memory: {}",
                        options_.worker, answer->link->address().server, device,
                        answer->outcome.error->message);
  }
  return {};
}

/// `device`: pinning needs a context.
StoreResult<MemoryPlace> MemorySharing::pinned_place(const ChunkState& chunk, int device,
                                                     std::size_t left) {
  const auto server = chunk.is_shared ? std::optional(chunk.place.owner) : std::nullopt;
  if (const auto place = pinned_.take(chunk.bytes, server); place.at) return place;
  const std::size_t size = pinned_.to_add(left);
  auto made = chunk.is_shared ? SharedMemory::create(size, false) : SharedMemory::anonymous(size);
  if (!made) return store_error(made.error());
  ClientMemory memory;
  memory.memory = std::move(*made);
  memory.number = next_number_++;
  memory.pinned = std::make_shared<cuda::PinnedRegistration>();
  const cuda::DeviceGuard here(device);
  const auto status = memory.pinned->add(memory.begin(), size);
  if (!status.ok())
    return store_error(Code::kInternal,
                       fmt::format("worker {}: pinned memory for arrays on devices: {}",
                                   options_.worker, status.error));
  if (chunk.is_shared)
    if (auto shared = share(memory); !shared) return tl::unexpected(shared.error());
  pinned_.add(std::move(memory));
  return found(pinned_.take(chunk.bytes, server), chunk);
}

void MemorySharing::abandon_device_places() {
  static std::mutex mutex;
  static auto* kept = new std::vector<std::map<int, Staging>>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::exchange(on_device_, {}));
}

}  // namespace dt::kv
