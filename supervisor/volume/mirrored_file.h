/// A file on the shared volume that is kept equal to the journal, however long the volume stalls.
/// This base class decides when to write.
#pragma once

#include <functional>
#include <string>

#include "supervisor/volume/volume_client.h"

namespace dt::supervisor {

/// Makes `name`, in a folder above the file's, a link to it; false if the volume has no links.
/// Relative: the job folder may be mounted elsewhere on other machines.
io::awaitable<Result<bool>> link_below(VolumeClient& volume, std::string name, std::string file);

/// One thread.
class MirroredFile {
 public:
  /// `volume` outlives it.
  MirroredFile(VolumeClient& volume, std::string path);
  virtual ~MirroredFile() = default;

  /// Writes missing content until finish(), and repeats after failures. Calls on_error once per
  /// kind of trouble.
  io::awaitable<void> run();
  /// Waits until everything is written, at most `limit`, and ends run(); false if it is not.
  io::awaitable<bool> finish(Duration limit);

  /// Nothing is missing in the file.
  [[nodiscard]] bool is_written() const { return !is_behind(); }

  std::function<void(const Error&)> on_error;

 protected:
  /// There is more to write.
  void wake() { wake_.cancel(); }

  VolumeClient& volume_;
  std::string path_;

 private:
  [[nodiscard]] virtual bool is_behind() const = 0;
  /// Writes all content that is missing when it begins. Called again after a failure.
  virtual io::awaitable<Result<void>> catch_up() = 0;

  io::asio::steady_timer wake_;
  std::string last_error_;
  bool finishing_ = false;
  bool ended_ = false;
};

}  // namespace dt::supervisor
