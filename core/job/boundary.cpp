#include "core/job/boundary.h"

#include <algorithm>

#include "core/base/lookup.h"

namespace dt {

void Boundary::begin(const std::vector<WorkerId>& members) {
  generation_ = Generation(1);
  members_ = members;
  contributors_ = members;
}

void Boundary::commit(const Committed& r) {
  generation_ = r.generation;
  contributors_ = r.contributors;
  if (!r.boundary) return;
  members_ = r.members;
  begin_epoch(r.epoch);
}

void Boundary::begin_epoch(Epoch epoch) {
  epoch_ = epoch;
  has_returned_ = returns_to_.has_value();
  returns_to_.reset();
  arrived_.clear();
  below_least_since_.reset();
}

void Boundary::roll_back(Generation generation, Epoch epoch) {
  generation_ = generation;
  returns_to_ = epoch;
  arrived_.clear();
  acked_.clear();
  below_least_since_.reset();
}

void Boundary::forget(WorkerId worker) {
  arrived_.erase(worker);
  unreleased_.erase(worker);
}

Boundary::Arrival Boundary::arrive(WorkerId worker, Epoch epoch) {
  if (returns_to_) {
    arrived_[worker] = *returns_to_;
    return Arrival::kCounted;
  }
  if (epoch_ && epoch == *epoch_) return Arrival::kReleased;
  if (epoch_ && epoch != epoch_->next()) return Arrival::kWrong;
  arrived_[worker] = epoch;
  return Arrival::kCounted;
}

void Boundary::acked(ServerId server, Generation generation) {
  auto& known = acked_[server];
  known = std::max(known, generation);
}

std::optional<Epoch> Boundary::complete() const {
  if (contributors_.empty() || !missing().empty() || odd_one()) return std::nullopt;
  return arrived_.at(contributors_.front());
}

std::optional<WorkerId> Boundary::odd_one() const {
  if (epoch_ || arrived_.empty()) return std::nullopt;
  for (const auto& [worker, epoch] : arrived_)
    if (epoch != arrived_.begin()->second) return worker;
  return std::nullopt;
}

std::vector<WorkerId> Boundary::missing() const {
  std::vector<WorkerId> out;
  for (const WorkerId id : contributors_)
    if (!arrived_.count(id)) out.push_back(id);
  return out;
}

bool Boundary::has_acked(ServerId server) const {
  const Generation* known = find_in(acked_, server);
  return known && *known >= generation_;
}

bool Boundary::contributes(WorkerId worker) const {
  return std::ranges::count(contributors_, worker) > 0;
}

std::optional<Rank> Boundary::rank_of(WorkerId worker) const {
  const auto it = std::ranges::find(members_, worker);
  if (it == members_.end()) return std::nullopt;
  return Rank(static_cast<std::uint32_t>(it - members_.begin()));
}

}  // namespace dt
