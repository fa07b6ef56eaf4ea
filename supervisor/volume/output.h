/// Processes' output: whole, as written, into a file per process in the job folder; and, cut into
/// prefixed lines, to the console. In a job of many workers the console gets equal lines once, and
/// of the workers the lead's alone, unless the user wants all of them (--output).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/base/id.h"
#include "core/files/hosts.h"
#include "core/protocol/control_messages.h"
#include "io/awaitable.h"
#include "io/job/spec.h"
#include "io/line_prefixer.h"
#include "supervisor/volume/line_fold.h"
#include "supervisor/volume/output_credit.h"

namespace dt::supervisor {

class VolumeClient;

/// One thread. `volume` outlives it. Hosts may send only as much as there is room for: a slow
/// volume makes processes wait. Where output is missing, the file has a line that tells how much,
/// and why.
class ProcessOutput {
 public:
  struct Options {
    std::string folder;
    bool prefix = true;
    std::optional<io::ShownOutput> shown;
    std::size_t workers = 0;  ///< That the job begins with.
    std::uint64_t limit = 0;  ///< Bytes of a log file and its older part; 0: no limit.
  };
  using Console = std::function<void(bool is_stderr, std::string_view text)>;
  /// More workers than this are many.
  static constexpr std::size_t kFewWorkers = 4;

  ProcessOutput(VolumeClient& volume, Options options, Console console, OutputCredit::Give give);

  /// Before a process's first output; harmless if it is open already. Files: worker-3.log,
  /// server-0.log, prepare-<host>.log. Prefix: "[worker 3 10.0.0.7] ".
  void open(ProcessId process, const Host& host);
  /// Opens it, too, for output that comes after the exit, which an earlier term may have seen.
  void write(const Host& host, const dt::Output& message);
  /// Output for no file.
  void discard(const Host& host, const dt::Output& message) {
    credit_.received(host, message.bytes.size(), "", 0);
  }
  /// The host's link is, or will be, a new one.
  void link_begins(const Host& host) { credit_.begin(host); }
  /// The process has ended: its last, unfinished line is shown, and every line of it that waits.
  void close(ProcessId process);
  void close_all();
  /// A worker that has just been closed has failed: its last lines are shown if they were not. Of
  /// many that fail within a minute only the first ones'.
  void show_end_of(WorkerId worker);

  /// Whose lines stand for all workers': rank 0, once the job has a view. Until then, and without
  /// the function, it is the lowest id of the workers that run together.
  std::function<std::optional<WorkerId>()> lead;
  /// From now on only the lead's lines are shown, though nobody asked for that.
  std::function<void()> on_lead_alone;

  /// Hands collected output to the volume about five times a second, and lines to the console when
  /// they have waited for equal ones, until cancelled.
  io::awaitable<void> run();

 private:
  /// The last lines of a worker, which the console did not get.
  struct Unshown {
    std::deque<std::pair<bool, std::string>> lines;  ///< On stderr or not.
    std::size_t bytes = 0;
    void add(bool is_stderr, std::string_view line);
  };
  struct Stream {
    Host host;
    std::string file;
    std::size_t prefix;  ///< Its length.
    io::LinePrefixer out;
    io::LinePrefixer err;
    std::string collected = {};
    Unshown unshown = {};
  };
  void store(Stream& stream);
  [[nodiscard]] std::string why_lost(const Host& host, OutputLoss why) const;
  void show(ProcessId process, Stream& stream, bool is_stderr, std::string_view lines);
  void show(const std::vector<LineFold::Line>& lines) const;
  void see_many();
  [[nodiscard]] bool is_lead(ProcessId worker) const;
  [[nodiscard]] bool is_lead_alone() const {
    return options_.shown ? *options_.shown == io::ShownOutput::kLead : is_many_;
  }

  VolumeClient& volume_;
  Options options_;
  Console console_;
  OutputCredit credit_;
  std::map<ProcessId, Stream> streams_;
  bool is_many_ = false;      ///< There have been many workers.
  std::uint32_t lowest_ = 0;  ///< The lowest id of the workers that run together.
  LineFold fold_;
  std::deque<std::pair<ProcessId, Unshown>> ended_;  ///< The workers that ended last.
  std::deque<Time> ends_shown_;                      ///< By show_end_of, in the last minute.
};

}  // namespace dt::supervisor
