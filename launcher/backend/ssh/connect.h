/// From a target to a session on which its user is logged in.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>

#include "io/asio.h"
#include "io/semaphore.h"
#include "launcher/backend/ssh/dial.h"
#include "launcher/backend/ssh/host_key.h"
#include "launcher/backend/ssh/key_store.h"
#include "launcher/backend/ssh/session.h"
#include "launcher/backend/ssh/ssh.h"
#include "launcher/backend/ssh/target.h"

namespace dt::launcher {

/// A session, logged in.
struct Connection {
  std::shared_ptr<SshSession> session;
  std::string address;  ///< The host's, as connected to.
};

/// Makes sessions: socket, handshake, host key, authentication. Bounds how many are being made at
/// once, overall and per address.
class Connector {
 public:
  Connector(io::asio::any_io_executor executor, const Targets& targets, const SshLimits& limits,
            ThreadPool& threads, OnceLog& log);

  /// Tries again, after a pause, while sshd drops the connection before its banner.
  io::awaitable<Result<Connection>> connect(Target target);

 private:
  /// One try. `is_dropped`: the server hung up before its banner.
  io::awaitable<Result<Connection>> try_connect(const Target& target, const Endpoints& endpoints,
                                                bool& is_dropped);
  io::awaitable<Result<void>> log_in(std::shared_ptr<SshSession> session, const Target& target);
  /// Bounds the connections that are being made to a host's address, or to its jump host.
  std::shared_ptr<Semaphore> permits_for(const Target& target, const Endpoints& endpoints);

  io::asio::any_io_executor executor_;
  const Targets* targets_;
  const SshLimits* limits_;
  ThreadPool* threads_;
  HostKeys host_keys_;
  KeyStore keys_;
  std::shared_ptr<Semaphore> in_flight_;
  std::map<std::string, std::shared_ptr<Semaphore>> per_address_;
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace dt::launcher
