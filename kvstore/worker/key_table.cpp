#include "kvstore/worker/key_table.h"

#include <algorithm>
#include <utility>

#include "io/asio.h"
#include "kvstore/worker/links/server_link.h"

namespace dt::kv {

namespace {

constexpr std::uint64_t kMostElements = std::uint64_t{1} << 40;

/// By the servers' addresses, which are the same for all workers.
std::uint64_t chunk_bytes_for(const KeyTable::Owners& owners) {
  const auto is_near = [](const std::vector<ServerLink*>& server) {
    boost::system::error_code bad;
    return io::asio::ip::make_address(server.front()->address().address, bad).is_loopback();
  };
  return std::ranges::all_of(owners, is_near) ? Layout::kDefaultChunkBytes
                                              : Layout::kNetworkChunkBytes;
}

}  // namespace

Result<std::span<const KeyTable::Key>> KeyTable::learn(const data::KeyTable& table,
                                                       const Owners& owners) {
  if (!layout_) {
    std::vector<std::uint32_t> loops;
    for (const auto& server : owners) loops.push_back(static_cast<std::uint32_t>(server.size()));
    layout_.emplace(std::move(loops), chunk_bytes_ ? *chunk_bytes_ : chunk_bytes_for(owners));
  }
  const std::size_t known = keys_.size();
  if (table.from > known) return fail(ErrorKind::kProtocol, "the server's key table has a gap");
  for (std::size_t i = known - table.from; i < table.keys.size(); ++i) {
    const auto& spec = table.keys[i];
    const std::uint32_t width = data::element_bytes(spec.dtype);
    if (width == 0)
      return fail(ErrorKind::kProtocol, "the server's key table has a key of an unknown dtype, {}",
                  static_cast<int>(spec.dtype));
    if (spec.count > kMostElements)
      return fail(ErrorKind::kProtocol, "the server's key table has a key of {} elements",
                  spec.count);
    const KeyId id(size());
    by_name_[spec.name] = keys_.size();
    Key& key = keys_.emplace_back();
    key.spec = spec;
    const auto name = std::make_shared<const std::string>(spec.name);
    for (const auto& place : layout_->add_key(spec.count, width)) {
      auto chunk = std::make_unique<ChunkState>();
      chunk->name = name;
      chunk->key = id;
      chunk->index = static_cast<std::uint32_t>(key.chunks.size());
      chunk->place = place;
      chunk->bytes = place.count * width;
      chunk->owner = owners[place.owner.server][place.owner.loop];
      key.chunks.push_back(std::move(chunk));
    }
  }
  return std::span<const Key>(keys_).subspan(settled_);
}

const KeyTable::Key* KeyTable::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &keys_[found->second];
}

ChunkState* KeyTable::chunk(KeyId key, std::uint32_t index) const {
  const bool is_known = key.value < keys_.size() && index < keys_[key.value].chunks.size();
  return is_known ? keys_[key.value].chunks[index].get() : nullptr;
}

}  // namespace dt::kv
