/// A worker's copy of the job's key table: shapes, chunks, and each chunk's owner. It grows at its
/// end when server 0's table has grown; the addresses of chunks stay the same.
///
/// The caller's thread; chunk.h names the parts of a chunk that belong to the loop.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/result.h"
#include "kvstore/protocol/layout.h"
#include "kvstore/protocol/messages.h"
#include "kvstore/worker/chunk.h"

namespace dt::kv {

class KeyTable {
 public:
  struct Key {
    data::KeySpec spec;
    std::vector<std::unique_ptr<ChunkState>> chunks;
  };
  /// [server][loop]: the links to the chunks' owners.
  using Owners = std::vector<std::vector<ServerLink*>>;

  /// `chunk_bytes`: of a chunk, at most; nothing: as it suits the servers' addresses.
  explicit KeyTable(std::optional<std::uint64_t> chunk_bytes) : chunk_bytes_(chunk_bytes) {}

  /// Adds the table's new keys. Returns all keys added since settled(). `owners` must be the same
  /// at each call.
  [[nodiscard]] Result<std::span<const Key>> learn(const data::KeyTable& table,
                                                   const Owners& owners);
  /// All keys are set up.
  void settled() { settled_ = keys_.size(); }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(keys_.size()); }
  /// The key must exist.
  [[nodiscard]] const Key& at(KeyId key) const { return keys_[key.value]; }
  /// Null: there is no such key.
  [[nodiscard]] const Key* find(const std::string& name) const;
  [[nodiscard]] ChunkState* chunk(KeyId key, std::uint32_t index) const;

 private:
  std::optional<std::uint64_t> chunk_bytes_;
  std::optional<Layout> layout_;
  std::vector<Key> keys_;  ///< By KeyId.
  std::size_t settled_ = 0;
  std::unordered_map<std::string, std::size_t> by_name_;
};

}  // namespace dt::kv
