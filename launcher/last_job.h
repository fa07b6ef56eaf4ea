/// `dtlaunch --resume FOLDER`: finds the job of a folder and what it can go on with.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/launch/allocation.h"
#include "io/job/job_pointer.h"
#include "io/job/spec.h"

namespace dt::launcher {

/// The job that a folder's pointer file names.
struct LastJob {
  /// From the job folder: the state folder may be another master's. Its added lines are those of
  /// the last accepted host_worker, and it has all that was replaced since.
  io::JobSpec spec;
  io::JobPointer pointer;
  bool is_running = false;   ///< Its supervisor answers here.
  bool has_journal = false;  ///< Its journal is on this machine: agents that live can be adopted.
  /// Its end was decided, by a Ctrl-C, a lost dtlaunch or a failure, and is to be carried out
  /// before anything else: then it goes on with a checkpoint.
  bool is_failing = false;

  /// It has not ended, and nobody here runs it: its processes may live.
  [[nodiscard]] bool is_left() const { return !pointer.ended && !is_running && has_journal; }
};

/// kInvalid names what is missing; kDenied: the files are not this user's (io/job/job_owner.h).
[[nodiscard]] Result<LastJob> find_last_job(const std::string& job_dir);

/// `next` goes on with the job: on the hosts that replaced others, and with those that were added.
void take_hosts(const LastJob& job, io::JobSpec& next);

/// Gives the names of --env their values, where `job.spec` lacks them: those stored with its
/// journal, else the lines NAME=VALUE of `env_file` (if it is not empty), else the environment's.
/// kInvalid names those that have none.
[[nodiscard]] Result<void> find_env_values(LastJob& job, const std::string& env_file,
                                           const VariableOf& variable);

/// Waits until the supervisor of an ended job has exited, at most `limit`: it does so a moment
/// after it has reported the job's end.
void wait_for_end(const LastJob& job, std::chrono::milliseconds limit);

/// The job of another master, for a supervisor here that ends what still runs of it: a spec of its
/// own state folder, without files yet.
[[nodiscard]] io::JobSpec spec_to_end(const LastJob& job);
/// Its journal: records_to_end() of the copy on the volume, the spec and host_worker. A missing
/// copy is none; an error: one of the files cannot be read.
[[nodiscard]] Result<std::string> journal_to_end(const io::JobSpec& spec);

/// Writes into the journal of a job that nobody runs that it is to end: whoever takes it up stops
/// what lives of it. kDenied: a dtlaunch or a supervisor of it lives.
[[nodiscard]] Result<void> decide_end(LastJob& job, const std::string& why);

/// What --auto-resume does with the last job of the folder of a new job.
struct AutoResume {
  bool goes_on = false;
  bool is_changed = false;  ///< Something else is asked for than then.
  std::string why;          ///< In words; names all that is changed.
};
/// `last`: an error if there is none. Another command is another job. The rest of the spec may have
/// changed.
[[nodiscard]] AutoResume auto_resume(const Result<LastJob>& last, const io::JobSpec& next);

/// Whether the scheduler has started the job of the past spec again, under the number that it had:
/// then the master of that run has ended with it, on whatever machine, and nobody else holds the
/// job folder.
[[nodiscard]] bool was_ended_by_scheduler(const io::JobSpec& past, const io::JobSpec& next,
                                          const VariableOf& variable);

/// The ended job has something to go on with, whole or not: a checkpoint, or the command's own
/// snapshot (--on-change restart).
[[nodiscard]] bool can_go_on(const io::JobSpec& spec);

/// Makes the spec one that begins with the newest checkpoint that is undamaged: of this job, else
/// the one it began with itself. Reads them whole. `report` gets a line for each that is passed
/// over, and lines about the progress of a long check.
[[nodiscard]] Result<void> begin_with_checkpoint(io::JobSpec& spec,
                                                 const std::function<void(std::string)>& report);

}  // namespace dt::launcher
