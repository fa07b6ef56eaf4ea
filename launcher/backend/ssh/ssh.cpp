#include "launcher/backend/ssh/ssh.h"

#include "io/thread_pool.h"
#include "launcher/backend/ssh/connect.h"
#include "launcher/backend/ssh/once_log.h"
#include "launcher/backend/ssh/pool.h"
#include "launcher/backend/ssh/target.h"
#include "launcher/shell_word.h"

namespace dt::launcher {

namespace asio = io::asio;
using io::awaitable;

/// Each part uses those above it. Every coroutine of the backend holds all of them.
struct SshBackend::Parts {
  Parts(const asio::any_io_executor& executor, io::SshOptions options,
        std::vector<std::string> bundle, io::Log& log, SshLimits lim)
      : limits(lim),
        once_log(log),
        openssh(executor, limits.configs, limits.config),
        targets(std::move(options), once_log, openssh),
        connector(executor, targets, limits, threads, lookups, once_log, openssh),
        pool(executor, targets, connector, limits, once_log),
        bring_up(executor, std::move(bundle), pool, limits.bring_up, threads, log) {}

  SshLimits limits;
  io::ThreadPool threads{16};
  io::ThreadPool lookups{32};  ///< Name lookups do not wait behind an ssh-agent.
  OnceLog once_log;
  OpenSsh openssh;
  Targets targets;
  Connector connector;
  Pool pool;
  BringUp bring_up;
};

SshBackend::SshBackend(asio::any_io_executor executor, io::SshOptions options,
                       std::vector<std::string> bundle, io::Log& log, SshLimits limits)
    : parts_(
          std::make_shared<Parts>(executor, std::move(options), std::move(bundle), log, limits)) {}

SshBackend::~SshBackend() { parts_->pool.close_idle(); }

awaitable<Result<io::StreamPtr>> SshBackend::open(Host host, std::vector<std::string> argv) {
  const auto parts = parts_;
  co_return co_await parts->bring_up.open(host, argv);
}

std::string SshBackend::address(const Host& host) const { return parts_->pool.address(host); }

Exec* SshBackend::exec(const Host&) { return &parts_->pool; }

void SshBackend::disconnect(const Host& host) { parts_->pool.disconnect(host); }

std::string SshBackend::doing(const Host& host) const { return parts_->bring_up.doing(host); }

std::string SshBackend::remote_shell(const Host& host) const {
  return parts_->targets.ssh_command(host);
}

std::string SshBackend::reach_command(const Host& host) const {
  return fmt::format("{} {} true", remote_shell(host), shell_word(host.name));
}

}  // namespace dt::launcher
