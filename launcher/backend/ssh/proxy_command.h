/// The process of a ProxyCommand.
#pragma once

#include <memory>
#include <string>

#include "io/asio.h"
#include "io/fd.h"
#include "io/subprocess.h"

namespace dt::launcher {

/// Killed with its group on destruction. What it writes to stderr goes to ours, and its end is
/// kept.
class ProxyCommand {
 public:
  /// Runs `command` by /bin/sh with `socket` as its stdin and stdout.
  [[nodiscard]] static Result<std::shared_ptr<ProxyCommand>> start(
      const io::asio::any_io_executor& executor, std::string command, const io::Fd& socket);
  ~ProxyCommand();
  ProxyCommand(const ProxyCommand&) = delete;
  ProxyCommand& operator=(const ProxyCommand&) = delete;

  /// How a command ended that no connection came from, with its last words. Such a one ends soon;
  /// empty if it does not.
  io::awaitable<std::string> end();
  /// There is no such program: another try would not help. After end().
  [[nodiscard]] bool is_absent() const { return is_absent_; }

 private:
  struct Words;
  ProxyCommand(std::string command, io::Subprocess process, std::shared_ptr<Words> words)
      : command_(std::move(command)), process_(std::move(process)), words_(std::move(words)) {}

  std::string command_;
  io::Subprocess process_;
  std::shared_ptr<Words> words_;
  bool is_absent_ = false;
};

}  // namespace dt::launcher
