/// What one server loop knows and does: its keys and chunks, who may contribute, when a round is
/// complete. Frames in, answers out; no socket, thread or clock, so tests drive it frame by frame.
/// The arithmetic of a chunk's rounds is in chunk_value.h, their rules are in rounds.h.
///
/// One thread. The caller's part, for every frame of an authenticated connection:
///  1. check(header) before memory is taken for the payload. kProtocol: nobody may say that;
///     kUnavailable: not now, too much is waiting for a commit. Drop the connection in both cases
///     (the client comes back and sends again);
///  2. read the payload into take(header); a frame that is torn is dropped with its memory;
///  3. handle(header, payload, now). Answers come through `Answers`, now or later.
///
/// A kShared frame's payload is resolved by the caller: it comes without bytes and with
/// SharedBuffers of the chunk's size.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/id.h"
#include "core/base/result.h"
#include "core/base/time.h"
#include "core/protocol/control_messages.h"
#include "kvstore/compute/payload.h"
#include "kvstore/protocol/messages.h"
#include "kvstore/server/chunk_value.h"
#include "kvstore/server/pending.h"
#include "kvstore/server/rounds.h"

namespace dt::kv {

/// Where answers go. A worker without a connection gets none: it asks again when it is back.
class Answers {
 public:
  virtual ~Answers() = default;
  virtual void answer(WorkerId to, const data::Header& header,
                      std::shared_ptr<const Payload> payload) = 0;
};

struct ShardOptions {
  bool is_registrar = false;  ///< The first server's loop 0: owns the key table and the barrier.
  /// Contributions of a round are kept and summed in worker id order when it completes: its bits
  /// then do not depend on who was first. Otherwise each is added as it arrives.
  bool deterministic = false;
  /// A contribution with infinite or NaN elements is an error; otherwise they are counted.
  bool refuse_nonfinite = false;
  std::size_t max_held_bytes = std::size_t{256} << 20;  ///< Of frames of generations to come.
  /// What keys and chunks begin with that are in it, whoever creates them; null: nothing.
  std::shared_ptr<const Checkpoint> restore;
  /// Does the work on another thread, in the order of the calls, then what it returns on the
  /// shard's; none: both at once. For reading `restore`.
  std::function<void(std::function<std::function<void()>()> work)> offload;
  /// On the shard's thread, maybe again and again: a part of `restore` cannot be read, and who
  /// asked for it gets no answer. None: that is refused.
  std::function<void(std::string why)> on_damage;
  /// Where chunks have their memory; null: in the host's.
  std::shared_ptr<DeviceEngine> device;
  /// On the shard's thread, maybe again and again: the device computes no more, nor is anything
  /// answered that it should have computed.
  std::function<void(std::string why)> on_device_lost;
  Duration hold_limit = std::chrono::seconds(30);
  Parking::Limits parking;
};

class Shard {
 public:
  Shard(ShardOptions options, Answers& answers);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  [[nodiscard]] Result<void> check(const data::Header& header);
  /// Uninitialised memory for the payload of a frame that check() let through.
  [[nodiscard]] Payload take(const data::Header& header);
  void handle(const data::Header& header, Payload payload, Time now, SharedBuffers shared = {});
  /// A request that came to another loop: what check() does not let through is refused.
  void handle_unchecked(const data::Header& header, Payload payload, Time now);
  /// The bytes of the chunk that a frame is about; 0: there is none.
  [[nodiscard]] std::size_t chunk_bytes(const data::Header& header);
  /// Whether a device computes it.
  [[nodiscard]] bool is_on_device(const data::Header& header);
  /// The contributor set changes; kStale says that the commit was refused.
  /// `saved`, if given, becomes what is there when the commit is adopted: every earlier round is in
  /// it, nothing of the later ones.
  Members::Adopted commit(const ServerCommit& commit, Time now, SavedLoop* saved = nullptr);
  /// The worker's connection ended. What it asked there is answered when it asks again, not before:
  /// the answer to a repetition would change memory that the worker has got back meanwhile. What it
  /// contributed from shared memory is copied, for the same reason; so call this before the
  /// connection is closed on this side, which tells a worker that waits for it that nothing of its
  /// memory is used any more.
  void disconnect(WorkerId worker);
  /// Refuses what was held for too long. To be called about once a second.
  void expire(Time now);
  [[nodiscard]] const Members& members() const { return members_; }
  /// Adds whom open rounds and the barrier wait for, and who waits there for others. Of the rounds
  /// a few are looked at: where nothing moves, each of them waits for somebody who hangs.
  void add_debts(std::set<WorkerId>& owing, std::set<WorkerId>& waiting) const;
  /// Elements of gradients that were infinite or NaN.
  [[nodiscard]] std::uint64_t nonfinite() const { return bench_.nonfinite; }
  /// Contributions that were read in the device memory of their worker.
  [[nodiscard]] std::uint64_t in_place() const { return bench_.in_place; }
  /// Requests refused because their worker is not a member.
  [[nodiscard]] std::uint64_t fenced() const { return fenced_; }

 private:
  /// A request that the open round will answer.
  struct Waiting {
    data::Header header;
    SharedBuffers shared;
  };
  /// A contribution that counts as one without samples, and what its sender is told. Of an
  /// asynchronous push: it was not applied, and its number is used up.
  struct Refused {
    WorkerId worker;
    Round round;
    std::string why;
    data::Code code = data::Code::kNonfinite;
  };
  struct Chunk {
    ChunkValue value;
    RoundMachine rounds;
    // The open round:
    std::size_t open_at = 0;  ///< Where in open_.
    std::vector<Waiting> waiting;
    std::optional<std::pair<Round, std::string>> failed;  ///< The last round, if it failed.
    /// Of this round and the last one; of asynchronous pushes, each worker's last one.
    std::vector<Refused> refused;
  };
  struct Held {
    data::Header header;
    Payload payload;
    SharedBuffers shared;
  };
  using ChunkKey = std::uint64_t;  ///< KeyId in the high half, chunk in the low half.

  void on_register(const data::Header& header, Payload payload);
  void on_init(const data::Header& header, Payload payload);
  void restore_chunk(const data::Header& header);
  void on_restored(const data::Header& asked, Result<RestoredSlice> slice);
  [[nodiscard]] SavedLoop save();
  /// Moves what a checkpoint keeps of the device's memory to the host's; false: it keeps nothing.
  bool make_room();
  /// The chunk is there and its sender is answered, if the device has taken it; else it is refused.
  bool add_chunk(const data::Header& header, ChunkValue value);
  Chunk& keep_chunk(const data::Header& header, ChunkValue value);
  /// Whether the device is gone: then nothing is answered any more.
  bool has_lost_device();
  void on_push(const data::Header& header, Payload payload, SharedBuffers shared);
  void on_pull(const data::Header& header, const SharedBuffers& shared);
  void on_finish(const data::Header& header);
  void on_barrier(const data::Header& header);
  void on_set_optimizer(const data::Header& header, Payload payload);
  void on_sync(const data::Header& header);
  void on_async_push(Chunk& chunk, const data::Header& header, Payload payload,
                     const SharedBuffers& shared);
  [[nodiscard]] static const Refused* find_refused(const Chunk& chunk, const data::Header& header);
  static void wait_for_round(Chunk& chunk, const data::Header& header, const SharedBuffers& shared);
  void complete(Chunk& chunk);
  [[nodiscard]] bool is_early(const data::Header& header) const;
  void hold(Time deadline, Held frame);
  /// Whether the result of a complete round is no more to be had.
  [[nodiscard]] bool is_gone(const Chunk& chunk, Round round) const;
  void open(Chunk& chunk);
  void close(Chunk& chunk);
  void recheck(bool epoch_ends);
  /// Keeps a request until another worker has created what it is about, or refuses it.
  void park(const data::Header& header, Payload payload);
  void retry(std::vector<Parking::Frame> frames);
  void answer(const data::Header& to, data::Type type, std::shared_ptr<const Payload> payload = {});
  void answer_value(const data::Header& to, const SharedBuffers& shared, Chunk& chunk,
                    bool is_there);
  void refuse(const data::Header& to, data::Code code, std::string message);
  void admission_failed(const data::Header& to, Admission why, const RoundMachine& rounds);
  Chunk* find(const data::Header& header);

  ShardOptions options_;
  Answers& answers_;
  Members members_;
  Workbench bench_;
  std::unordered_map<ChunkKey, Chunk> chunks_;
  ChunkKey last_key_ = 0;  ///< Of last_found_.
  Chunk* last_found_ = nullptr;
  /// Who waits for chunks that are being read from `restore`.
  std::unordered_map<ChunkKey, std::vector<data::Header>> restoring_;
  std::vector<Chunk*> open_;        ///< Those whose open round somebody has contributed to.
  std::vector<Waiting> answering_;  ///< Scratch of complete().
  std::vector<std::byte*> places_;  ///< Scratch of complete().
  RoundMachine barrier_;
  std::vector<data::Header> at_barrier_;

  std::vector<data::KeySpec> keys_;  ///< The key table, by KeyId.
  std::unordered_map<std::string, std::size_t> key_index_;
  std::size_t table_bytes_ = 0;   ///< Of a KeyTable with all of them, about.
  std::size_t table_chunks_ = 0;  ///< Of all of them, in chunks of the usual size.

  WorkerId optimizer_by_;
  /// What the last checkpoint keeps of the device's memory, as long as it is kept.
  std::vector<std::weak_ptr<const Payload>> saved_;
  std::weak_ptr<std::mutex> saved_guard_;

  Parking parking_;                          ///< A commit may change who is to create what.
  std::vector<std::pair<Time, Held>> held_;  ///< Wait for a generation.
  std::size_t held_bytes_ = 0;
  std::uint64_t fenced_ = 0;
};

}  // namespace dt::kv
