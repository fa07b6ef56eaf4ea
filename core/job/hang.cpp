#include "core/job/hang.h"

namespace dt {
namespace {

/// Beats come more often than reports.
constexpr Duration kStill = std::chrono::seconds(3);

}  // namespace

void HangWatch::report(ServerId server, const Traffic& report, Time now) {
  for (const WorkerId id : report.disconnected)
    if (Seen* seen = seen_.find(id)) seen->alive.reset();
  for (const WorkerId id : report.alive) seen_[id].alive = now;
  Traffic& last = reports_[server];
  count(last, ~std::uint32_t{0});
  last = report;
  count(last, 1);
}

void HangWatch::expect(WorkerId worker, Time now) {
  Seen& seen = seen_[worker];
  if (!seen.alive && seen.away_from == 0) seen.alive = now;
}

void HangWatch::count(const Traffic& report, std::uint32_t by) {
  for (const WorkerId id : report.owing) seen_[id].owed_to += by;
  for (const WorkerId id : report.waiting) seen_[id].waits_at += by;
  for (const WorkerId id : report.disconnected) seen_[id].away_from += by;
}

void HangWatch::figures(WorkerId worker, const Figures& figures) {
  Seen& seen = seen_[worker];
  seen.waits_key = figures.waits_key;
  seen.waits_in = figures.waits_in;
}

bool HangWatch::progress(WorkerId worker, const Progress& at, Time now) {
  const Position* known = position(worker);
  if (known && known->epoch == at.epoch && known->step == at.step) return false;
  positions_[worker] = {at.epoch, at.step, now};
  return true;
}

void HangWatch::forget(WorkerId worker) {
  positions_.erase(worker);
  seen_[worker].is_gone = true;
}

void HangWatch::forget_servers() {
  reports_.clear();
  seen_.each([](WorkerId, Seen& seen) { seen.owed_to = seen.waits_at = seen.away_from = 0; });
}

std::set<WorkerId> HangWatch::waited_for() const {
  std::set<WorkerId> out;
  seen_.each([&out](WorkerId id, const Seen& seen) {
    if (seen.owed_to > 0 && seen.waits_at == 0 && !seen.is_gone) out.insert(out.end(), id);
  });
  return out;
}

std::set<WorkerId> HangWatch::standing_still(Time now) const {
  std::set<WorkerId> out;
  seen_.each([&](WorkerId id, const Seen& seen) {
    if (seen.alive && now - *seen.alive >= kStill && !seen.is_gone) out.insert(out.end(), id);
  });
  return out;
}

bool HangWatch::waits(WorkerId worker) const {
  const Seen* seen = seen_.find(worker);
  return seen && seen->waits_at > 0 && !seen->is_gone;
}

bool HangWatch::is_alive(WorkerId worker, Time now) const {
  const Seen* seen = seen_.find(worker);
  return seen && seen->away_from == 0 && seen->alive && now - *seen->alive < kStill;
}

const WaitingFor* HangWatch::wait_of(WorkerId worker) const {
  const WaitingFor* found = nullptr;
  for (const auto& [server, report] : reports_)
    for (const WaitingFor& at : report.waits)
      if (at.worker == worker && (!found || at.key < found->key)) found = &at;
  return found;
}

std::string HangWatch::name_of(const WaitingFor& at) const {
  const Seen* seen = seen_.find(at.worker);
  if (seen && !seen->waits_in.empty() && seen->waits_key == at.key) return seen->waits_in;
  return at.key == WaitingFor::kNoKey ? "a call" : fmt::format("key {}", at.key);
}

bool HangWatch::index_holds() const {
  HangWatch counted_again;
  for (const auto& [server, report] : reports_) counted_again.count(report, 1);
  bool holds = true;
  seen_.each([&](WorkerId id, const Seen& seen) {
    const Seen& counted = counted_again.seen_[id];
    holds = holds && counted.owed_to == seen.owed_to && counted.waits_at == seen.waits_at &&
            counted.away_from == seen.away_from;
  });
  return holds;
}

}  // namespace dt
