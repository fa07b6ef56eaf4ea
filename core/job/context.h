/// What the machines of one job share: its options, the output of the present step, and state that
/// all of them read. Job owns it, and it outlives them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "core/job/boundary.h"
#include "core/job/clean_exits.h"
#include "core/job/futile_tries.h"
#include "core/job/options.h"
#include "core/job/records.h"
#include "core/job/step_output.h"

namespace dt {

struct JobContext {
  JobContext(JobOptions the_options, std::function<void(const Record&)> apply)
      : options(std::move(the_options)), out(std::move(apply)) {}

  const JobOptions options;
  StepOutput out;
  Boundary boundary;
  CleanExits exits;
  FutileTries futile;
  bool opened = false;  ///< Some worker opened a distributed kvstore: the command is not opaque.
  std::uint64_t log_lines = 0;  ///< Lines of host_worker_log so far.
  std::optional<JobEnding> ending;

  [[nodiscard]] Time now() const { return out.now().at; }
  /// No epoch has begun yet.
  [[nodiscard]] bool initial() const { return !boundary.epoch().has_value(); }
  /// A member exited with code 0, and no other one has arrived at a boundary since.
  [[nodiscard]] bool finishing() const { return exits.any(); }

  /// The next line of host_worker_log.
  [[nodiscard]] LogLine log_line(bool added, const Host& host) const {
    return {log_lines, added, host, out.now().wall_ns};
  }

  void apply(const JobEnding& r) { ending = r; }
  /// Ends the job, once; processes get `grace` between TERM and KILL.
  void end(int exit_code, std::string message, Duration grace) {
    if (ending) return;
    out.record(JobEnding{exit_code, message});
    Note ended{Note::Kind::kMeasure, "job_ended", message};
    ended.numbers.emplace_back("code", exit_code);
    out.add(std::move(ended));
    out.add(End{exit_code, std::move(message), grace});
  }
  void end(int exit_code, std::string message) {
    end(exit_code, std::move(message), options.stop_grace);
  }
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
