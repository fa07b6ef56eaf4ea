#include "kvstore/server/report_pace.h"

#include <algorithm>
#include <utility>

namespace dt::kv {

namespace {

using Workers = std::vector<WorkerId>;

/// Those of `now` that were in `before` and sent nothing since.
Workers lasting(const Workers& now, const Workers& before, const Workers& busy) {
  Workers out;
  for (const WorkerId id : now)
    if (std::ranges::binary_search(before, id) && !std::ranges::binary_search(busy, id))
      out.push_back(id);
  return out;
}

}  // namespace

std::optional<Traffic> ReportPace::take(Traffic look) {
  alive_.insert(look.alive.begin(), look.alive.end());
  busy_.insert(look.busy.begin(), look.busy.end());
  rounds_ += look.rounds;
  if (look.late_rounds > 0) late_rounds_[look.latest] += look.late_rounds;
  Traffic report;
  report.disconnected = look.disconnected;
  report.owing = lasting(look.owing, last_look_.owing, look.busy);
  report.waiting = lasting(look.waiting, last_look_.waiting, look.busy);
  report.stuck = look.stuck;
  report.waits = look.waits;
  last_look_ = std::move(look);
  const bool is_news = !sent_ || report.disconnected != sent_->disconnected ||
                       report.owing != sent_->owing || report.waiting != sent_->waiting ||
                       report.stuck != sent_->stuck || report.waits != sent_->waits;
  was_skipped_ = !is_news && !was_skipped_;
  if (was_skipped_) return std::nullopt;
  report.alive.assign(alive_.begin(), alive_.end());
  report.busy.assign(busy_.begin(), busy_.end());
  report.rounds = std::exchange(rounds_, 0);
  for (const auto& [worker, rounds] : std::exchange(late_rounds_, {}))
    if (rounds > report.late_rounds) {
      report.late_rounds = rounds;
      report.latest = worker;
    }
  alive_.clear();
  busy_.clear();
  sent_ = report;
  return report;
}

}  // namespace dt::kv
