/// The backend for this machine: as command.h's, with nothing in front of dtagent and nothing to
/// copy.
#pragma once

#include <string>

#include "launcher/backend/backend.h"
#include "launcher/backend/exec.h"

namespace dt::launcher {

/// Runs scripts here, whatever the host is.
class LocalExec final : public Exec {
 public:
  io::awaitable<Result<ExecStreamPtr>> open(Host host, std::string script) override;
  [[nodiscard]] std::string address(const Host&) const override { return "127.0.0.1"; }
};

class LocalBackend final : public Backend {
 public:
  /// `program`: dtagent; empty: the one in the running program's folder.
  explicit LocalBackend(std::string program = {});

  /// Whatever `host` is, the command runs here. The stream of a command that failed ends with
  /// the command's error message.
  io::awaitable<Result<io::StreamPtr>> open(Host host, std::vector<std::string> argv) override;
  /// 127.0.0.1
  [[nodiscard]] std::string address(const Host&) const override { return "127.0.0.1"; }
  [[nodiscard]] Exec* exec(const Host&) override { return &exec_; }

 private:
  std::string program_;
  LocalExec exec_;
};

}  // namespace dt::launcher
