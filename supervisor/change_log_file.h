/// host_worker_log on the shared volume, kept equal to what the journal says: written in order,
/// never lost or doubled.
#pragma once

#include <string>
#include <vector>

#include "core/change_log.h"
#include "core/job_records.h"
#include "supervisor/catching_up.h"
#include "supervisor/volume.h"

namespace dt::supervisor {

/// One thread. `volume` outlives it.
class ChangeLogFile final : public CatchingUp {
 public:
  ChangeLogFile(io::asio::any_io_executor executor, VolumeClient& volume, std::string path);

  /// More lines of the journal, in order.
  void add(const std::vector<LogLine>& lines);

 private:
  [[nodiscard]] bool is_behind() const override { return written_ < lines_.size(); }
  io::awaitable<Result<void>> catch_up() override;

  VolumeClient& volume_;
  std::string path_;
  std::vector<LogLine> lines_;
  std::size_t written_ = 0;  ///< Lines known to be in the file.
};

}  // namespace dt::supervisor
