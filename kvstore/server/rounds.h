/// The rules of rounds: which contribution is admitted and when a round is complete. Pure: worker
/// ids and numbers in, decisions out; no payload, clock, socket or thread. The arithmetic is in
/// chunk_value.h and round_sum.h, the frames are in shard_rounds.h.
///
///            contribution of a member, round == open
///     open(r) ------------------------------------------> open(r), one more counted
///        |  every contributor has contributed or finished, and one has contributed
///        `-> complete: apply, answer, open(r + 1)
///
/// Only a commit changes the contributor set. A contribution that was counted stays counted, even
/// when a commit removes its worker before the round completes.
#pragma once

#include <algorithm>
#include <boost/container/flat_map.hpp>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/base/id.h"
#include "core/protocol/control_messages.h"

namespace dt::kv {

/// The present contributors, and which of them have finished the epoch. One per server loop.
class Members {
 public:
  enum class Applied : std::uint8_t {
    kYes,
    kBoundary,  ///< Applied, and contributors had finished the epoch that it ends.
    kSame,      ///< Already known: acknowledge again.
    kStale,     ///< A lower (term, generation): refuse.
  };

  /// Adopts a commit. Afterwards, at a boundary: complete every round with a contribution (all
  /// remaining contributors have finished), then begin_epoch(). Else: re-check every open round,
  /// then clear_if_all_finished().
  ///
  /// It is a boundary if a finish mark is of an earlier epoch than the commit. The last commit's
  /// epoch does not decide it: an epoch may begin without a commit, and commits may be missed.
  Applied apply(const ServerCommit& commit);
  [[nodiscard]] bool contains(WorkerId worker) const {
    return std::binary_search(sorted_.begin(), sorted_.end(), worker);
  }
  /// True for the contributor that gives initial values.
  [[nodiscard]] bool is_first(WorkerId worker) const {
    return !contributors_.empty() && contributors_.front() == worker;
  }
  /// What a worker has finished of the epoch: all of it, or its steps, after which auxiliary keys
  /// still come.
  enum class Part : std::uint8_t { kEpoch, kSteps };
  [[nodiscard]] bool is_finished(WorkerId worker, Part part = Part::kEpoch) const;
  /// The number of workers that have finished it.
  [[nodiscard]] std::size_t finished(Part part = Part::kEpoch) const { return marks(part).size(); }
  [[nodiscard]] Generation generation() const { return generation_; }
  /// In rank order.
  [[nodiscard]] const std::vector<WorkerId>& contributors() const { return contributors_; }
  /// The workers that the last commit removed. Ids are never reused.
  [[nodiscard]] const std::vector<WorkerId>& departed() const { return departed_; }

  /// The worker's last round before epoch `next`, or of the steps before it, was sent. `phase`: the
  /// number of epochs that all contributors had finished when the worker asked; a request with an
  /// older one was handled before and changes nothing. True if something changed: re-check every
  /// open round, then clear_if_all_finished().
  bool finish(WorkerId worker, std::uint64_t phase, Epoch next, Part part = Part::kEpoch);
  /// When every contributor has finished, the next epoch may begin: forgets the marks.
  void clear_if_all_finished();
  void begin_epoch();
  [[nodiscard]] std::uint64_t phase() const { return phase_; }

 private:
  /// Workers, each with the epoch that it goes on to.
  using Marks = std::vector<std::pair<WorkerId, Epoch>>;
  [[nodiscard]] const Marks& marks(Part part) const {
    return part == Part::kEpoch ? finished_ : stepped_;
  }

  Term term_;
  Generation generation_;
  std::vector<WorkerId> contributors_;
  std::vector<WorkerId> sorted_;    ///< The contributors.
  std::vector<WorkerId> departed_;  ///< Removed by the last commit.
  Marks finished_;
  Marks stepped_;  ///< Includes those in finished_.
  std::uint64_t phase_ = 0;
};

/// What the server does with a contribution.
enum class Admission : std::uint8_t {
  kCounted,
  kDuplicate,  ///< Counted before, its round is still open: drop, answer when it completes.
  kPast,       ///< Counted before, its round is complete: drop, answer now.
  kHeld,       ///< Its generation is not learnt yet: keep it until the commit or a deadline.
  kFenced,     ///< Not a member: refuse, change nothing.
  kMissed,     ///< Its round completed without it (the worker had finished, or did not apply the
               ///< commit).
  kAhead,      ///< A number that is not due yet: the sender missed the rounds, or skips one.
};

/// The rounds of one chunk (or of the barrier).
class RoundMachine {
 public:
  /// Rounds do not wait for workers that have finished `until`.
  explicit RoundMachine(Members::Part until = Members::Part::kEpoch) : until_(until) {}

  /// For synchronous types.
  Admission admit(const Members& members, WorkerId worker, Generation generation, Round round);
  /// For dist_async: `push` is the worker's own count of pushes to this chunk. It increases by one
  /// from any start, and is independent of the rounds.
  Admission admit_async(const Members& members, WorkerId worker, Generation generation, Round push);
  [[nodiscard]] bool is_complete(const Members& members) const;
  /// The lowest id among the workers that the open round may still count.
  [[nodiscard]] std::optional<WorkerId> lowest_missing(const Members& members) const;
  /// Adds the contributors that the open round waits for; none if no worker has contributed.
  void add_missing(const Members& members, std::set<WorkerId>& into) const;
  /// Forgets workers that are no longer members; their counted contributions stay counted.
  void forget(const std::vector<WorkerId>& workers);
  /// The number of entries kept for workers.
  [[nodiscard]] std::size_t remembered() const { return rounds_.size() + pushes_.size(); }
  /// The open round was applied; the next one opens.
  void advance();
  [[nodiscard]] Round open() const { return open_; }
  /// Workers counted in the open round, departed ones included.
  [[nodiscard]] std::size_t counted() const { return counted_; }

 private:
  /// Each worker's latest number; 0, which no round has, for a worker without one.
  using ByWorker = boost::container::flat_map<WorkerId, Round>;
  [[nodiscard]] static Round latest_of(const ByWorker& numbers, WorkerId worker) {
    const auto latest = numbers.find(worker);
    return latest == numbers.end() ? Round() : latest->second;
  }
  [[nodiscard]] bool has_counted(WorkerId worker, Round round) const {
    return latest_of(rounds_, worker) >= round;
  }
  /// Whether the open round waits for the contributor.
  [[nodiscard]] bool is_missing(const Members& members, WorkerId worker) const {
    return !members.is_finished(worker, until_) && !has_counted(worker, open_);
  }

  Members::Part until_;
  Round open_{1};
  std::size_t counted_ = 0;
  ByWorker rounds_;  ///< Last counted rounds.
  ByWorker pushes_;  ///< Last asynchronous pushes.
};

}  // namespace dt::kv
