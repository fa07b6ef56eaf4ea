#include "core/hang.h"

#include <algorithm>

namespace dt {
namespace {

/// Reports come once a second. After a longer gap it is not known what happened in it.
constexpr Duration kFresh = std::chrono::seconds(5);
/// Beats come more often than reports.
constexpr Duration kStill = std::chrono::seconds(3);

}  // namespace

void HangWatch::signs_of_life(const std::vector<WorkerId>& alive,
                              const std::vector<WorkerId>& disconnected, Time now) {
  for (const WorkerId id : disconnected) alive_.erase(id);
  for (const WorkerId id : alive) alive_[id] = now;
}

void HangWatch::report(ServerId server, const Report& report, Time now) {
  Last& last = reports_[server];
  if (now - last.at > kFresh) stalling_.clear();
  last.at = now;
  last.owing = {report.owing.begin(), report.owing.end()};
  last.waiting = {report.waiting.begin(), report.waiting.end()};
  for (const WorkerId id : report.busy) stalling_.erase(id);
  std::set<WorkerId> debtors;
  for (const auto& [id, r] : reports_) debtors.insert(r.owing.begin(), r.owing.end());
  std::erase_if(debtors, [this](WorkerId id) { return waits(id); });
  std::erase_if(stalling_, [&debtors](const auto& s) { return debtors.count(s.first) == 0; });
  for (const WorkerId id : debtors) stalling_.emplace(id, now);
}

void HangWatch::progress(WorkerId worker, Epoch epoch, std::uint64_t step, Time now) {
  const auto [known, first] = positions_.try_emplace(worker, Position{epoch, step, now});
  if (!first && known->second.epoch == epoch && known->second.step == step) return;
  known->second = {epoch, step, now};
  if (const auto s = stalling_.find(worker); s != stalling_.end()) s->second = now;
}

void HangWatch::forget(WorkerId worker) {
  stalling_.erase(worker);
  alive_.erase(worker);
  positions_.erase(worker);
  for (auto& [id, r] : reports_) {
    r.owing.erase(worker);
    r.waiting.erase(worker);
  }
}

std::map<WorkerId, Time> HangWatch::standing_still(Time now) const {
  std::map<WorkerId, Time> out;
  for (const auto& [id, seen] : alive_)
    if (now - seen >= kStill) out.emplace(id, seen);
  return out;
}

void HangWatch::forget_servers() {
  reports_.clear();
  stalling_.clear();
}

bool HangWatch::waits(WorkerId worker) const {
  return std::any_of(reports_.begin(), reports_.end(),
                     [worker](const auto& r) { return r.second.waiting.count(worker) > 0; });
}

bool HangWatch::is_informed(std::size_t servers, Time now) const {
  return reports_.size() == servers &&
         std::all_of(reports_.begin(), reports_.end(),
                     [now](const auto& r) { return now - r.second.at <= kFresh; });
}

std::optional<Position> HangWatch::position(WorkerId worker) const {
  const auto it = positions_.find(worker);
  if (it == positions_.end()) return std::nullopt;
  return it->second;
}

}  // namespace dt
