#include "kvstore/memory_sharing.h"

#include <algorithm>
#include <utility>

#include "kvstore/dtkv.h"

namespace dt::kv {

namespace {

/// Pinned memory is made in pieces of at least this size.
constexpr std::size_t kLeastPinned = std::size_t{4} << 20;

/// Says that a memory is to be forgotten.
Request unshare(const ClientMemory& memory) {
  Request request;
  request.header.type = data::Type::kUnshare;
  request.header.chunk = memory.number;
  return request;
}

}  // namespace

StoreResult<void*> MemorySharing::allocate(std::size_t bytes) {
  auto made = SharedMemory::create(bytes, true);
  if (!made) return store_error(DTKV_INTERNAL, made.error().message);
  ClientMemory memory;
  memory.memory = std::move(*made);
  auto shared = share(memory);
  // The servers that take the place of lost ones are told by share_again().
  const bool is_later = !shared && shared.error().code == DTKV_ROLLBACK;
  if (!shared && !is_later) return tl::unexpected(shared.error());
  void* at = memory.begin();
  allocated_.add(std::move(memory));
  return at;
}

Status MemorySharing::release(const ClientMemory& which) {
  const ClientMemory memory = allocated_.take(which.begin());
  std::vector<ServerLink*> links;
  for (const LoopId loop : memory.shared_with) links.push_back(&links_.at(loop));
  auto answers = links_.ask(links, unshare(memory), options_.lost_limit);
  if (!answers && answers.error().code != DTKV_ROLLBACK) return tl::unexpected(answers.error());
  return {};
}

void MemorySharing::forget_servers() {
  sharers_.reset();
  staging_ = Staging();
  pinned_.clear();
  allocated_.forget_servers();
}

Status MemorySharing::share_again() {
  for (ClientMemory* memory : allocated_.all())
    if (auto shared = share(*memory); !shared) return shared;
  return {};
}

/// Tells the servers of `memory`; those on this host map it.
Status MemorySharing::share(ClientMemory& memory) {
  memory.number = next_number_++;
  if (options_.transport == Transport::kTcp) return {};
  std::vector<ServerLink*> whom = sharers_ ? *sharers_ : links_.all();
  if (options_.may_share)
    std::erase_if(whom, [this](ServerLink* link) { return !options_.may_share(link->server()); });
  Request request;
  request.header.type = data::Type::kShare;
  request.header.chunk = memory.number;
  request.keep =
      std::make_shared<const std::string>(wire::body_of(memory.memory->describe(memory.number)));
  request.from = request.keep->data();
  request.header.payload = static_cast<std::uint32_t>(request.keep->size());
  const auto answers = links_.ask(whom, request, options_.start_limit);
  if (!answers) {
    (void)links_.tell(whom, unshare(memory));  // or it would be shared again after a reconnection
    return tl::unexpected(answers.error());
  }
  std::vector<ServerLink*> agreed;
  for (const auto& answer : *answers) {
    if (!answer->outcome.error) {
      agreed.push_back(answer->link);
      memory.shared_with.insert({answer->link->server(), answer->link->loop()});
    } else if (options_.transport == Transport::kSharedMemory) {
      (void)links_.tell(whom, unshare(memory));
      return store_error(
          DTKV_UNAVAILABLE,
          fmt::format("server {} at {} does not share memory with worker {} ({}): are they on one "
                      "host? --transport auto uses TCP where they are not",
                      answer->link->address().server, answer->link->address().address,
                      options_.worker, answer->outcome.error->message));
    }
  }
  if (!sharers_) sharers_ = std::move(agreed);
  return {};
}

Status MemorySharing::stage(std::span<const KeyBook::Key> keys) {
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
  if (const std::size_t size = staging_.to_add(total); size > 0) {
    auto made = SharedMemory::create(size, false);
    if (!made && options_.transport == Transport::kAuto) return {};  // out of descriptors, say
    if (!made) return store_error(DTKV_INTERNAL, made.error().message);
    ClientMemory memory;
    memory.memory = std::move(*made);
    auto shared = share(memory);
    if (!shared || memory.shared_with.empty()) return shared;
    staging_.add(std::move(memory));
  }
  for (ChunkState* chunk : large)
    if (staging_.latest()->shared_with.contains(chunk->place.owner))
      chunk->staging = staging_.take(chunk->bytes);
  return {};
}

Status MemorySharing::pin(const std::vector<const KeyBook::Key*>& keys) {
  const auto failed = [this](const char* what) {
    return store_error(
        DTKV_INTERNAL,
        fmt::format("worker {}: pinned memory for arrays on devices: {}", options_.worker, what));
  };
  std::size_t total = 0;
  std::vector<ChunkState*> left;
  for (const auto* key : keys) {
    for (const auto& chunk : key->chunks) {
      if (chunk->pinned || chunk->bytes == 0) continue;
      if (!chunk->staging.at) {
        left.push_back(chunk.get());
        total += Staging::rounded(chunk->bytes);
        continue;
      }
      if (const auto status = staging_.pin(chunk->staging); !status.ok())
        return failed(status.error);
      chunk->pinned = chunk->staging.at;
    }
  }
  if (left.empty()) return {};
  cuda::PinnedMemory memory;
  const auto status = memory.allocate(std::max(total, kLeastPinned));
  if (!status.ok()) return failed(status.error);
  auto* at = static_cast<std::byte*>(memory.data());
  for (ChunkState* chunk : left) {
    chunk->pinned = at;
    at += Staging::rounded(chunk->bytes);
  }
  pinned_.push_back(std::move(memory));
  return {};
}

}  // namespace dt::kv
