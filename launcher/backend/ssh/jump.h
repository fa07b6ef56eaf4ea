/// Sessions to jump hosts, which carry the connections to the hosts behind them: one session per
/// jump host however many these are, and a channel of it for each. sshd's MaxSessions does not
/// count such channels.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/asio.h"
#include "io/fd.h"
#include "io/semaphore.h"
#include "launcher/backend/ssh/session.h"
#include "launcher/backend/ssh/target.h"

namespace dt::launcher {

/// One thread. Must outlive its coroutines; what is carried may outlive it.
class JumpHosts {
 public:
  /// The jump hosts that are being connected, each because the one before it is behind it.
  using Path = std::vector<std::string>;
  /// Makes a session.
  using Connect = std::function<io::awaitable<Result<SessionPtr>>(Target, Path)>;

  JumpHosts(io::asio::any_io_executor executor, io::SshOptions options, OnceLog& log,
            OpenSsh& openssh, Connect connect);

  /// The session of the last jump host before `target`, made by way of those before it. All who
  /// want it wait for one connection, and share its failure.
  io::awaitable<Result<SessionPtr>> session(Target target, Path path);
  /// A socket whose other end `carrier` connects with the target's sshd.
  io::awaitable<Result<io::Fd>> dial(SessionPtr carrier, Target target, Duration limit);

 private:
  struct Shared {
    explicit Shared(const io::asio::any_io_executor& executor)
        : turn(std::make_shared<io::Semaphore>(executor, 1)) {}
    std::shared_ptr<io::Semaphore> turn;  ///< To connect.
    SessionPtr session;
    std::optional<Error> error;
    std::chrono::steady_clock::time_point failed_at;
  };

  /// The last of a list of jump hosts, reached by way of the others.
  io::awaitable<Result<Target>> last_hop(std::string jumps);
  io::awaitable<Result<SessionPtr>> shared_session(Target hop, Path path);

  io::asio::any_io_executor executor_;
  Targets targets_;
  Connect connect_;
  std::map<std::string, std::shared_ptr<Shared>> shared_;
};

/// "[user@]host[:port]" or "ssh://...", as ProxyJump has it.
[[nodiscard]] Result<Host> parse_jump(std::string_view text);

}  // namespace dt::launcher
