#include "core/job/hang.h"

#include <algorithm>

namespace dt {
namespace {

/// Beats come more often than reports.
constexpr Duration kStill = std::chrono::seconds(3);

}  // namespace

void HangWatch::report(ServerId server, const Traffic& report, Time now) {
  for (const WorkerId id : report.disconnected) alive_.erase(id);
  for (const WorkerId id : report.alive) alive_[id] = now;
  reports_[server] = report;
}

bool HangWatch::progress(WorkerId worker, const Progress& at, Time now) {
  const Position* known = position(worker);
  if (known && known->epoch == at.epoch && known->step == at.step) return false;
  positions_[worker] = {at.epoch, at.step, now};
  return true;
}

void HangWatch::forget(WorkerId worker) {
  alive_.erase(worker);
  positions_.erase(worker);
  for (auto& [id, r] : reports_) {
    std::erase(r.owing, worker);
    std::erase(r.waiting, worker);
  }
}

std::set<WorkerId> HangWatch::waited_for() const {
  std::set<WorkerId> debtors;
  for (const auto& [id, r] : reports_) debtors.insert(r.owing.begin(), r.owing.end());
  for (const auto& [id, r] : reports_)
    for (const WorkerId waiting : r.waiting) debtors.erase(waiting);
  return debtors;
}

std::set<WorkerId> HangWatch::standing_still(Time now) const {
  std::set<WorkerId> out;
  for (const auto& [id, seen] : alive_)
    if (now - seen >= kStill) out.insert(id);
  return out;
}

bool HangWatch::waits(WorkerId worker) const {
  return std::ranges::any_of(
      reports_, [&](const auto& r) { return std::ranges::count(r.second.waiting, worker) > 0; });
}

}  // namespace dt
