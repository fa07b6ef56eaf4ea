/// Gives the job machine (core/job/job.h) its events, one after the other, and has its effects
/// carried out in order. A record among them is in the journal before what follows it is done;
/// while the journal's disk is full all of that waits (JournalRoom).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "supervisor/context/supervisor_context.h"
#include "supervisor/files/job_files.h"
#include "supervisor/files/journal_room.h"

namespace dt::supervisor {

/// One thread. Everything given outlives it.
class Decisions {
 public:
  struct Hooks {
    std::function<void(const Effect&)> carry_out;  ///< Gets no Append.
    /// An event's effects are carried out. `is_change`: there may be news for clients.
    std::function<void(const JobEvent&, bool is_change)> decided;
  };
  Decisions(SupervisorContext& context, JobFiles& files, Hooks hooks)
      : context_(context), files_(files), hooks_(std::move(hooks)) {}

  /// The job as earlier terms have journalled it; the context gets it.
  void replay(const JobOptions& options, const std::vector<Record>& records);
  /// Begins this term.
  void begin();
  void post(JobEvent event);
  /// The job ends as by Ctrl-C, though nothing can be journalled.
  void stop(std::string why);
  /// Tries again what the journal's disk had no room for, notes when little is left, and cuts a
  /// journal that has become long. What waits may be starts: not while `is_doubtful`.
  void look_at_journal(bool is_doubtful);
  /// The host's agent ends: what it has said before does not matter any more.
  void released(const Host& host);

  [[nodiscard]] const JournalRoom& room() const { return room_; }
  /// The journal takes nothing any more, and the job ends: what was posted since is not done.
  [[nodiscard]] bool has_failed() const { return has_failed_; }
  [[nodiscard]] bool was_stopped() const { return stopped_why_.has_value(); }

 private:
  [[nodiscard]] Instant now() const;
  void pump();
  void check_settled(Instant then);
  void carry_out(std::vector<Effect> effects);
  /// Writes the record, or why it cannot be written now. Other trouble than want of room ends the
  /// job.
  Result<void> append(const Append& e);
  void look_at_room(bool is_doubtful);
  void look_at_size();
  /// The job ends though the journal cannot be written.
  void end_unwritten(int exit_code, std::string why);

  SupervisorContext& context_;
  JobFiles& files_;
  Hooks hooks_;
  std::unique_ptr<Job> job_;
  JournalRoom room_;
  std::deque<JobEvent> events_;
  bool pumping_ = false;
  bool has_failed_ = false;
  bool has_ended_ = false;  ///< An End was carried out.
  std::optional<std::string> stopped_why_;
};

}  // namespace dt::supervisor
