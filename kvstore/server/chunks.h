/// A shard's chunks: created, found by frames that name them, saved; and the optimizer's states of
/// them. Their rounds are in shard_rounds.h.
#pragma once

#include <unordered_map>

#include "core/base/time.h"
#include "kvstore/server/answers.h"
#include "kvstore/server/chunk_value.h"
#include "kvstore/server/rounds.h"

namespace dt::kv {

struct Chunk {
  /// A request that the open round will answer.
  struct Waiting {
    data::Header header;
    SharedBuffers shared;
  };
  /// A contribution that counts as one without samples, and the error for its sender. An
  /// asynchronous push was not applied, and its number is used up.
  struct Refused {
    WorkerId worker;
    Round round;
    data::Failure why;
  };

  Chunk(ChunkValue v, bool is_temporary)
      : value(std::move(v)),
        rounds(value.is_auxiliary() ? Members::Part::kEpoch : Members::Part::kSteps),
        is_transient(is_temporary) {}
  void refuse(const data::Header& header, data::Code code, std::string why) {
    refused.push_back({header.worker, header.round, {code, std::move(why)}});
  }

  ChunkValue value;
  RoundMachine rounds;
  bool is_transient;  ///< Not in checkpoints.
  // The open round:
  std::size_t open_at = 0;  ///< Index in Rounds::open_.
  std::vector<Waiting> waiting;
  Time arrived_at{};                                      ///< The latest contribution of any round.
  Time completed_at{};                                    ///< The last round.
  std::optional<std::pair<Round, data::Failure>> failed;  ///< The last round, if it failed.
  /// Contributions to this round and the last one; each worker's last asynchronous push.
  std::vector<Refused> refused;
};

class Chunks {
 public:
  Chunks(ShardContext& context, Answers& answers);
  ~Chunks();
  Chunks(const Chunks&) = delete;
  Chunks& operator=(const Chunks&) = delete;

  /// Null: there is none.
  [[nodiscard]] Chunk* find(const data::Header& header);
  [[nodiscard]] const ChunkValue* value_of(const data::Header& header) {
    const Chunk* chunk = find(header);
    return chunk ? &chunk->value : nullptr;
  }
  /// Shard::take
  [[nodiscard]] Payload take(const data::Header& header);
  /// Creates the frame's chunk; or returns why the device cannot hold it.
  [[nodiscard]] std::string add(const data::Header& header, bool is_auxiliary, RestoredSlice value);
  /// Answers with a state of the optimizer.
  void answer_state(const data::Header& header);
  /// Sets a state of the optimizer, if the sender gives initial values.
  void set_state(const data::Header& header, Payload payload, bool is_first);
  [[nodiscard]] std::size_t size() const { return all_.size(); }
  /// Forgets workers that are no longer members.
  void forget(const std::vector<WorkerId>& workers) {
    for (auto& [number, chunk] : all_) chunk.rounds.forget(workers);
  }
  [[nodiscard]] std::vector<data::ChunkRound> rounds() const;
  /// The present state, but the keys.
  [[nodiscard]] SavedLoop save();

 private:
  using Number = std::uint64_t;  ///< KeyId in the high half, chunk in the low half.

  /// Moves arrays that a checkpoint holds from the device's memory to the host's; false: it holds
  /// none.
  bool make_room();

  ShardContext& context_;
  Answers& answers_;
  std::unordered_map<Number, Chunk> all_;
  Number last_number_ = 0;  ///< Number of last_found_.
  Chunk* last_found_ = nullptr;
  /// Arrays in the device's memory that the last checkpoint still holds.
  std::vector<std::weak_ptr<const Payload>> saved_;
  std::weak_ptr<std::mutex> saved_guard_;
};

}  // namespace dt::kv
