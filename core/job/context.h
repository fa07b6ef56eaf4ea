/// What the machines of one job share: its options, state that all of them read, and the output of
/// the present step: records, notes and other effects, in their order. Job owns it, and it outlives
/// them. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/id.h"
#include "core/job/agenda.h"
#include "core/job/boundary.h"
#include "core/job/events.h"
#include "core/job/options.h"

namespace dt {

/// Restarts without progress: deaths of members and failed starts since the last completed epoch,
/// and losses of servers since the last epoch that began for the first time. Too many end the job.
class FutileTries {
 public:
  /// A member died, or a start failed while no member was alive.
  void add(std::string why) {
    ++count_;
    why_ = std::move(why);
  }
  /// Servers were lost.
  void add_rollback() { ++rollbacks_; }
  void epoch_completed() { count_ = 0; }
  void epoch_begins(Epoch epoch) {
    if (furthest_ && epoch <= *furthest_) return;
    furthest_ = epoch;
    rollbacks_ = 0;
  }

  [[nodiscard]] std::uint32_t count() const { return count_; }
  [[nodiscard]] std::uint32_t rollbacks() const { return rollbacks_; }
  /// Why the last one failed.
  [[nodiscard]] const std::string& why() const { return why_; }

 private:
  std::uint32_t count_ = 0;
  std::string why_;
  std::uint32_t rollbacks_ = 0;
  std::optional<Epoch> furthest_;
};

class JobContext {
 public:
  /// `apply` changes the durable state; record() calls it, and nothing else does while a job runs.
  JobContext(JobOptions the_options, std::function<void(const Record&)> apply)
      : options(std::move(the_options)), apply_(std::move(apply)) {}

  const JobOptions options;
  Boundary boundary;
  /// Members that exited with code 0 without a LEAVE. Until another member arrives at a boundary
  /// this is ambiguous: the program has ended for all of them, or that one has left.
  std::map<WorkerId, Host> clean_exits;
  FutileTries futile;
  Agenda agenda;
  bool is_doubtful = false;  ///< Nothing is started: see LockDoubtful.
  bool opened = false;  ///< Some worker opened a distributed kvstore: the command is not opaque.
  std::uint64_t log_lines = 0;  ///< Lines of host_worker_log so far.
  std::optional<JobEnding> ending;
  std::uint32_t group_restarts = 0;  ///< Groups that began after the first one.
  bool group_stops = false;          ///< The group is being stopped, for the next one.
  /// A host that goes away (core/job/notices.h).
  struct Leaving {
    std::string why;
    Time stops_at = Time::max();  ///< By steady(): its workers are stopped then.
  };
  std::map<Host, Leaving> leaving;

  /// A step begins at `now`.
  void begin(Instant now) {
    now_ = now;
    effects_.clear();
  }
  /// None follows an End.
  void add(Effect effect) {
    const bool has_ended = !effects_.empty() && std::holds_alternative<End>(effects_.back());
    if (!has_ended) effects_.push_back(std::move(effect));
  }
  void note(Note::Kind kind, std::string what, std::string text, std::optional<Host> host = {},
            std::optional<WorkerId> worker = {},
            std::vector<std::pair<std::string, double>> numbers = {}) {
    add(Note{kind, std::move(what), std::move(text), worker, std::move(host), std::move(numbers)});
  }
  /// Applies the record, and appends it to the journal.
  void record(Record record) {
    apply_(record);
    add(Append{std::move(record)});
  }
  /// Ends the job, once; processes get `grace` between TERM and KILL.
  void end(int exit_code, std::string message, Duration grace) {
    if (ending) return;
    record(JobEnding{exit_code, message});
    note(Note::kMeasure, "job_ended", message, {}, {}, {{"code", exit_code}});
    add(End{exit_code, std::move(message), grace});
  }
  void end(int exit_code, std::string message) {
    end(exit_code, std::move(message), options.stop_grace);
  }
  /// The step's effects.
  [[nodiscard]] std::vector<Effect> take() { return std::exchange(effects_, {}); }

  [[nodiscard]] Time now() const { return now_.at; }
  [[nodiscard]] std::int64_t wall_ns() const { return now_.wall_ns; }
  [[nodiscard]] Time steady() const { return now_.steady; }
  /// When something was, by steady(), that a record has by the wall clock: of an earlier term's it
  /// is an estimate, and never in the future.
  [[nodiscard]] Time moment_of(std::int64_t wall_ns) const {
    return now_.steady - std::max(Duration{}, Duration(now_.wall_ns - wall_ns));
  }
  /// The deadline by steady(), no later than the notice said; Time::max(): it has none.
  [[nodiscard]] Time deadline_of(const NoticeTaken& r) const {
    if (r.deadline_ns == kNoDeadline) return Time::max();
    const Duration left(r.deadline_ns - now_.wall_ns);
    return now_.steady + std::clamp(left, Duration{}, Duration(r.left_ns));
  }
  /// No epoch has begun yet.
  [[nodiscard]] bool initial() const { return !boundary.epoch().has_value(); }
  /// A member exited with code 0, and no other one has arrived at a boundary since.
  [[nodiscard]] bool finishing() const { return !clean_exits.empty(); }
  /// A change restarts all workers as a new group; no epoch ever begins.
  [[nodiscard]] bool restarts_group() const { return options.on_change == OnChange::kRestart; }
  /// A death does so, too.
  [[nodiscard]] bool restarts_after_death() const {
    return restarts_group() && options.max_restarts > 0;
  }
  /// The workers' kvstore has servers: without them no epoch begins.
  [[nodiscard]] bool has_epochs() const {
    return !options.servers.empty() && !options.opaque_servers && !restarts_group();
  }
  /// The host goes away so soon that no worker of it begins an epoch any more.
  [[nodiscard]] bool stops(const Host& host) const {
    const auto it = leaving.find(host);
    return it != leaving.end() && steady() >= it->second.stops_at;
  }
  /// The next line of host_worker_log.
  [[nodiscard]] LogLine log_line(bool added, const Host& host, std::size_t behind = 0) const {
    return {log_lines + behind, added, host, wall_ns()};
  }

  void apply(const JobEnding& r) { ending = r; }
  void apply(const GroupStops&) {
    group_stops = true;
    clean_exits.clear();
  }
  void apply(const GroupBegan& r) {
    group_stops = false;
    ++group_restarts;
    clean_exits.clear();
    log_lines += r.log.size();
  }
  void apply(const NoticeTaken& r) {
    if (!r.host) return;
    const Time deadline = deadline_of(r);
    leaving[*r.host] = {
        r.why, deadline == Time::max() ? deadline : deadline - Duration(options.notice_margin)};
  }
  void apply(const NoticeOver& r) {
    if (r.host) leaving.erase(*r.host);
  }
  void apply(const Snapshot& r) { log_lines += r.log.size(); }

 private:
  std::function<void(const Record&)> apply_;
  Instant now_;
  std::vector<Effect> effects_;
};

/// Gives the record to each machine that applies its type, in this order of theirs.
template <class R, class... Machine>
void apply_to(const R& r, Machine&... machines) {
  static_assert(std::is_same_v<R, TermBegan> || (requires { machines.apply(r); } || ...));
  const auto give = [&r](auto& machine) {
    if constexpr (requires { machine.apply(r); }) machine.apply(r);
  };
  (give(machines), ...);
}

}  // namespace dt
