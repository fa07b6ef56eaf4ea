#include "supervisor/control/pace.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace dt::supervisor {
namespace {

constexpr Duration kWindow = std::chrono::seconds(10);
constexpr Duration kAgain = std::chrono::seconds(1);
/// A window with fewer steps goes on.
constexpr std::uint64_t kLeastSteps = 8;
/// The slow one comes last in this share of the rounds.
constexpr double kOften = 0.75;
/// Its own work is at least so many times that of the others.
constexpr double kMuch = 1.2;

Duration median(std::vector<Duration> all) {
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::ranges::nth_element(all, middle);
  return *middle;
}

}  // namespace

std::string Pace::Slowest::text() const {
  return fmt::format("slowest: {:.3g} ms of own work a step, the others {:.3g} ms",
                     seconds(own) * 1e3, seconds(others) * 1e3);
}

void Pace::figures(WorkerId worker, const Figures& figures, Time now) {
  latest_[worker] = {now, figures.waited_ns, figures.steps};
  if (window_) window_->first.try_emplace(worker, latest_[worker]);
}

void Pace::report(const Traffic& report) {
  if (!window_) return;
  window_->rounds += report.rounds;
  if (report.late_rounds > 0) window_->late[report.latest] += report.late_rounds;
}

void Pace::restart() {
  window_.reset();
  shares_.clear();
  slowest_.reset();
  balance_.reset();
}

bool Pace::tick(const std::vector<WorkerId>& members, Time now) {
  if (!window_) window_ = Window{now + kWindow, {}, {}, 0};
  if (now < window_->due) return false;
  window_->due = now + kAgain;
  std::map<WorkerId, Share> shares;
  for (const WorkerId id : members) {
    const Mark* first = find_in(window_->first, id);
    const Mark& last = latest_[id];
    if (!first || last.steps < first->steps + kLeastSteps || last.at <= first->at) return false;
    const Duration all = last.at - first->at;
    const Duration waited(static_cast<Duration::rep>(last.waited_ns - first->waited_ns));
    shares[id] = {
        std::max(all - waited, Duration{}) / static_cast<Duration::rep>(last.steps - first->steps),
        std::clamp(seconds(waited) / seconds(all), 0.0, 1.0)};
  }
  shares_ = std::move(shares);
  judge();
  window_ = Window{now + kWindow, {}, {}, 0};
  for (const WorkerId id : members) window_->first[id] = latest_[id];
  std::erase_if(latest_, [this](const auto& one) { return !shares_.contains(one.first); });
  return true;
}

void Pace::judge() {
  slowest_.reset();
  balance_.reset();
  if (shares_.empty()) return;
  double waits = 0;
  for (const auto& [id, share] : shares_) waits += share.waits;
  balance_ = 1 - waits / static_cast<double>(shares_.size());
  const auto late =
      std::ranges::max_element(window_->late, {}, [](const auto& one) { return one.second; });
  if (late == window_->late.end() || !shares_.contains(late->first)) return;
  if (static_cast<double>(late->second) < kOften * static_cast<double>(window_->rounds)) return;
  std::vector<Duration> others;
  for (const auto& [id, share] : shares_)
    if (id != late->first) others.push_back(share.own);
  if (others.empty()) return;
  const Slowest found{late->first, shares_.at(late->first).own, median(std::move(others))};
  if (seconds(found.own) >= kMuch * seconds(found.others)) slowest_ = found;
}

}  // namespace dt::supervisor
