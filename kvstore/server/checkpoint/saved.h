/// The state that a server saves at a boundary, and a checkpoint of several servers' files for
/// reading.
///
/// A server's file has these arrays, K being the key's number and C the chunk's:
///
///     keyK.chunkC           the values
///     keyK.chunkC.state1    the optimizer's: momentum, or the first moment
///     keyK.chunkC.state2    Adam's second moment
///
/// and this metadata: format, epoch, generation, server, servers, step, optimizer (as
/// dtkv_set_optimizer takes it; empty: none), updates ([[K, C, number], ...], only chunks with
/// updates), and at server 0 keys ([["NAME", elements, "F32", is auxiliary], ...] in the order of
/// K; bytes of a name that are not plain ASCII, and %, are %XX; null: a transient key, which has no
/// arrays). A key's chunks in their order are the key's values.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/id.h"
#include "io/job/checkpoint_manifest.h"
#include "kvstore/compute/payload.h"
#include "kvstore/protocol/messages.h"
#include "kvstore/server/checkpoint/tensor_file.h"

namespace dt::kv {

/// A chunk at the boundary; its arrays may be in device memory (Payload::memory) and are only read.
/// References are taken and released on the thread of the loop that owns the chunk.
struct SavedChunk {
  KeyId key{};
  std::uint32_t chunk = 0;
  data::Dtype dtype{};
  std::uint64_t elements = 0;
  std::uint64_t updates = 0;  ///< By the optimizer.
  /// The value and the optimizer's two states; null: there is none.
  std::array<std::shared_ptr<const Payload>, 3> arrays;
};

/// One loop's saved state.
struct SavedLoop {
  std::vector<SavedChunk> chunks;
  std::vector<data::KeySpec> keys;  ///< From the loop that has the key table, else empty.
  std::string optimizer;
  std::uint64_t step = 0;
  int device = 0;  ///< The device of arrays that are not in host memory.
  /// With a device: to be held while arrays are read that may be in device memory, since the loop
  /// moves them to host memory when the device has no room. Null: they are in host memory.
  std::shared_ptr<std::mutex> guard;
};

/// The checkpoint and the server that a file belongs to.
struct SavedBy {
  Epoch epoch;
  Generation generation;
  std::uint32_t server = 0;  ///< Index.
  std::uint32_t servers = 1;
};

/// Arrays must be in host memory.
[[nodiscard]] Result<WrittenFile> write_saved(const std::string& path, const SavedBy& by,
                                              const std::vector<SavedLoop>& loops,
                                              const std::function<bool()>& give_up = {});

/// A slice of a key, read from a checkpoint.
struct RestoredSlice {
  std::array<Payload, 3> arrays;  ///< As SavedChunk::arrays; empty: there is none.
  std::uint64_t updates = 0;
};

/// A whole checkpoint. The reader does not depend on which server wrote which chunks.
class Checkpoint {
 public:
  /// Reads the manifest and every file's header; kInvalid and kIo name the file.
  [[nodiscard]] static Result<std::shared_ptr<const Checkpoint>> open(const std::string& folder);

  [[nodiscard]] const io::Manifest& manifest() const { return manifest_; }
  /// By KeyId; transient keys are left out, and the others numbered from 0.
  [[nodiscard]] const std::vector<data::KeySpec>& keys() const { return keys_; }
  /// As dtkv_set_optimizer takes it; empty: none.
  [[nodiscard]] const std::string& optimizer() const { return optimizer_; }
  [[nodiscard]] bool has(KeyId key) const { return key.value < keys_.size(); }
  /// Elements first..first+count-1 of a key that has(). Any thread.
  [[nodiscard]] Result<RestoredSlice> load(KeyId key, std::uint64_t first,
                                           std::uint64_t count) const;

 private:
  struct Piece {
    std::uint32_t chunk = 0;
    std::uint64_t first = 0;
    std::uint64_t updates = 0;
    const TensorFile* file = nullptr;
    std::array<const TensorFile::Entry*, 3> entries{};  ///< As SavedChunk::arrays.
  };
  Checkpoint() = default;
  void take_file(const io::Manifest::File& named, const std::string& folder);
  void take_pieces(const TensorFile& file);
  void arrange();

  io::Manifest manifest_;
  std::vector<std::unique_ptr<TensorFile>> files_;
  std::vector<data::KeySpec> keys_;
  std::vector<std::optional<std::uint32_t>> numbers_;  ///< By the files' K: the index in keys_.
  std::string optimizer_;
  std::vector<std::vector<Piece>> pieces_;  ///< By key, in order.
};

}  // namespace dt::kv
