#include "kvstore/worker/member_state.h"

#include <algorithm>
#include <utility>

namespace dt::kv {

MemberState::MemberState(const ClientOptions& start)
    : worker_(start.worker),
      generation_(start.newcomer ? 0 : 1),
      is_member_(!start.newcomer),
      is_lead_(!start.newcomer && start.rank == Rank(0)) {
  view_.generation = generation();
  view_.rank = start.rank;
  view_.num_workers = start.num_workers;
}

void MemberState::on_release(const Release& release) {
  std::lock_guard lock(mutex_);
  if (release.verdict == Verdict::kLeave) {
    must_leave_ = true;
    return;
  }
  if (!arriving_ || release_) return;  // a repetition of an answer already taken
  const bool is_of_an_earlier_arrival = !arriving_->join && last_released_ &&
                                        release.epoch <= *last_released_ &&
                                        release.epoch < arriving_->epoch;
  const bool is_of_earlier_servers = release.generation < arriving_->servers;
  if (!is_of_an_earlier_arrival && !is_of_earlier_servers) release_ = release;
}

void MemberState::on_shrunk(const Shrunk& shrunk) {
  std::lock_guard lock(mutex_);
  if (shrunk.generation < view_.generation) return;
  view_.generation = shrunk.generation;
  is_lead_ = shrunk.lead == worker_;
}

void MemberState::on_lost(Error error) {
  std::lock_guard lock(mutex_);
  lost_ = std::move(error);
}

Arrive MemberState::arrive(Epoch epoch, Generation servers) {
  std::lock_guard lock(mutex_);
  release_.reset();
  return arriving_.emplace(Arrive{epoch, !is_member_, servers});
}

bool MemberState::is_answered() const {
  std::lock_guard lock(mutex_);
  return release_ || must_leave_;
}

std::optional<View> MemberState::leave_boundary() {
  std::lock_guard lock(mutex_);
  arriving_.reset();
  const auto release = std::exchange(release_, std::nullopt);
  if (!release || must_leave_) return std::nullopt;
  const bool is_changed =
      !is_member_ || view_.rank != release->rank || view_.num_workers != release->world_size;
  is_member_ = true;
  view_.rank = release->rank;
  view_.num_workers = release->world_size;
  view_.epoch = release->epoch;
  last_released_ = release->epoch;
  generation_ = std::max(generation(), release->generation).value;
  if (release->generation >= view_.generation) {  // else a later Shrunk has set is_lead_
    view_.generation = release->generation;
    is_lead_ = release->rank == Rank(0);
  }
  View released = view_;
  released.generation = release->generation;
  released.changed = is_changed;
  released.rolled_back = release->verdict == Verdict::kRollback;
  return released;
}

}  // namespace dt::kv
