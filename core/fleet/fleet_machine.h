/// A machine of a fleet: what its provider (Slurm, a cloud, a script) says of one machine that
/// works, or is to work, for one job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dt {

enum class MachineState {
  kPending,  ///< Asked for and not there yet, for whatever reason.
  kReady,
  kEnding,  ///< Its owner takes it away.
};

/// How far the job has come with a machine. A mark only moves forward; a machine with another id
/// has no mark, even if it has the host name of an earlier one.
enum class Mark {
  kNone,
  kBase,           ///< A host of the launch, which the job keeps.
  kAddQueued,      ///< Its host was written into host_worker.
  kAdded,          ///< host_worker_log has its ADDED.
  kRemovalQueued,  ///< Its workers are to leave.
  kRemoved,        ///< host_worker_log has its REMOVED: nothing of the job runs there.
};

/// "ADD_QUEUED"; kNone is empty.
[[nodiscard]] std::string_view mark_text(Mark mark);
[[nodiscard]] std::optional<Mark> mark_of(std::string_view text);

struct Machine {
  std::string id = {};  ///< The provider's, of this machine alone: Slurm's job number, a pod's uid.
  MachineState state = MachineState::kPending;
  std::string host = {};    ///< As host_worker names it; empty where it is not known yet.
  std::string why = {};     ///< Why it is pending, in the provider's word: "Priority".
  std::uint32_t slots = 1;  ///< Workers for its host.
  Mark mark = Mark::kNone;
  bool is_asked = false;  ///< Who may ask for its end has done so (FleetRules).
  /// When it goes away, in seconds since 1970; nullopt: nobody has said so.
  std::optional<double> deadline = std::nullopt;
  /// When it came, in seconds since 1970; nullopt: the provider does not say.
  std::optional<double> since = std::nullopt;
  bool is_held_back = false;  ///< It ends only after Confirm, or at its deadline.
  std::uint64_t order = 0;    ///< `dtctl shrink` takes the highest first.
  /// The provider's words for a replacement when the machine is taken away; nullopt: none.
  std::optional<std::vector<std::string>> kept = std::nullopt;
  std::string replaces = {};  ///< The machine that was taken away, for which this one was asked.

  friend bool operator==(const Machine&, const Machine&) = default;
};

}  // namespace dt
