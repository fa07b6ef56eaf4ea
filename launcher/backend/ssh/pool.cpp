#include "launcher/backend/ssh/pool.h"

#include "core/base/lookup.h"
#include "io/at_end.h"
#include "io/subprocess.h"
#include "launcher/backend/bundle.h"
#include "launcher/backend/ssh/splice.h"

namespace dt::launcher {

using io::awaitable;

std::shared_ptr<void> Pool::lease_of(const SharedPtr& shared) {
  ++shared->users;
  return {shared.get(), [shared](void*) { --shared->users; }};
}

awaitable<Result<Pool::SharedPtr>> Pool::acquire(Host host, std::shared_ptr<void>& lease) {
  auto& all = sessions_[host];
  std::erase_if(all, [](const auto& one) { return !one->connecting && !one->is_alive(); });
  SharedPtr chosen;
  for (const auto& one : all)
    if (!chosen && one->users < one->most_users) chosen = one;
  if (chosen) {
    lease = lease_of(chosen);
    while (chosen->connecting) co_await chosen->changed.async_wait(io::tok);
  } else {
    chosen = std::make_shared<Shared>(executor_);
    chosen->most_users = limits_->channels_per_session;
    all.push_back(chosen);
    lease = lease_of(chosen);
    // Wakes those who wait for the session, also when the coroutine that connects is cancelled.
    const io::AtEnd connecting([chosen] {
      chosen->connecting = false;
      if (!chosen->connection.session && !chosen->error)
        chosen->error = Error{ErrorKind::kClosed, "the connection was given up"};
      chosen->changed.cancel();
    });
    co_await connect(host, chosen);
  }
  if (chosen->error) co_return tl::unexpected(*chosen->error);
  co_return chosen;
}

awaitable<void> Pool::connect(Host host, SharedPtr shared) {
  auto target = co_await targets_->find(host);
  if (!target) {
    shared->error = target.error();
    co_return;
  }
  auto connected = co_await connector_->connect(*target);
  if (!connected) {
    targets_->forget(host);
    shared->error = connected.error();
    co_return;
  }
  shared->connection = std::move(*connected);
  if (!targets_->options().forward_agent && !target->config.forward_agent) co_return;
  const auto agent = io::variable("SSH_AUTH_SOCK");
  shared->forwards_agent = agent.has_value();
  if (agent)
    forward_agent(shared->connection.session, *agent);
  else
    log_->warn("the ssh-agent cannot be forwarded: SSH_AUTH_SOCK is not set");
}

awaitable<Result<ExecStreamPtr>> Pool::open(Host host, std::string script) {
  const std::string command = login_command(script);
  // A session may die between two uses: then a new one, once.
  for (int deaths = 0;;) {
    std::shared_ptr<void> lease;
    auto acquired = co_await acquire(host, lease);
    if (!acquired) co_return tl::unexpected(acquired.error());
    Shared& shared = **acquired;
    const auto session = shared.connection.session;
    auto stream = co_await SshStream::exec(session, command, shared.forwards_agent, limits_->exec,
                                           std::move(lease));
    if (stream) {
      shared.served = true;
      ExecStreamPtr running = std::move(*stream);
      co_return std::move(running);
    }
    const bool died = !session->alive();
    if (!died && shared.users > 0) {
      // Its MaxSessions is smaller than our limit: another session may have room.
      shared.most_users = shared.users;
      continue;
    }
    if (!died && shared.served) {
      // sshd has not freed the place of the last command yet.
      session->close({ErrorKind::kUnavailable, "sshd runs no further command on it"});
      continue;
    }
    if (!died || ++deaths > 1)
      co_return tl::unexpected(stream.error().at(fmt::format("{}: exec", host)));
  }
}

std::string Pool::address(const Host& host) const {
  for (const auto& one : value_in(sessions_, host))
    if (one->is_alive()) return one->connection.address;
  return {};
}

void Pool::disconnect(const Host& host) {
  for (const auto& one : value_in(sessions_, host))
    if (one->connection.session)
      one->connection.session->close({ErrorKind::kUnavailable, "disconnected"});
}

void Pool::close_idle() {
  for (const auto& [host, all] : sessions_)
    for (const auto& one : all)
      if (one->connection.session && one->users == 0)
        one->connection.session->close({ErrorKind::kClosed, "the launcher is going away"});
}

}  // namespace dt::launcher
