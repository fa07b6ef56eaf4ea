/// host_worker_log on the shared volume, kept equal to what the journal says: written in order,
/// never lost or doubled, however long the volume stalls.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/change_log.h"
#include "core/job_records.h"
#include "io/asio.h"
#include "supervisor/volume.h"

namespace dt::supervisor {

/// One thread. `volume` outlives it.
class ChangeLogFile {
 public:
  ChangeLogFile(io::asio::any_io_executor executor, VolumeClient& volume, std::string path);

  /// More lines of the journal, in order.
  void add(const std::vector<LogLine>& lines);
  /// Writes what is missing until finish(); failures are tried again. Calls on_error once per kind
  /// of trouble.
  io::awaitable<void> run();
  /// Waits until everything is written, at most so long, and ends run().
  io::awaitable<bool> finish(Duration limit);

  std::function<void(const Error&)> on_error;

 private:
  io::awaitable<Result<void>> catch_up();

  VolumeClient& volume_;
  std::string path_;
  std::vector<LogLine> lines_;
  std::size_t written_ = 0;  ///< Lines known to be in the file.
  io::asio::steady_timer wake_;
  std::string last_error_;
  bool finishing_ = false;
  bool ended_ = false;
};

}  // namespace dt::supervisor
