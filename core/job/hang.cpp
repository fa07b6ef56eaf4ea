#include "core/job/hang.h"

#include <algorithm>

namespace dt {
namespace {

/// Beats come more often than reports.
constexpr Duration kStill = std::chrono::seconds(3);

}  // namespace

void HangWatch::signs_of_life(const std::vector<WorkerId>& alive,
                              const std::vector<WorkerId>& disconnected, Time now) {
  for (const WorkerId id : disconnected) alive_.erase(id);
  for (const WorkerId id : alive) alive_[id] = now;
}

void HangWatch::report(ServerId server, const Report& report) {
  Last& last = reports_[server];
  last.owing = {report.owing.begin(), report.owing.end()};
  last.waiting = {report.waiting.begin(), report.waiting.end()};
}

bool HangWatch::progress(WorkerId worker, Epoch epoch, std::uint64_t step, Time now) {
  const Position* known = position(worker);
  if (known && known->epoch == epoch && known->step == step) return false;
  positions_[worker] = {epoch, step, now};
  return true;
}

void HangWatch::forget(WorkerId worker) {
  alive_.erase(worker);
  positions_.erase(worker);
  for (auto& [id, r] : reports_) {
    r.owing.erase(worker);
    r.waiting.erase(worker);
  }
}

std::set<WorkerId> HangWatch::waited_for() const {
  std::set<WorkerId> debtors;
  for (const auto& [id, r] : reports_) debtors.insert(r.owing.begin(), r.owing.end());
  std::erase_if(debtors, [this](WorkerId id) { return waits(id); });
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
      reports_, [worker](const auto& r) { return r.second.waiting.count(worker) > 0; });
}

}  // namespace dt
