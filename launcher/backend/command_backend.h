/// The backend whose commands are started by a program of this machine (core/launch/starter.h):
/// srun, qrsh, mpirun, kubectl or a template of the user's. One process for each host on purpose:
/// one host's trouble is the end of one process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/launch/starter.h"
#include "io/log.h"
#include "launcher/backend/backend.h"
#include "launcher/backend/bring_up.h"

namespace dt::launcher {

struct CommandLimits {
  std::size_t window = 64;                       ///< Programs that start commands at once.
  Duration start = std::chrono::seconds(20);     ///< From a program's start to that of its command.
  Duration patience = std::chrono::seconds(10);  ///< Until a busy host is news.
  Duration queue_holds = std::chrono::seconds(5);  ///< How long an answer of squeue holds.
  BringUpLimits bring_up;
};

/// One thread. The backend must outlive its coroutines, and be destroyed before the loop. Streams
/// may outlive it.
class CommandBackend final : public Backend {
 public:
  /// `bundle`: the local files every host needs, the agent first; read when first needed.
  CommandBackend(io::asio::any_io_executor executor, Starter starter,
                 std::vector<std::string> bundle, io::Log& log, CommandLimits limits = {});
  ~CommandBackend() override;

  io::awaitable<Result<io::StreamPtr>> open(Host host, std::vector<std::string> argv) override;
  /// The host's address by the resolver, once it has been reached; empty: the resolver knows none
  /// that other hosts could use.
  [[nodiscard]] std::string address(const Host& host) const override;
  [[nodiscard]] std::string doing(const Host& host) const override;
  [[nodiscard]] std::string reach_command(const Host& host) const override;
  [[nodiscard]] Exec* exec(const Host&) override;

 private:
  struct Parts;
  std::shared_ptr<Parts> parts_;
};

}  // namespace dt::launcher
