#include "supervisor/control/pulse.h"

#include <fmt/format.h>

#include "core/base/time.h"

namespace dt::supervisor {
namespace {

constexpr std::size_t kBoundaries = 11;  ///< Ten epochs are averaged over.
/// Shortest time of a rate: positions come about once a second.
constexpr Duration kRateOver = std::chrono::seconds(5);

std::string plural(std::uint64_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

}  // namespace

void Pulse::look(const Job& job, Time now) {
  const auto& epoch = job.boundary().epoch();
  if (epoch != epoch_) {
    // Back at a checkpoint, or a supervisor's first look: no epoch has been seen from its begin.
    const bool follows = epoch && epoch_ && *epoch == epoch_->next();
    if (!follows) boundaries_.clear();
    if (has_looked_ && epoch) boundaries_.push_back(now);
    if (boundaries_.size() > kBoundaries) boundaries_.pop_front();
    epoch_ = epoch;
  }
  const auto checkpoint = job.checkpoints().newest();
  if (checkpoint != checkpoint_) {
    checkpoint_ = checkpoint;
    checkpoint_at_.reset();
    if (has_looked_ && checkpoint) checkpoint_at_ = now;
  }
  has_looked_ = true;
}

void Pulse::told(const Note& note) {
  if (note.what == "worker_died") ++restarts_;
}

void Pulse::progress(WorkerId worker, std::uint64_t step, Time now) {
  const auto [at, is_new] = rates_.try_emplace(worker, Rate{step, 0, now, std::nullopt});
  Rate& rate = at->second;
  if (is_new) return;
  // A smaller step starts again at 0, as in programs that count per epoch.
  rate.steps += step >= rate.last ? step - rate.last : step;
  rate.last = step;
  if (now - rate.since < kRateOver) return;
  rate.per_s = static_cast<double>(rate.steps) / seconds(now - rate.since);
  rate.steps = 0;
  rate.since = now;
}

void Pulse::output(ProcessId process, Time now) { outputs_[process] = now; }
void Pulse::resident(ProcessId process, std::uint64_t bytes) { resident_[process] = bytes; }

void Pulse::forget(ProcessId process) {
  if (process.role == Role::kWorker) rates_.erase(WorkerId(process.id));
  outputs_.erase(process);
  resident_.erase(process);
}

std::optional<double> Pulse::epoch_s() const {
  if (boundaries_.size() < 2) return std::nullopt;
  return seconds(boundaries_.back() - boundaries_.front()) /
         static_cast<double>(boundaries_.size() - 1);
}

std::optional<double> Pulse::boundary_age_s(Time now) const {
  if (boundaries_.empty()) return std::nullopt;
  return seconds(now - boundaries_.back());
}

std::optional<double> Pulse::checkpoint_age_s(Time now) const {
  if (!checkpoint_at_) return std::nullopt;
  return seconds(now - *checkpoint_at_);
}

std::optional<double> Pulse::steps_per_s(WorkerId worker) const {
  const auto at = rates_.find(worker);
  return at == rates_.end() ? std::nullopt : at->second.per_s;
}

std::optional<double> Pulse::output_age_s(ProcessId process, Time now) const {
  const auto at = outputs_.find(process);
  if (at == outputs_.end()) return std::nullopt;
  return seconds(now - at->second);
}

std::optional<std::uint64_t> Pulse::resident(ProcessId process) const {
  const auto at = resident_.find(process);
  return at == resident_.end() ? std::nullopt : std::optional(at->second);
}

std::string Pulse::line(const Job& job, Time now, double uptime_s) const {
  std::string out;
  const auto add = [&out](std::string_view part) {
    out += out.empty() ? "" : ", ";
    out += part;
  };
  const auto& epoch = job.boundary().epoch();
  if (epoch) add(fmt::format("epoch {}", *epoch));
  add(plural(job.boundary().contributors().size(), "worker"));
  if (!epoch) add("up " + duration_text(uptime_s));
  if (!job.opened()) add("no kvstore is open");
  if (const auto took = epoch_s()) add(fmt::format("{:.1f} s/epoch", *took));
  if (const auto age = boundary_age_s(now)) add("last boundary " + duration_text(*age) + " ago");
  if (const auto newest = job.checkpoints().newest()) {
    const auto age = checkpoint_age_s(now);
    add(fmt::format("checkpoint of epoch {}{}", *newest,
                    age ? " (" + duration_text(*age) + " ago)" : ""));
  }
  if (const auto share = job.goodput().share()) add(fmt::format("goodput {:.1f} %", *share * 100));
  if (restarts_ > 0) add(plural(restarts_, "restart"));
  return out;
}

}  // namespace dt::supervisor
