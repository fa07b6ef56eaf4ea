/// Watches host_worker: reads it through the volume helper when core/files/file_watch.h wants to
/// look, sooner on a hint, and passes decisions on.
#pragma once

#include <functional>
#include <string>

#include "core/files/file_watch.h"
#include "io/asio.h"
#include "supervisor/volume/volume_client.h"

namespace dt::supervisor {

/// One thread. `volume` outlives it.
class HostWorker {
 public:
  struct Options {
    std::string folder;  ///< The job folder; the file in it is FileWatch::Options::name.
    std::string accepted;
    FileWatch::Options watch = {};
  };

  /// `decided` is called for accepted, refused and cleared edits only.
  HostWorker(VolumeClient& volume, Options options, std::function<void(FileWatchResult)> decided);

  /// Until stop() or cancelled.
  io::awaitable<void> run();
  void stop();
  /// The file may just have changed: look at once.
  void nudge();
  [[nodiscard]] const FileWatch& state() const { return machine_; }

 private:
  io::awaitable<Observation> look();

  VolumeClient& volume_;
  std::string path_;
  FileWatch machine_;
  std::function<void(FileWatchResult)> decided_;
  io::asio::steady_timer wake_;
  bool nudged_ = false;
  bool stopped_ = false;
};

}  // namespace dt::supervisor
