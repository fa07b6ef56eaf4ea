/// Seals the job's checkpoints, prunes old ones, and finds out whether the job folder is a place
/// for them: a volume that every base host sees, with room.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/semaphore.h"
#include "supervisor/context/supervisor_context.h"
#include "supervisor/hosts/checkpoint_place.h"

namespace dt::supervisor {

class HostLinks;
class PrepareRuns;

/// One thread. Everything given outlives it.
class CheckpointKeeper {
 public:
  CheckpointKeeper(SupervisorContext& context, HostLinks& links, PrepareRuns& prepares)
      : context_(context), links_(links), prepares_(prepares) {}

  /// Makes a checkpoint count, then removes those beyond --keep-checkpoints. Answered by
  /// CheckpointSealed.
  io::awaitable<void> seal(SealCheckpoint what);
  /// Looks for a place, and again now and then. Posts CheckpointPlaceSeen.
  io::awaitable<void> watch_place();

  /// A process that looks at a host for the place: its output and end come here.
  [[nodiscard]] bool owns(ProcessId process) const { return place_ && place_->is_ours(process); }
  void output(ProcessId process, std::string_view bytes) { place_->output(process, bytes); }
  void ended(ProcessId process, ExitStatus status, const std::string& why);
  /// Has the host look for the place, if it has not yet; `known`: the processes its agent knows.
  void look_on(const Host& host, const std::vector<ProcessReport>& known);

 private:
  io::awaitable<void> look();

  SupervisorContext& context_;
  HostLinks& links_;
  PrepareRuns& prepares_;
  std::optional<CheckpointPlace> place_;
  std::shared_ptr<io::Semaphore> turn_ = std::make_shared<io::Semaphore>(context_.executor, 1);
};

}  // namespace dt::supervisor
