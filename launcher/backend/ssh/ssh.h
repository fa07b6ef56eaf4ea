/// The ssh backend: one connection per host by libssh, all hosts at once on the caller's loop,
/// channels for commands. Errors name host, phase and remedy.
///
/// One thread. The backend must outlive its coroutines, and be destroyed before the loop.
/// Streams may outlive it; their connections end with the last of them.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <memory>
#include <string>
#include <vector>

#include "core/base/time.h"
#include "io/job/spec.h"
#include "io/log.h"
#include "launcher/backend/backend.h"
#include "launcher/backend/bring_up.h"
#include "launcher/backend/exec.h"

namespace dt::launcher {

struct SshLimits {
  Duration handshake = std::chrono::seconds(20);  ///< Key exchange and authentication together.
  Duration exec = std::chrono::seconds(20);       ///< From asking for a command to its start.
  BringUpLimits bring_up = {};
  Duration config = std::chrono::seconds(10);         ///< One answer of OpenSSH's client.
  std::size_t configs = 16;                           ///< Of its processes at once.
  std::size_t in_flight = 128;                        ///< Connections being set up at once.
  std::size_t per_address = 8;                        ///< To one address, by one ProxyCommand.
  Duration proxy_turn = std::chrono::seconds(5);      ///< One by ProxyCommand no longer counts.
  std::size_t channels_per_session = 8;               ///< Below sshd's MaxSessions of 10.
  Duration alive_interval = std::chrono::seconds(5);  ///< Unless the ssh config sets another.
  int alive_count_max = 3;
};

class SshBackend final : public Backend {
 public:
  /// `bundle`: the local files every host needs, the agent among them; read when first needed.
  SshBackend(boost::asio::any_io_executor executor, io::SshOptions options,
             std::vector<std::string> bundle, io::Log& log, SshLimits limits = {});
  ~SshBackend() override;

  io::awaitable<Result<io::StreamPtr>> open(Host host, std::vector<std::string> argv) override;
  [[nodiscard]] std::string address(const Host& host) const override;
  [[nodiscard]] std::string reach_command(const Host& host) const override;
  [[nodiscard]] Exec* exec(const Host&) override;

  /// Ends the connections to a host, as a broken network would.
  void disconnect(const Host& host) override;
  [[nodiscard]] std::string doing(const Host& host) const override;
  [[nodiscard]] std::string remote_shell(const Host& host) const override;

 private:
  struct Parts;
  std::shared_ptr<Parts> parts_;
};

}  // namespace dt::launcher
