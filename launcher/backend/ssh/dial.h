/// A socket to a host's sshd: by TCP, or by the process of a ProxyCommand.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <string>
#include <vector>

#include "io/asio.h"
#include "io/fd.h"
#include "io/thread_pool.h"
#include "launcher/backend/ssh/proxy_command.h"
#include "launcher/backend/ssh/target.h"

namespace dt::launcher {

using Endpoints = std::vector<io::asio::ip::tcp::endpoint>;

/// A connected socket.
struct Dialed {
  io::Fd socket;
  std::string address;                  ///< The host's, as connected to.
  std::shared_ptr<ProxyCommand> proxy;  ///< What is behind the socket; null: none.
};

/// The addresses of a host that is reached directly.
io::awaitable<Result<Endpoints>> resolve(Target target, Duration limit, io::ThreadPool& threads);
/// Tries the addresses in turn, within the connect timeout for all; with a ProxyCommand there are
/// none.
/// `silence`: the kernel ends a TCP connection that is unanswered for so long.
io::awaitable<Result<Dialed>> dial(Target target, Endpoints endpoints, io::SshOptions options,
                                   Duration silence);

}  // namespace dt::launcher
