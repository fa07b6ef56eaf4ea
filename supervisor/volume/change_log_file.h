/// host_worker_log on the shared volume, kept equal to the journal: lines are written in order,
/// never lost or doubled. What others have made of it is set aside.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/files/change_log.h"
#include "supervisor/volume/mirrored_file.h"

namespace dt::supervisor {

/// One thread.
class ChangeLogFile final : public MirroredFile {
 public:
  /// `path`: among the job's files. `seen_at`: its name in the job folder, a link to it or a copy.
  ChangeLogFile(VolumeClient& volume, std::string path, std::string seen_at)
      : MirroredFile(volume, std::move(path)), seen_at_(std::move(seen_at)) {}

  /// More lines of the journal, in order.
  void add(const std::vector<LogLine>& lines);
  /// run() looks at both names again, as it does with each line.
  void look();
  /// Once, before run(): makes the files of a new job.
  io::awaitable<Result<void>> catch_up() override;
  /// Where the last text of others is; empty without one.
  [[nodiscard]] const std::string& foreign() const { return foreign_; }

  /// A text of others was found, and is now in this file.
  std::function<void(const std::string& moved)> on_foreign;

 private:
  [[nodiscard]] bool is_behind() const override { return looked_ != asked_; }
  io::awaitable<Result<void>> mend(std::string path, std::string whole);

  std::string seen_at_;
  std::string text_;  ///< All lines.
  /// How often look() was called, and had been when the files were last found or made whole.
  std::uint64_t asked_ = 0, looked_ = 0;
  std::string foreign_;
};

}  // namespace dt::supervisor
