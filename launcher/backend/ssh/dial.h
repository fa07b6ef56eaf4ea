/// A socket to a host's sshd: by TCP, or by the process of a ProxyCommand or ProxyJump.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <string>
#include <vector>

#include "io/asio.h"
#include "io/fd.h"
#include "io/thread_pool.h"
#include "launcher/backend/ssh/ssh.h"
#include "launcher/backend/ssh/target.h"

namespace dt::launcher {

using Endpoints = std::vector<io::asio::ip::tcp::endpoint>;

/// A connected socket.
struct Dialed {
  io::Fd socket;
  std::string address;          ///< The host's, as connected to.
  std::shared_ptr<void> proxy;  ///< The process behind the socket; null: none.
};

class Dialer {
 public:
  /// `limits` give the silence after which the kernel ends a TCP connection.
  Dialer(const io::SshOptions& options, const SshLimits& limits, ThreadPool& threads)
      : options_(&options), limits_(&limits), threads_(&threads) {}

  /// The addresses of a host that is reached directly.
  io::awaitable<Result<Endpoints>> resolve(Target target);
  /// Tries the addresses in turn, within the connect timeout for all.
  io::awaitable<Result<Dialed>> connect(Target target, Endpoints endpoints);
  [[nodiscard]] Result<Dialed> start_proxy(const Target& target) const;

 private:
  [[nodiscard]] Duration timeout() const;

  const io::SshOptions* options_;
  const SshLimits* limits_;
  ThreadPool* threads_;
};

}  // namespace dt::launcher
