/// Processes' output: whole, as written, into a file per process in the job folder; and, cut into
/// prefixed lines, to the console.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "core/files/hosts.h"
#include "core/protocol/control_messages.h"
#include "io/awaitable.h"
#include "io/line_prefixer.h"

namespace dt::supervisor {

class VolumeClient;

/// One thread. `volume` outlives it. A stalled volume costs bounded memory: the oldest output is
/// dropped then, and the file reports how much.
class ProcessOutput {
 public:
  struct Options {
    std::string folder;
    bool prefix = true;
    std::uint64_t limit = 0;  ///< Bytes of a log file and its older part; 0: no limit.
  };
  using Console = std::function<void(bool is_stderr, std::string_view text)>;

  ProcessOutput(VolumeClient& volume, Options options, Console console)
      : volume_(volume), options_(std::move(options)), console_(std::move(console)) {}

  /// Before a process's first output; harmless if it is open already. Files: worker-3.log,
  /// server-0.log, prepare-<host>.log. Prefix: "[worker 3 10.0.0.7] ".
  void open(ProcessId process, const Host& host);
  void write(const dt::Output& message);
  /// The process has ended: its last, unfinished line is shown.
  void close(ProcessId process);
  void close_all();

  /// Hands collected output to the volume about five times a second, until cancelled.
  io::awaitable<void> run();

 private:
  struct Stream {
    std::string file;
    std::string collected;
    io::LinePrefixer out;
    io::LinePrefixer err;
  };
  void store(Stream& stream);
  void show(bool is_stderr, const std::string& text) const {
    if (!text.empty()) console_(is_stderr, text);
  }

  VolumeClient& volume_;
  Options options_;
  Console console_;
  std::map<ProcessId, Stream> streams_;
};

}  // namespace dt::supervisor
