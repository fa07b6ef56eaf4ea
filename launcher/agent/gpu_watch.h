/// The GPUs of the agent's host, watched by a process of its own: `dtagent --gpus` queries the
/// driver and writes the answers to a pipe. The driver of a defective GPU can block a caller for
/// ever, even against KILL: then it blocks that process alone, and the agent reports its silence.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "core/protocol/control_messages.h"
#include "io/asio.h"
#include "io/fd.h"

namespace dt::launcher {

/// The program `dtagent --gpus`: GpuHealth frames to stdout, one every `interval`, until the reader
/// is gone. Exit code 0, also if there is no GPU, which takes milliseconds.
int gpu_watch_main(Duration interval);

/// The agent's side. One thread.
class GpuWatch {
 public:
  struct Options {
    std::vector<std::string> argv = {"/proc/self/exe", "--gpus"};
    Duration first = std::chrono::seconds(1);     ///< Pause before it: short commands need none.
    Duration answer = std::chrono::seconds(5);    ///< How long answered() may take in all.
    Duration silence = std::chrono::seconds(30);  ///< Without a frame for so long: trouble.
    Duration again = std::chrono::seconds(60);    ///< Pause before a process that died is replaced.
  };

  GpuWatch(io::asio::any_io_executor executor, Options options);
  /// Kills the process.
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  /// Kills the process; run() returns.
  void stop();
  /// Watches until stopped or cancelled, or until it is known that there is no GPU. Once.
  /// `environment`: of the process, on top of this one's own.
  io::awaitable<void> run(std::vector<std::pair<std::string, std::string>> environment);

  /// Before run(): it begins without a pause.
  void hurry();
  /// Waits until the driver has answered or none is there; after hurry(), and not for ever.
  io::awaitable<void> answered();

  [[nodiscard]] const std::vector<GpuReport>& gpus() const { return gpus_; }
  /// What is wrong with all of them together; empty: nothing.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  /// The process's, until run() has reaped it; 0: there is none.
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  io::awaitable<void> one_process();
  io::awaitable<void> listen(io::Fd out);
  void take(const wire::Frame& frame);
  void note_answer();

  io::asio::any_io_executor executor_;
  Options options_;
  io::asio::steady_timer wake_;
  std::vector<std::pair<std::string, std::string>> environment_;
  bool stopped_ = false;
  bool nothing_there_ = false;
  bool has_answered_ = false;
  io::asio::steady_timer answer_by_;
  pid_t pid_ = 0;
  io::Fd process_;  ///< A handle of it, to kill it.
  std::vector<GpuReport> gpus_;
  std::string trouble_;
};

}  // namespace dt::launcher
