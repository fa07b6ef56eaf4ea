/// The state of one server loop: its keys and chunks, its contributors, its rounds. Frames in,
/// answers out; no socket, thread or clock, so tests drive it frame by frame.
/// It dispatches: the rounds are in shard_rounds.h, the key table in key_registry.h, chunks that a
/// checkpoint gives in restoring.h.
///
/// One thread. The caller's duties, for every frame of an authenticated connection:
///  1. check(header) before memory is taken for the payload. kProtocol: the frame breaks the
///     protocol; kUnavailable: too many frames wait for a commit. Drop the connection in both cases
///     (the client reconnects and sends again);
///  2. read the payload into take(header); an incomplete frame is dropped with its memory;
///  3. handle(header, payload, now). Answers come through `Answers`, now or later.
///
/// A kShared frame's payload is resolved by the caller: it comes without bytes and with
/// SharedBuffers of the chunk's size.
#pragma once

#include <set>
#include <vector>

#include "kvstore/server/held_frames.h"
#include "kvstore/server/key_registry.h"
#include "kvstore/server/pending.h"
#include "kvstore/server/restoring.h"
#include "kvstore/server/shard_rounds.h"

namespace dt::kv {

struct ShardOptions : RestoreOptions, ComputeOptions {
  bool is_registrar = false;  ///< The first server's loop 0: owns the key table and the barrier.
  std::size_t max_held_bytes = std::size_t{256} << 20;  ///< Bytes of frames of later generations.
  Duration hold_limit = std::chrono::seconds(30);
  PendingRequests::Limits pending;
};

class Shard {
 public:
  Shard(ShardOptions options, Answers& answers);
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  [[nodiscard]] Result<void> check(const data::Header& header);
  /// Uninitialised memory for the payload of a frame that check() let through.
  [[nodiscard]] Payload take(const data::Header& header) { return chunks_.take(header); }
  void handle(const data::Header& header, Payload payload, Time now, SharedBuffers shared = {});
  /// A request that came to another loop; it is refused if check() fails.
  void handle_unchecked(const data::Header& header, Payload payload, Time now);
  /// The value of the frame's chunk; null: there is no such chunk.
  [[nodiscard]] const ChunkValue* value_of(const data::Header& header) {
    return chunks_.value_of(header);
  }
  /// Changes the contributor set; kStale: the commit was refused.
  /// `saved`, if given, becomes the state when the commit is applied: all earlier rounds are in it,
  /// and no later ones.
  Members::Applied commit(const ServerCommit& commit, Time now, SavedLoop* saved = nullptr);
  /// The worker's connection ended. Its pending requests are answered only when it sends them
  /// again: an answer to the old one would change memory that the worker may have reused since. Its
  /// contributions in shared memory are copied, for the same reason. So call this before the
  /// connection is closed on this side: the close signals a waiting worker that its memory is not
  /// used any more.
  void disconnect(WorkerId worker);
  /// Refuses requests that were held for too long. To be called about once a second.
  void expire(Time now);
  [[nodiscard]] const Members& members() const { return members_; }
  /// Adds the workers that open rounds and the barrier wait for, and those that wait there for
  /// others. Checks only a few rounds for the former: if nothing moves, each of them waits for a
  /// worker that hangs.
  void add_debts(std::set<WorkerId>& owing, std::set<WorkerId>& waiting) const {
    rounds_.add_debts(pending_, owing, waiting);
  }
  /// The waits of members in this shard: at most kMostWaits, one for each key. It costs more than
  /// add_debts(): for when nothing moves.
  [[nodiscard]] std::vector<WaitingFor> waits() const { return rounds_.waits(pending_); }
  /// Since the last call.
  [[nodiscard]] LateRounds take_late() { return rounds_.take_late(); }
  /// Elements of gradients that were infinite or NaN.
  [[nodiscard]] std::uint64_t nonfinite() const { return context_.nonfinite; }
  /// Contributions that were read in the device memory of their worker.
  [[nodiscard]] std::uint64_t in_place() const { return context_.in_place; }
  /// Requests refused because their worker is not a member.
  [[nodiscard]] std::uint64_t fenced() const { return context_.fenced; }

 private:
  void on_register(const data::Header& header, Payload payload);
  void on_init(const data::Header& header, Payload payload);
  void on_finish(const data::Header& header);
  void on_barrier(const data::Header& header);
  void on_set_optimizer(const data::Header& header, Payload payload);
  void on_sync(const data::Header& header);
  [[nodiscard]] bool is_early(const data::Header& header) const;
  /// Completes what is due after the members or what they have finished has changed.
  void recheck(bool epoch_ends);
  /// Keeps a request until another worker has created its key, chunk or optimizer, or refuses it.
  void park(const data::Header& header, Payload payload);
  void retry(std::vector<PendingRequests::Frame> frames);

  ShardOptions options_;
  Answers& answers_;
  Members members_;
  ShardContext context_;
  Chunks chunks_;
  Restoring restoring_;
  Rounds rounds_;
  KeyRegistry keys_;
  WorkerId optimizer_by_;
  PendingRequests pending_;  ///< A commit may change which worker creates them.
  HeldFrames held_;
};

}  // namespace dt::kv
