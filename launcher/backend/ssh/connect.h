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
#include "launcher/backend/ssh/jump.h"
#include "launcher/backend/ssh/key_store.h"
#include "launcher/backend/ssh/session.h"
#include "launcher/backend/ssh/ssh.h"
#include "launcher/backend/ssh/target.h"

namespace dt::launcher {

/// A session, logged in.
struct Connection {
  SessionPtr session;
  std::string address;  ///< The host's, as connected to; empty: by way of another machine.
};

/// Makes sessions: socket, handshake, host key, authentication. Bounds how many are being made at
/// once: overall, to one address, and by one ProxyCommand, whose processes mostly log in to one
/// machine.
class Connector {
 public:
  Connector(io::asio::any_io_executor executor, const Targets& targets, const SshLimits& limits,
            io::ThreadPool& threads, io::ThreadPool& lookups, OnceLog& log, OpenSsh& openssh);

  /// Tries again, after a pause, while sshd drops the connection before its banner.
  io::awaitable<Result<Connection>> connect(Target target) { return connect_at(target, {}); }

 private:
  /// Where a target's sshd is: at addresses, or behind a jump host. Neither: a ProxyCommand knows.
  struct Way {
    Endpoints endpoints;
    SessionPtr carrier;
  };
  io::awaitable<Result<Connection>> connect_at(Target target, JumpHosts::Path path);
  io::awaitable<Result<SessionPtr>> connect_hop(Target hop, JumpHosts::Path path);
  io::awaitable<Result<Way>> find_way(Target target, JumpHosts::Path path);
  io::awaitable<Result<Dialed>> dial_by(Way way, Target target);
  /// One try. `is_dropped`: the server hung up before its banner.
  io::awaitable<Result<Connection>> try_connect(const Target& target, const Way& way,
                                                bool& is_dropped);
  io::awaitable<Result<void>> log_in(SessionPtr session, const Target& target);
  /// Bounds the connections that are being made to one sshd, or by way of one.
  std::shared_ptr<io::Semaphore> permits_for(const Target& target, const Way& way);

  io::asio::any_io_executor executor_;
  const Targets* targets_;
  const SshLimits* limits_;
  io::ThreadPool* threads_;
  io::ThreadPool* lookups_;
  HostKeys host_keys_;
  KeyStore keys_;
  JumpHosts jump_hosts_;
  std::shared_ptr<io::Semaphore> in_flight_;
  std::map<std::string, std::shared_ptr<io::Semaphore>> permits_;
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace dt::launcher
