/// The files of one job: the journal and the secret on the master's disk; lock, spec, pointer,
/// events, host_worker_log, the journal's copy and the processes' logs on the shared volume. Opens
/// them in the order in which they protect each other, and closes them at the job's end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/job/events.h"
#include "supervisor/context/supervisor_context.h"
#include "supervisor/files/journal_file.h"
#include "supervisor/volume/change_log_file.h"
#include "supervisor/volume/events_file.h"
#include "supervisor/volume/job_lock.h"
#include "supervisor/volume/journal_copy.h"

namespace dt::supervisor {

/// One thread. `context` outlives it. open_state(), then open_volume(), then run().
class JobFiles {
 public:
  static constexpr std::uint64_t kJournalLimit = std::uint64_t{64} << 20;
  /// Records of a journal that is not cut: with a thousand workers a boundary without a change is a
  /// short record, but takes long to replay.
  static constexpr std::uint64_t kJournalRecords = 10'000;
  struct Mode {
    bool is_new = true;     ///< Otherwise the journal of an earlier life is taken up.
    bool by_force = false;  ///< The lock is taken from a supervisor of which nothing can be seen.
    std::uint64_t journal_limit = kJournalLimit;  ///< Bytes of a journal that is not cut.
  };
  JobFiles(SupervisorContext& context, Mode mode);

  /// Opens the journal and takes the folder's lock; the context gets term and secret. Returns what
  /// earlier terms have journalled.
  io::awaitable<Result<std::vector<Record>>> open_state();
  /// Makes what a new job needs on the volume, and opens what is written while it runs. Returns
  /// which events are written already.
  io::awaitable<Result<KnownEvents>> open_volume(const std::vector<Record>& records);
  /// Writes to the volume until cancelled.
  void run();
  /// The last lines of all files; the lock goes. The pointer names the end if it `is_over`.
  io::awaitable<void> close(const End& end, bool is_over);
  io::awaitable<void> drop_lock();
  /// Writes again where the job's supervisor is; its socket has moved.
  io::awaitable<void> point_here();
  /// Whoever holds the folder's lock, if it is another one now; an error: that is not known.
  io::awaitable<Result<std::optional<io::LockHolder>>> other_holder();

  /// Another job has the folder, or another supervisor this job.
  [[nodiscard]] bool is_refused() const { return is_refused_; }
  [[nodiscard]] bool has_lock() const { return lock_.has_value(); }
  [[nodiscard]] JournalFile& journal() { return *journal_; }
  [[nodiscard]] const JournalFile& journal() const { return *journal_; }
  /// A record is in the journal: its copy and host_worker_log follow.
  void journalled(const Record& record, const wire::Frame& frame);
  struct Cut {
    std::uint64_t before = 0;  ///< Bytes of the journal.
    std::uint64_t after = 0;
  };
  /// Cuts a journal that is too long, in bytes or records, once the volume has its events;
  /// nothing: it is not too long, or they are not yet written there. Blocks for as long as the disk
  /// needs for the new one.
  [[nodiscard]] Result<std::optional<Cut>> cut_journal();
  /// Where what others had written into host_worker_log is now; or empty.
  [[nodiscard]] const std::string& foreign_log() const { return change_log_.foreign(); }
  /// A line of events.jsonl, with its newline.
  void add_event(const std::string& line) { events_.add(line); }

  /// Between looks at who has the folder.
  static constexpr Duration kLockLook = std::chrono::seconds(2);
  /// A lock that was not read for so long may be another master's.
  static constexpr Duration kDoubtAfter = 3 * kLockLook;

 private:
  io::awaitable<Result<std::vector<wire::Frame>>> open_journal();
  io::awaitable<Result<void>> take_lock();
  io::awaitable<Result<void>> make_files();
  io::awaitable<Result<void>> write_pointer(const End* end);

  SupervisorContext& context_;
  Mode mode_;
  std::optional<JournalFile> journal_;
  std::string journal_bytes_;  ///< Until its copy begins.
  std::uint64_t records_ = 0;  ///< In the journal.
  /// Bytes and records from which on the journal is cut.
  std::uint64_t cut_from_;
  std::uint64_t cut_from_records_ = kJournalRecords;
  std::optional<io::LockHolder> lock_;
  bool is_refused_ = false;
  EventFiles events_;
  ChangeLogFile change_log_;
  std::optional<JournalCopy> journal_copy_;
  std::string master_address_;
  Duration usual_deadline_;  ///< The volume's, once the job's files are open.
};

}  // namespace dt::supervisor
