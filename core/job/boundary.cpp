#include "core/job/boundary.h"

#include <algorithm>

#include "core/base/lookup.h"

namespace dt {

void Boundary::begin(const std::vector<WorkerId>& members, Generation generation) {
  set_generation(generation);
  set_members(members);
  set_contributors(members);
}

void Boundary::commit(const Committed& r) {
  set_generation(r.generation);
  set_contributors(r.contributors);
  if (!r.boundary) return;
  set_members(r.members);
  begin_epoch(r.epoch);
}

void Boundary::begin_epoch(Epoch epoch) {
  epoch_ = epoch;
  has_returned_ = returns_to_.has_value();
  returns_to_.reset();
  forget_arrivals();
  below_least_since_.reset();
}

void Boundary::roll_back(Generation generation, Epoch epoch) {
  acked_.clear();
  set_generation(generation);
  returns_to_ = epoch;
  forget_arrivals();
  below_least_since_.reset();
}

void Boundary::forget(WorkerId worker) {
  forget_arrival(worker);
  unreleased_.erase(worker);
  has_lost_contributor_ = has_lost_contributor_ || contributes(worker);
}

Boundary::Arrival Boundary::arrive(WorkerId worker, Epoch epoch) {
  if (returns_to_) {
    note_arrival(worker, *returns_to_);
    return Arrival::kCounted;
  }
  if (epoch_ && epoch == *epoch_) return Arrival::kReleased;
  if (epoch_ && epoch != epoch_->next()) return Arrival::kWrong;
  note_arrival(worker, epoch);
  return Arrival::kCounted;
}

void Boundary::acked(ServerId server, Generation generation) {
  auto& known = acked_[server];
  acks_ += known < generation_ && generation >= generation_;
  known = std::max(known, generation);
}

std::optional<Epoch> Boundary::complete() const {
  if (contributors_.empty() || is_anyone_missing() || odd_one()) return std::nullopt;
  return arrived_.at(contributors_.front());
}

std::optional<WorkerId> Boundary::odd_one() const {
  if (epoch_ || arrived_at_.size() <= 1) return std::nullopt;
  for (const auto& [worker, epoch] : arrived_)
    if (epoch != arrived_.begin()->second) return worker;
  return std::nullopt;
}

std::vector<WorkerId> Boundary::missing() const {
  std::vector<WorkerId> out;
  if (!is_anyone_missing()) return out;
  for (const WorkerId id : contributors_)
    if (!arrived_.count(id)) out.push_back(id);
  return out;
}

bool Boundary::has_acked(ServerId server) const {
  const Generation* known = find_in(acked_, server);
  return known && *known >= generation_;
}

std::optional<Rank> Boundary::rank_of(WorkerId worker) const {
  const Rank* rank = find_in(ranks_, worker);
  return rank ? std::optional(*rank) : std::nullopt;
}

// ---------------------------------------------------------------- what is kept beside the state

void Boundary::set_members(const std::vector<WorkerId>& members) {
  members_ = members;
  ranks_.clear();
  for (std::uint32_t i = 0; i < members.size(); ++i) ranks_.emplace(members[i], Rank(i));
}

void Boundary::set_contributors(const std::vector<WorkerId>& contributors) {
  contributors_ = contributors;
  contributing_ = {contributors.begin(), contributors.end()};
  has_lost_contributor_ = false;
  missing_ = 0;
  for (const WorkerId id : contributors) missing_ += !arrived_.contains(id);
}

void Boundary::set_generation(Generation generation) {
  generation_ = generation;
  acks_ = 0;
  for (const auto& [server, known] : acked_) acks_ += known >= generation;
}

void Boundary::note_arrival(WorkerId worker, Epoch epoch) {
  forget_arrival(worker);
  arrived_.emplace(worker, epoch);
  ++arrived_at_[epoch];
  missing_ -= contributes(worker);
}

void Boundary::forget_arrival(WorkerId worker) {
  const auto it = arrived_.find(worker);
  if (it == arrived_.end()) return;
  const auto at = arrived_at_.find(it->second);
  if (--at->second == 0) arrived_at_.erase(at);
  arrived_.erase(it);
  missing_ += contributes(worker);
}

void Boundary::forget_arrivals() {
  arrived_.clear();
  arrived_at_.clear();
  missing_ = contributors_.size();
}

bool Boundary::index_holds() const {
  std::size_t missing = 0;
  for (const WorkerId id : contributors_) missing += !arrived_.contains(id);
  std::size_t acks = 0;
  for (const auto& [server, known] : acked_) acks += known >= generation_;
  std::map<Epoch, std::size_t> arrived_at;
  for (const auto& [worker, epoch] : arrived_) ++arrived_at[epoch];
  std::unordered_map<WorkerId, Rank> ranks;
  for (const WorkerId id : members_)
    ranks.emplace(id, Rank(static_cast<std::uint32_t>(ranks.size())));
  return missing == missing_ && acks == acks_ && arrived_at == arrived_at_ && ranks == ranks_ &&
         contributing_ == std::unordered_set(contributors_.begin(), contributors_.end());
}

}  // namespace dt
