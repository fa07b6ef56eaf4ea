#include "test/sim/fleet/job_model.h"

#include <utility>

namespace dt::sim {
namespace {

constexpr int kDeadAfter = 3;
constexpr int kGivenUpAfter = 12;

}  // namespace

void JobModel::add(const std::string& host, std::uint32_t slots, int late, bool is_base) {
  Line& line = lines_[host];
  if (line.slots == 0) {
    line.is_base = is_base;
    if (late > 0)
      coming_.try_emplace(host, Coming{slots, late});
    else
      take(host, slots);
  } else if (line.empty > 0) {
    line.empty = 0;
    line.is_leaving = false;
  }
  line.is_given_up = false;
  line.unreachable = 0;
}

void JobModel::take(const std::string& host, std::uint32_t slots) {
  coming_.erase(host);
  Line& line = lines_[host];
  line.slots = slots;
  line.empty = 0;
  line.is_leaving = false;
}

bool JobModel::remove(const std::string& host) {
  Line& line = lines_[host];
  if (line.is_base) return false;
  line.slots = 0;
  line.empty = 0;
  coming_.erase(host);
  return true;
}

void JobModel::leave(const std::string& host, std::optional<double> deadline) {
  const auto at = lines_.find(host);
  if (at == lines_.end()) return;
  at->second.is_leaving = true;
  at->second.leave_by = deadline;
}

void JobModel::crash(const std::string& host) {
  Line& line = lines_[host];
  if (line.members == 0) return;
  --line.members;
  ++line.starting;
}

void JobModel::pass(int now, bool is_boundary,
                    const std::function<bool(const std::string&)>& has_machine) {
  for (const auto& [host, coming] : std::map(coming_)) {
    if (coming.ticks > 0)
      --coming_.at(host).ticks;
    else
      take(host, coming.slots);
  }
  for (auto& [host, line] : lines_) {
    line.unreachable = has_machine(host) ? 0 : line.unreachable + 1;
    if (line.unreachable >= kDeadAfter) line.starting = line.members = 0;
    if (line.unreachable >= kGivenUpAfter) line.is_given_up = true;
    const bool is_due = is_boundary || (line.leave_by && *line.leave_by <= now + 2);
    if (line.slots == 0 || has_ended_) {
      if (is_due) line.starting = line.members = 0;
    } else if (line.is_leaving && is_due) {
      line.starting = line.members = 0;
      line.empty = line.slots;
    }
    if (line.slots == 0 && line.running() == 0) line.is_leaving = false;
    if (is_boundary) line.members += std::exchange(line.starting, 0);
  }
  if (!has_ended_) fill();
}

void JobModel::fill() {
  std::uint32_t there = 0;
  for (const auto& [host, line] : lines_) there += line.running();
  for (auto& [host, line] : lines_) {
    while (line.unreachable == 0 && !line.is_given_up && !line.is_leaving &&
           line.running() + line.empty < line.slots &&
           (max_workers_ == 0 || there < max_workers_)) {
      ++line.starting;
      ++there;
    }
  }
}

JobWish JobModel::wish(const std::function<bool(const std::string&)>& needs_machine,
                       const std::function<bool(const std::string&)>& is_linked) const {
  JobWish wish{.lets_go = has_ended_, .max_workers = max_workers_, .wanted = wanted()};
  for (const auto& [host, line] : lines_) {
    wish.lines += line.slots;
    if (line.slots == 0 && line.running() == 0) continue;
    wish.hosts[host] = {.in_file = line.slots,
                        .empty = line.empty,
                        .is_running = line.running() > 0,
                        .is_member = line.members > 0,
                        .is_given_up = line.is_given_up,
                        .is_linked = is_linked(host),
                        .is_leaving = line.is_leaving,
                        .is_own = line.is_base,
                        .needs_machine = !line.is_base && needs_machine(host)};
  }
  return wish;
}

JobModel::Line JobModel::at(const std::string& host) const {
  const auto at = lines_.find(host);
  return at == lines_.end() ? Line{} : at->second;
}

std::uint32_t JobModel::wanted() const {
  std::uint32_t sum = 0;
  for (const auto& [host, line] : lines_)
    if (!line.is_leaving) sum += line.slots - line.empty;
  return sum;
}

bool JobModel::has_room(std::uint32_t slots) const {
  for (const auto& [host, line] : lines_) slots += line.slots;
  return max_workers_ == 0 || slots <= max_workers_;
}

}  // namespace dt::sim
