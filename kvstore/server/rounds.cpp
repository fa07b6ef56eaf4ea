#include "kvstore/server/rounds.h"

#include <algorithm>
#include <iterator>

#include "core/base/result.h"

namespace dt::kv {

Members::Applied Members::apply(const ServerCommit& commit) {
  if (commit.term < term_ || commit.generation < generation_) return Applied::kStale;
  term_ = commit.term;
  if (commit.generation == generation_) return Applied::kSame;
  const bool ends_epoch = std::ranges::any_of(
      stepped_, [&](Epoch next) { return next <= commit.epoch; }, &Marks::value_type::second);
  generation_ = commit.generation;
  contributors_ = commit.contributors;
  departed_.clear();
  std::vector<WorkerId> sorted = contributors_;
  std::sort(sorted.begin(), sorted.end());
  std::set_difference(sorted_.begin(), sorted_.end(), sorted.begin(), sorted.end(),
                      std::back_inserter(departed_));
  sorted_ = std::move(sorted);
  for (auto* marks : {&finished_, &stepped_})
    std::erase_if(*marks, [this](const auto& mark) { return !contains(mark.first); });
  return ends_epoch ? Applied::kBoundary : Applied::kYes;
}

bool Members::is_finished(WorkerId worker, Part part) const {
  return std::any_of(marks(part).begin(), marks(part).end(),
                     [worker](const auto& mark) { return mark.first == worker; });
}

bool Members::finish(WorkerId worker, std::uint64_t phase, Epoch next, Part part) {
  if (phase < phase_ || !contains(worker) || is_finished(worker, part)) return false;
  if (!is_finished(worker, Part::kSteps)) stepped_.emplace_back(worker, next);
  if (part == Part::kEpoch) finished_.emplace_back(worker, next);
  return true;
}

void Members::clear_if_all_finished() {
  const auto has_finished = [this](WorkerId worker) { return is_finished(worker); };
  if (!finished_.empty() && std::ranges::all_of(contributors_, has_finished)) begin_epoch();
}

void Members::begin_epoch() {
  if (stepped_.empty()) return;
  stepped_.clear();
  finished_.clear();
  ++phase_;
}

void RoundMachine::forget(const std::vector<WorkerId>& workers) {
  for (const WorkerId worker : workers) {
    rounds_.erase(worker);
    pushes_.erase(worker);
  }
}

Admission RoundMachine::admit(const Members& members, WorkerId worker, Generation generation,
                              Round round) {
  if (generation > members.generation()) return Admission::kHeld;
  if (!members.contains(worker)) return Admission::kFenced;
  if (round < open_) return has_counted(worker, round) ? Admission::kPast : Admission::kMissed;
  if (round > open_) return Admission::kAhead;
  if (has_counted(worker, round)) return Admission::kDuplicate;
  rounds_[worker] = round;
  ++counted_;
  return Admission::kCounted;
}

Admission RoundMachine::admit_async(const Members& members, WorkerId worker, Generation generation,
                                    Round push) {
  if (generation > members.generation()) return Admission::kHeld;
  if (!members.contains(worker)) return Admission::kFenced;
  const Round latest = latest_of(pushes_, worker);
  if (push <= latest) return Admission::kPast;
  if (latest != Round() && push != latest.next()) return Admission::kAhead;
  pushes_[worker] = push;
  return Admission::kCounted;
}

bool RoundMachine::is_complete(const Members& members) const {
  const auto& all = members.contributors();
  // The exact check is quadratic in the number of workers: not at each contribution.
  if (counted_ == 0 || counted_ + members.finished(until_) < all.size()) return false;
  return std::ranges::none_of(all, [&](WorkerId w) { return is_missing(members, w); });
}

std::optional<WorkerId> RoundMachine::lowest_missing(const Members& members) const {
  std::optional<WorkerId> lowest;
  for (const WorkerId worker : members.contributors()) {
    const bool is_lower = !lowest || worker < *lowest;
    if (is_lower && is_missing(members, worker)) lowest = worker;
  }
  return lowest;
}

void RoundMachine::add_missing(const Members& members, std::set<WorkerId>& into) const {
  if (counted_ == 0) return;
  for (const WorkerId worker : members.contributors())
    if (is_missing(members, worker)) into.insert(worker);
}

void RoundMachine::advance() {
  DT_CHECK(counted_ > 0, "a round nobody contributed to cannot complete");
  open_ = open_.next();
  counted_ = 0;
}

}  // namespace dt::kv
