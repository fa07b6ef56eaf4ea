/// The conditions of `dtctl wait`, as the user writes them:
///
///     epoch>=3  workers=2  newcomers=0  servers=1  checkpoint>=2  generation>4  term=2
///
///     state=running
///
///     members=0,2           the ids of the members
///
///     worker 3 member       any state that dtctl status shows
///
///     server 0 listening
///
///     host 10.0.0.3 lost    alive, suspect or lost; none, attaching, up or down
///
///     event worker_added    also "event worker_added>=2" and "event host_failed ~ PATTERN"
///
///     ended                 also "ended=0": with this exit code
///
///     .workers[id=3].gpus.length>0    any field of dtctl status --json
///
/// Operators: = != < <= > >= and ~ (a regular expression occurs in it).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace dt::supervisor {

/// One condition and its last observed value. Reads nothing itself.
class Condition {
 public:
  /// kInvalid, with valid alternatives; also if it names a field that no status has.
  [[nodiscard]] static Result<Condition> parse(std::string_view text);

  /// The job's status, or null while no supervisor answers.
  void see_status(const nlohmann::json& status);
  /// An event of the job: its line in events.jsonl. Each once.
  void see_event(const std::string& line);
  /// The job has ended.
  void see_end(int exit_code);

  /// Whether the last observed value satisfies the condition.
  [[nodiscard]] bool holds() const;
  [[nodiscard]] bool is_about_events() const { return subject_ == Subject::kEvents; }
  [[nodiscard]] bool is_about_end() const { return subject_ == Subject::kEnd; }
  /// The condition and the current value: "epoch>=3 (now 1)".
  [[nodiscard]] std::string shown() const;

 private:
  enum class Subject { kStatus, kEvents, kEnd };
  enum class Operator { kEqual, kUnequal, kLess, kAtMost, kMore, kAtLeast, kMatches };
  struct Filter {
    std::string field;
    bool is_equal = true;
    std::string value;
  };
  struct Step {
    std::string field;            ///< "length" of a list: its number of items.
    std::vector<Filter> filters;  ///< The list's items that pass them all.
  };

  class Reader;
  static std::vector<nlohmann::json> select(const nlohmann::json& from, const Step& step);
  [[nodiscard]] bool compare(const std::string& value) const;

  std::string text_;
  Subject subject_ = Subject::kStatus;
  std::vector<Step> path_;  ///< Into the status.
  std::string event_;       ///< The event's name.
  Operator operator_ = Operator::kEqual;
  std::string value_;
  std::optional<std::regex> pattern_;  ///< For kMatches, and of an event's line.

  std::optional<std::string> now_;  ///< The value to compare with value_; nullopt if unknown.
  std::uint64_t events_ = 0;
};

}  // namespace dt::supervisor
