/// The open rounds of a shard's chunks, and its barrier: from contributions to answers. Which one
/// counts and when a round is complete is in rounds.h, the arithmetic in chunk_value.h.
#pragma once

#include <algorithm>
#include <map>
#include <set>

#include "kvstore/server/chunks.h"
#include "kvstore/server/pending.h"

namespace dt::kv {

/// Completed rounds of chunks, and in how many of them a worker came last by far.
struct LateRounds {
  std::uint32_t rounds = 0;
  std::map<WorkerId, std::uint32_t> late;
  void add(const LateRounds& more) {
    rounds += more.rounds;
    for (const auto& [worker, count] : more.late) late[worker] += count;
  }
};

/// Leaves at most this many of the waits, which are in the order of workers: first one of each key.
inline constexpr std::size_t kMostWaits = 16;
void choose_waits(std::vector<WaitingFor>& waits);

class Rounds {
 public:
  /// Chunks that a call is given outlive this, too.
  Rounds(ShardContext& context, const Members& members, Answers& answers)
      : context_(context), members_(members), answers_(answers) {}

  void push(Chunk* to, const data::Header& header, Payload payload, SharedBuffers shared, Time now);
  void pull(Chunk* from, const data::Header& header, const SharedBuffers& shared) {
    if (from) return answer_value(*from, header, shared, false);
    answers_.refuse(header, data::Code::kInvalid, "pull of a chunk that was not created");
  }
  void enter_barrier(const data::Header& header);
  /// Completes the rounds for which nobody is missing any more, or all at an epoch's end.
  void recheck(bool epoch_ends);
  /// Shard::disconnect
  void disconnect(WorkerId worker);
  /// Forgets workers that are no longer members.
  void forget(const std::vector<WorkerId>& workers) { barrier_.forget(workers); }
  /// Whether no round of a parameter is open.
  [[nodiscard]] bool is_between_rounds() const {
    return std::ranges::none_of(open_, [](const Chunk* c) { return c->value.is_parameter(); });
  }
  /// Whether the first contributor waits at the barrier.
  [[nodiscard]] bool first_is_at_barrier() const {
    return std::ranges::any_of(at_barrier_,
                               [&](const auto& at) { return members_.is_first(at.worker); });
  }
  [[nodiscard]] Round barrier() const { return barrier_.open(); }
  /// Shard::add_debts
  void add_debts(const PendingRequests& pending, std::set<WorkerId>& owing,
                 std::set<WorkerId>& waiting) const;
  /// Shard::waits
  [[nodiscard]] std::vector<WaitingFor> waits(const PendingRequests& pending) const;
  /// Since the last call.
  [[nodiscard]] LateRounds take_late() { return std::exchange(late_, {}); }

 private:
  void async_push(Chunk& chunk, const data::Header& header, Payload payload,
                  const SharedBuffers& shared);
  /// The worker's contribution to the open round has arrived.
  void note_arrival(Chunk& chunk, WorkerId worker, bool is_last, Time now);
  void open(Chunk& chunk) {
    chunk.open_at = open_.size();
    open_.push_back(&chunk);
  }
  void close(Chunk& chunk) {
    open_.back()->open_at = chunk.open_at;
    open_[chunk.open_at] = open_.back();
    open_.pop_back();
  }
  void complete(Chunk& chunk);
  void complete_barrier(bool epoch_ends);
  /// Answers a contribution whose round is complete.
  void answer_push(Chunk& chunk, const data::Header& header, const SharedBuffers& shared,
                   bool is_there);
  /// Answers with the chunk's value: written to shared memory if the worker named a place there,
  /// else sent.
  void answer_value(Chunk& chunk, const data::Header& header, const SharedBuffers& shared,
                    bool is_there);
  void admission_failed(const data::Header& to, Admission why, const RoundMachine& rounds);
  /// Whether the push asks for the result of a complete round that is no longer available.
  [[nodiscard]] bool is_gone(const Chunk& chunk, const data::Header& push) const;
  /// Calls `f(header, rounds)` for each request that waits; null: for the first contributor.
  template <class F>
  void each_waiting(const PendingRequests& pending, F f) const;

  ShardContext& context_;
  const Members& members_;
  Answers& answers_;
  std::vector<Chunk*> open_;               ///< Chunks whose open round has a contribution.
  std::vector<Chunk::Waiting> answering_;  ///< Scratch of complete().
  std::vector<std::byte*> places_;         ///< Scratch of complete().
  RoundMachine barrier_;
  std::vector<data::Header> at_barrier_;
  LateRounds late_;
};

}  // namespace dt::kv
