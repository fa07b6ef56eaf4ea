#include "supervisor/control/job_figures.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/quantity.h"
#include "core/job/boundary.h"
#include "core/job/checkpoints.h"
#include "core/job/goodput.h"
#include "core/job/host_table.h"
#include "core/job/job.h"

namespace dt::supervisor {
namespace {

constexpr std::size_t kBoundaries = 11;  ///< Ten epochs are averaged over.
/// Shortest time of a rate: positions come about once a second.
constexpr Duration kRateOver = std::chrono::seconds(5);
constexpr Duration kSamplesOver = std::chrono::seconds(10);

}  // namespace

void JobFigures::look_at_boundary(const Boundary& view, Time now) {
  if (view.epoch() != crossed_to_) {
    const bool follows =
        view.epoch() && crossed_to_ && *view.epoch() == crossed_to_->next() && !view.has_returned();
    // The last arrival and the commit may be one event.
    crossing_since_ = follows ? std::optional(arrived_at_.value_or(now)) : std::nullopt;
    crossed_to_ = view.epoch();
    arrived_at_.reset();
  }
  if (crossing_since_ && view.unreleased().empty()) {
    crossings_.last = now - *crossing_since_;
    crossings_.all += crossings_.last;
    ++crossings_.count;
    crossing_since_.reset();
  }
  if (view.arrivals().empty())
    arrived_at_.reset();
  else if (!arrived_at_)
    arrived_at_ = now;
}

void JobFigures::look(const Job& job, Time now) {
  look_at_boundary(job.boundary(), now);
  const auto& epoch = job.boundary().epoch();
  // A new member begins with other work than steps.
  const Generation before = std::exchange(generation_, job.boundary().generation());
  if (!epoch || before != generation_) pace_.restart();
  pace_.tick(job.boundary().contributors(), now);
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
    if (has_looked_ && checkpoint) {
      checkpoint_at_ = now;
      ++checkpoints_;
    }
  }
  has_looked_ = true;
}

std::optional<Note> JobFigures::news(const Job& job, Time now) {
  constexpr Duration kEvery = std::chrono::minutes(1);
  const auto& slowest = pace_.slowest();
  const Worker* worker = slowest ? job.membership().find(slowest->worker) : nullptr;
  if (!worker || (slow_told_ && now - *slow_told_ < kEvery)) return std::nullopt;
  slow_told_ = now;
  return Note{Note::Kind::kMeasure,
              "slow_worker",
              fmt::format("worker {} on {}: {}", slowest->worker, worker->host, slowest->text()),
              slowest->worker,
              worker->host,
              {{"own_step_s", seconds(slowest->own)}, {"others_step_s", seconds(slowest->others)}}};
}

void JobFigures::progress(WorkerId worker, std::uint64_t step, Time now) {
  Observed& observed = processes_[{Role::kWorker, worker.value}];
  if (!observed.progress) observed.progress = Progress{step, 0, now};
  Progress& made = *observed.progress;
  // A smaller step starts again at 0, as in programs that count per epoch.
  made.steps += step >= made.last ? step - made.last : step;
  made.last = step;
  if (now - made.since < kRateOver) return;
  observed.seen.steps_per_s = static_cast<double>(made.steps) / seconds(now - made.since);
  made.steps = 0;
  made.since = now;
}

void JobFigures::figures(WorkerId worker, const Figures& figures, Time now) {
  Observed& observed = processes_[{Role::kWorker, worker.value}];
  observed.seen.figures = figures;
  pace_.figures(worker, figures, now);
  auto& samples = observed.samples;
  samples.emplace_back(now, figures.samples);
  while (now - samples.front().first > kSamplesOver) samples.pop_front();
}

std::optional<double> JobFigures::samples_per_s(ProcessId process, Time now) const {
  const auto& samples = value_in(processes_, process).samples;
  const auto first = std::ranges::find_if(
      samples, [now](const auto& one) { return now - one.first <= kSamplesOver; });
  if (first == samples.end() || now <= first->first) return std::nullopt;
  return static_cast<double>(samples.back().second - first->second) / seconds(now - first->first);
}

std::optional<double> JobFigures::epoch_s() const {
  if (boundaries_.size() < 2) return std::nullopt;
  return seconds(boundaries_.back() - boundaries_.front()) /
         static_cast<double>(boundaries_.size() - 1);
}

std::optional<double> JobFigures::boundary_age_s(Time now) const {
  if (boundaries_.empty()) return std::nullopt;
  return seconds(now - boundaries_.back());
}

std::optional<double> JobFigures::checkpoint_age_s(Time now) const {
  if (!checkpoint_at_) return std::nullopt;
  return seconds(now - *checkpoint_at_);
}

std::string JobFigures::line(const Job& job, Time now, double uptime_s) const {
  std::string out;
  const auto add = [&out](std::string_view part) {
    out += out.empty() ? "" : ", ";
    out += part;
  };
  const auto& epoch = job.boundary().epoch();
  if (epoch) add(fmt::format("epoch {}", *epoch));
  const std::size_t train = job.boundary().contributors().size();
  if (train > 0) add(count_text(train, "worker"));
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
  if (const auto n = job.hosts().worker_restarts(); n > 0) add(count_text(n, "restart"));
  return out;
}

}  // namespace dt::supervisor
