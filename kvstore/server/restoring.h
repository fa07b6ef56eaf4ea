/// Chunks that are created from the checkpoint with which the server begins, and the requests that
/// wait until theirs is read.
#pragma once

#include <functional>
#include <map>

#include "kvstore/server/chunks.h"

namespace dt::kv {

struct RestoreOptions {
  /// Gives the initial values of the keys and chunks that it contains, whichever worker creates
  /// them; null: there is none.
  std::shared_ptr<const Checkpoint> restore;
  /// Runs the work on another thread, in the order of the calls, then the function that it returns
  /// on the shard's thread; none: both at once. For reading `restore`.
  std::function<void(std::function<std::function<void()>()> work)> offload;
  /// Called on the shard's thread, maybe repeatedly: a part of `restore` cannot be read; the
  /// workers that asked for it get no answer. None: their requests are refused.
  std::function<void(std::string why)> on_damage;
};

class Restoring {
 public:
  /// `again`: takes the requests for a chunk that was created, and those for which another part
  /// of a key has to be read.
  Restoring(const RestoreOptions& options, ShardContext& context, Chunks& chunks, Answers& answers,
            std::function<void(const data::Header&)> again)
      : options_(options),
        context_(context),
        chunks_(chunks),
        answers_(answers),
        again_(std::move(again)) {}

  /// Whether the chunks of the key are in the checkpoint.
  [[nodiscard]] bool has(KeyId key) const { return options_.restore && options_.restore->has(key); }
  /// A request for a chunk of a key that it has().
  void ask(const data::Header& header);
  void disconnect(WorkerId worker);

 private:
  /// The chunk was read, or reading failed.
  void on_read(const data::Header& asked, Result<RestoredSlice> slice);

  const RestoreOptions& options_;
  ShardContext& context_;
  Chunks& chunks_;
  Answers& answers_;
  std::function<void(const data::Header&)> again_;
  std::map<std::pair<KeyId, std::uint32_t>, std::vector<data::Header>> waiting_;  ///< By chunk.
};

}  // namespace dt::kv
