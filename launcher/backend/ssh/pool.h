/// The sessions of every host, shared by the commands that run there.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/files/hosts.h"
#include "io/asio.h"
#include "launcher/backend/exec.h"
#include "launcher/backend/ssh/connect.h"
#include "launcher/backend/ssh/once_log.h"
#include "launcher/backend/ssh/ssh.h"
#include "launcher/backend/ssh/stream.h"
#include "launcher/backend/ssh/target.h"

namespace dt::launcher {

/// One thread. Streams keep their session: they may outlive the pool.
class Pool final : public Exec {
 public:
  Pool(io::asio::any_io_executor executor, const Targets& targets, Connector& connector,
       const SshLimits& limits, OnceLog& log)
      : executor_(std::move(executor)),
        targets_(&targets),
        connector_(&connector),
        limits_(&limits),
        log_(&log) {}

  /// On a session of the host that has room for it; connects a further one if none has. Where a
  /// session dies meanwhile, tries once more on another.
  io::awaitable<Result<ExecStreamPtr>> open(Host host, std::string script) override;

  /// The address that a session which is up was dialed at; empty: none is, or it is proxied.
  [[nodiscard]] std::string address(const Host& host) const override;
  /// Ends the sessions of a host, and the commands on them.
  void disconnect(const Host& host) override;
  /// Ends the sessions on which nothing runs.
  void close_idle();

 private:
  /// A session, and how many commands use it.
  struct Shared {
    explicit Shared(const io::asio::any_io_executor& executor) : changed(executor, io::kNever) {}
    Connection connection;  ///< Its session is null until it is logged in.
    bool forwards_agent = false;
    bool connecting = true;
    std::size_t users = 0;
    std::size_t most_users = 0;  ///< Less than the limit where sshd refused more.
    bool served = false;         ///< A command ran on it.
    std::optional<Error> error;  ///< Why it could not be connected.
    io::asio::steady_timer changed;

    [[nodiscard]] bool is_alive() const {
      return connection.session && connection.session->alive();
    }
  };
  using SharedPtr = std::shared_ptr<Shared>;

  static std::shared_ptr<void> lease_of(const SharedPtr& shared);
  /// A session with room, which `lease` keeps reserved.
  io::awaitable<Result<SharedPtr>> acquire(Host host, std::shared_ptr<void>& lease);
  io::awaitable<void> connect(Host host, SharedPtr shared);

  io::asio::any_io_executor executor_;
  const Targets* targets_;
  Connector* connector_;
  const SshLimits* limits_;
  OnceLog* log_;
  std::map<Host, std::vector<SharedPtr>> sessions_;
};

}  // namespace dt::launcher
