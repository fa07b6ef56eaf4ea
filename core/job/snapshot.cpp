#include "core/job/snapshot.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "core/base/lookup.h"

namespace dt {
namespace {

/// Lines of one Snapshot record: some five megabytes at most.
constexpr std::size_t kMostLines = 50'000;

/// Boundaries before and behind it are not compared.
bool is_barrier(const Record& record) {
  if (const auto* gone = std::get_if<WorkerGone>(&record))
    return gone->status.clean() && gone->why.empty();
  return is_any_of<JobBegan, FileTaken, RolledBack, MemberLeft, PlacesWanted, BaseReplaced,
                   JobEnding, GroupStops, GroupBegan, NoticeTaken, NoticeOver>(record);
}

/// The epoch that begins with the record.
std::optional<Epoch> begun(const Record& record) {
  if (const auto* began = std::get_if<EpochBegan>(&record)) return began->epoch;
  const auto* commit = std::get_if<Committed>(&record);
  return commit && commit->boundary ? std::optional(commit->epoch) : std::nullopt;
}

std::set<WorkerId> leavers_of(const Record& record) {
  const auto* commit = std::get_if<Committed>(&record);
  if (!commit) return {};
  return {commit->leavers.begin(), commit->leavers.end()};
}

class Shortener {
 public:
  explicit Shortener(const std::vector<Record>& records)
      : records_(records), is_kept_(records.size(), true) {}

  std::vector<Record> run() {
    drop_replaced();
    find_joined();
    std::size_t begin = 0;
    for (std::size_t i = 0; i <= records_.size(); ++i) {
      if (i < records_.size() && !is_barrier(records_[i])) continue;
      shorten(begin, i);
      begin = i + 1;
    }
    return result();
  }

 private:
  /// Drops each record that a later one replaces, whatever comes between them.
  void drop_replaced() {
    std::set<std::size_t> kinds;  // by their places in Record
    std::set<Host> placed;
    std::set<Host> known;
    std::set<Host> had_agent;
    for (std::size_t i = records_.size(); i-- > 0;) {
      const Record& record = records_[i];
      if (is_any_of<TermBegan, TimeSpent, CheckpointTimed>(record)) {
        is_kept_[i] = kinds.insert(record.index()).second;
      } else if (const auto* place = std::get_if<AgentPlaced>(&record)) {
        is_kept_[i] = placed.insert(place->host).second;
      } else if (const auto* agent = std::get_if<AgentKnown>(&record)) {
        // That the host had one at all is remembered, too.
        const bool is_last = known.insert(agent->host).second;
        const bool is_last_agent = agent->incarnation != 0 && had_agent.insert(agent->host).second;
        is_kept_[i] = is_last || is_last_agent;
      } else if (const auto* commit = std::get_if<Committed>(&record)) {
        if (commit->boundary && commit->saves && !last_save_) last_save_ = i;
      }
    }
  }

  /// Who is new in the view of each boundary's commit.
  void find_joined() {
    std::set<WorkerId> view;
    for (std::size_t i = 0; i < records_.size(); ++i) {
      if (const auto* job = std::get_if<JobBegan>(&records_[i])) {
        for (std::size_t n = 0; n < job->workers.size(); ++n)
          view.insert(WorkerId(static_cast<WorkerId::rep>(n)));
      }
      const auto* commit = std::get_if<Committed>(&records_[i]);
      if (!commit || !commit->boundary) continue;
      std::set<WorkerId> next(commit->members.begin(), commit->members.end());
      for (const WorkerId id : next)
        if (!view.contains(id)) joined_[i].push_back(id);
      view = std::move(next);
    }
  }

  /// The records between two barriers.
  void shorten(std::size_t begin, std::size_t end) {
    std::vector<std::size_t> boundaries;
    for (std::size_t i = begin; i < end; ++i)
      if (begun(records_[i])) boundaries.push_back(i);
    if (boundaries.empty()) return;
    std::size_t next = boundaries.back();  // the one that stays, behind the one looked at
    bool has_later_commit = std::holds_alternative<Committed>(records_[next]);
    std::set<WorkerId> gone = leavers_of(records_[next]);  // between these two, or by the second
    std::size_t at = boundaries.size() - 1;
    for (std::size_t i = next; i-- > begin;) {
      const Record& record = records_[i];
      if (const auto* g = std::get_if<WorkerGone>(&record)) gone.insert(g->worker);
      if (const auto* commit = std::get_if<Committed>(&record); commit && !commit->boundary)
        is_kept_[i] = !has_later_commit;
      if (!begun(record)) continue;
      --at;
      if (at > 0 && lasts(boundaries[at - 1], i, next, gone)) {
        is_kept_[i] = false;
        continue;
      }
      next = i;
      has_later_commit = has_later_commit || std::holds_alternative<Committed>(record);
      gone = leavers_of(record);
    }
  }

  /// Everything that this boundary changed is so, or is changed again, at the next one that stays.
  [[nodiscard]] bool lasts(std::size_t before, std::size_t i, std::size_t next,
                           const std::set<WorkerId>& gone) const {
    // An epoch that begins a second time has not been completed.
    if (*begun(records_[before]) > *begun(records_[i]) ||
        *begun(records_[i]) >= *begun(records_[next]))
      return false;
    const auto* commit = std::get_if<Committed>(&records_[i]);
    if (!commit) return true;
    if (last_save_ == i || !commit->leavers.empty()) return false;
    return std::holds_alternative<Committed>(records_[next]) &&
           std::ranges::none_of(value_in(joined_, i),
                                [&gone](WorkerId id) { return gone.contains(id); });
  }

  [[nodiscard]] std::vector<Record> result() const {
    std::vector<LogLine> lines;
    std::uint64_t count = 0;
    std::vector<Record> kept;
    for (std::size_t i = 0; i < records_.size(); ++i) {
      const auto* earlier = std::get_if<Snapshot>(&records_[i]);
      if (is_kept_[i] && !earlier) {
        kept.push_back(records_[i]);
        continue;
      }
      count += earlier ? earlier->records : 1;
      const auto more = log_lines({records_[i]});
      lines.insert(lines.end(), more.begin(), more.end());
    }
    std::ranges::sort(lines, {}, &LogLine::seq);
    std::vector<Record> out;
    for (std::size_t at = 0; at == 0 || at < lines.size(); at += kMostLines) {
      const auto from = lines.begin() + static_cast<std::ptrdiff_t>(at);
      const auto until =
          lines.begin() + static_cast<std::ptrdiff_t>(std::min(at + kMostLines, lines.size()));
      out.emplace_back(Snapshot{std::exchange(count, 0), {from, until}});
    }
    std::ranges::move(kept, std::back_inserter(out));
    return out;
  }

  const std::vector<Record>& records_;
  std::vector<bool> is_kept_;
  std::map<std::size_t, std::vector<WorkerId>> joined_;
  std::optional<std::size_t> last_save_;  ///< The last commit that saves a checkpoint.
};

}  // namespace

std::vector<Record> snapshot(const std::vector<Record>& records) {
  return Shortener(records).run();
}

}  // namespace dt
