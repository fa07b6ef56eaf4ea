/// The GPUs of the agent's host, watched by a process of its own: `dtagent --gpus` asks the driver
/// and says what it hears on a pipe. A driver whose GPU is sick can hold a caller for ever, in a
/// wait that not even KILL ends; it then holds that process, while the agent goes on, and the
/// silence is what it reports.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/protocol/control_messages.h"
#include "io/asio.h"
#include "io/fd.h"

namespace dt::launcher {

/// The program `dtagent --gpus`: GpuHealth frames to stdout, one every `interval`, until nobody
/// reads them. Its exit code: 0 too if there is nothing to watch, which takes milliseconds.
int gpu_watch_main(Duration interval);

/// The agent's side. One thread.
class GpuWatch {
 public:
  struct Options {
    std::vector<std::string> argv = {"/proc/self/exe", "--gpus"};
    Duration silence = std::chrono::seconds(30);  ///< So long without a word is trouble.
    Duration again = std::chrono::seconds(60);    ///< After the process has died.
  };

  GpuWatch(io::asio::any_io_executor executor, Options options);
  /// Kills the process.
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  /// From now on. Only the first call counts. `environment`: on top of this process's own.
  void begin(std::vector<std::pair<std::string, std::string>> environment);
  /// Kills the process; run() returns.
  void stop();
  /// Until stopped or cancelled, or until it is known that there is nothing to watch.
  io::awaitable<void> run();

  [[nodiscard]] const std::vector<GpuReport>& gpus() const { return gpus_; }
  /// Of all of them together; empty: none.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  /// Of the process, also until it is reaped by run(); 0: none.
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  io::awaitable<void> one_process();
  io::awaitable<void> listen(io::Fd out);
  void take(const wire::Frame& frame);

  io::asio::any_io_executor executor_;
  Options options_;
  io::asio::steady_timer wake_;
  std::vector<std::pair<std::string, std::string>> environment_;
  bool wanted_ = false;
  bool stopped_ = false;
  bool nothing_there_ = false;
  pid_t pid_ = 0;
  io::Fd process_;  ///< A handle of it, to kill it.
  std::vector<GpuReport> gpus_;
  std::string trouble_;
};

}  // namespace dt::launcher
