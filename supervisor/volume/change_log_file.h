/// host_worker_log on the shared volume, kept equal to the journal: lines are written in order,
/// never lost or doubled.
#pragma once

#include <string>
#include <vector>

#include "core/files/change_log.h"
#include "core/job/records.h"
#include "supervisor/volume/mirrored_file.h"

namespace dt::supervisor {

/// One thread.
class ChangeLogFile final : public MirroredFile {
 public:
  using MirroredFile::MirroredFile;

  /// More lines of the journal, in order.
  void add(const std::vector<LogLine>& lines);

 private:
  [[nodiscard]] bool is_behind() const override { return written_ < lines_.size(); }
  io::awaitable<Result<void>> catch_up() override;

  std::vector<LogLine> lines_;
  std::size_t written_ = 0;  ///< Lines known to be in the file.
};

}  // namespace dt::supervisor
