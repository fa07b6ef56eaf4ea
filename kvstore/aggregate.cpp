#include "kvstore/aggregate.h"

#include <algorithm>

#include "core/result.h"

namespace dt::kv {

namespace {

bool holds(const std::vector<WorkerId>& list, WorkerId worker) {
  return std::find(list.begin(), list.end(), worker) != list.end();
}

}  // namespace

Members::Adopted Members::adopt(const ServerCommit& commit) {
  if (commit.term < term_ || commit.generation < generation_) return Adopted::kStale;
  term_ = commit.term;
  if (commit.generation == generation_) return Adopted::kSame;
  generation_ = commit.generation;
  contributors_ = commit.contributors;
  std::erase_if(finished_, [this](WorkerId w) { return !holds(contributors_, w); });
  return Adopted::kYes;
}

bool Members::contains(WorkerId worker) const { return holds(contributors_, worker); }

bool Members::is_first(WorkerId worker) const {
  return !contributors_.empty() && contributors_.front() == worker;
}

bool Members::is_finished(WorkerId worker) const { return holds(finished_, worker); }

bool Members::finish(WorkerId worker, std::uint64_t phase) {
  if (phase < phase_ || !contains(worker) || is_finished(worker)) return false;
  finished_.push_back(worker);
  return true;
}

void Members::clear_if_all_finished() {
  if (finished_.empty()) return;
  const bool all = std::all_of(contributors_.begin(), contributors_.end(),
                               [this](WorkerId w) { return is_finished(w); });
  if (all) begin_epoch();
}

void Members::begin_epoch() {
  if (finished_.empty()) return;
  finished_.clear();
  ++phase_;
}

Round RoundMachine::Latest::of(WorkerId worker) const {
  const auto it =
      std::find_if(all_.begin(), all_.end(), [&](const auto& e) { return e.first == worker; });
  return it == all_.end() ? Round() : it->second;
}

void RoundMachine::Latest::set(WorkerId worker, Round round) {
  for (auto& [known, latest] : all_) {
    if (known != worker) continue;
    latest = round;
    return;
  }
  all_.emplace_back(worker, round);
}

Admission RoundMachine::admit(const Members& members, WorkerId worker, Generation generation,
                              Round round) {
  if (generation > members.generation()) return Admission::kHeld;
  if (!members.contains(worker)) return Admission::kFenced;
  if (round < open_) return has_counted(worker, round) ? Admission::kPast : Admission::kMissed;
  if (round > open_) return Admission::kAhead;
  if (has_counted(worker, round)) return Admission::kDuplicate;
  rounds_.set(worker, round);
  ++counted_;
  return Admission::kCounted;
}

Admission RoundMachine::admit_async(const Members& members, WorkerId worker, Generation generation,
                                    Round push) {
  if (generation > members.generation()) return Admission::kHeld;
  if (!members.contains(worker)) return Admission::kFenced;
  const Round latest = pushes_.of(worker);
  if (push <= latest) return Admission::kPast;
  if (latest != Round() && push != latest.next()) return Admission::kAhead;
  pushes_.set(worker, push);
  return Admission::kCounted;
}

bool RoundMachine::is_complete(const Members& members) const {
  const auto& all = members.contributors();
  // The exact check costs the square of the workers: not for each of their contributions.
  if (counted_ == 0 || counted_ + members.finished() < all.size()) return false;
  return std::all_of(all.begin(), all.end(),
                     [&](WorkerId w) { return members.is_finished(w) || has_counted(w, open_); });
}

void RoundMachine::add_missing(const Members& members, std::set<WorkerId>& into) const {
  if (counted_ == 0) return;
  for (const WorkerId worker : members.contributors())
    if (!members.is_finished(worker) && !has_counted(worker, open_)) into.insert(worker);
}

void RoundMachine::advance() {
  DT_CHECK(counted_ > 0, "a round nobody contributed to cannot complete");
  open_ = open_.next();
  counted_ = 0;
}

}  // namespace dt::kv
