#include <boost/asio/local/stream_protocol.hpp>
#include <cstdlib>

#include "io/within.h"
#include "launcher/backend/ssh/internal.h"

namespace dt::launcher {
namespace {

/// Keeps a channel's place on a connection.
std::shared_ptr<void> lease_of(const std::shared_ptr<Pooled>& pooled) {
  ++pooled->users;
  return {pooled.get(), [pooled](void*) { --pooled->users; }};
}

/// Carries bytes between a channel the host opened and our ssh-agent.
awaitable<void> splice(std::unique_ptr<SshStream> channel, std::string agent_socket) {
  io::UnixSocket socket(channel->session().executor());
  const asio::local::stream_protocol::endpoint endpoint(agent_socket);
  auto [ec] = co_await socket.async_connect(endpoint, io::tok);
  if (ec) co_return;
  auto agent = io::unix_stream(std::move(socket));
  auto carry = [](io::ByteStream& from, io::ByteStream& to) -> awaitable<void> {
    std::string buffer(std::size_t{16} << 10, '\0');
    for (;;) {
      auto n = co_await from.read(buffer);
      if (!n || *n == 0) break;
      const std::string_view bytes(buffer.data(), *n);
      auto sent = co_await to.write(bytes);
      if (!sent) break;
    }
    from.close();
    to.close();
  };
  using namespace asio::experimental::awaitable_operators;
  auto both = carry(*channel, *agent) && carry(*agent, *channel);
  co_await std::move(both);
}

}  // namespace

awaitable<Result<std::shared_ptr<Pooled>>> SshBackend::Impl::acquire(Host host,
                                                                     std::shared_ptr<void>& lease) {
  auto& all = pool[host];
  std::shared_ptr<Pooled> chosen;
  std::erase_if(all, [](const auto& one) { return !one->usable(); });
  for (const auto& one : all)
    if (!chosen && one->users < one->most_users) chosen = one;
  if (chosen) {
    lease = lease_of(chosen);
    while (chosen->connecting) co_await chosen->changed.async_wait(io::tok);
    if (chosen->error) co_return tl::unexpected(*chosen->error);
    co_return chosen;
  }
  chosen = std::make_shared<Pooled>(executor);
  chosen->most_users = limits.channels_per_session;
  all.push_back(chosen);
  lease = lease_of(chosen);
  // Also when this coroutine is stopped half-way, those who wait for it learn so.
  struct Announce {
    std::shared_ptr<Pooled> pooled;
    ~Announce() {
      pooled->connecting = false;
      if (!pooled->session && !pooled->error)
        pooled->error = Error{ErrorKind::kClosed, "the connection was given up"};
      pooled->changed.cancel();
    }
  };
  const Announce announce{chosen};
  const Target target = target_of(host);
  chosen->forward_agent = options.forward_agent || target.config.forward_agent;
  auto connected = co_await connect(target, chosen->address);
  if (!connected) {
    chosen->error = connected.error();
    co_return tl::unexpected(connected.error());
  }
  chosen->session = std::move(*connected);
  const char* agent = std::getenv("SSH_AUTH_SOCK");
  if (chosen->forward_agent && agent == nullptr) {
    warn_once("the ssh-agent cannot be forwarded: SSH_AUTH_SOCK is not set");
    chosen->forward_agent = false;
  }
  if (chosen->forward_agent) {
    auto accept = [session = std::weak_ptr(chosen->session),
                   socket = std::string(agent)](ssh_channel_struct* channel) {
      const auto live = session.lock();
      if (!live) return;
      // Ends with the channel, at the latest with the session.
      auto carried = splice(std::make_unique<SshStream>(live, channel, nullptr), socket);
      asio::co_spawn(live->executor(), std::move(carried), [](std::exception_ptr) {});
    };
    chosen->session->on_agent_channel(std::move(accept));
  }
  co_return chosen;
}

awaitable<Result<std::unique_ptr<SshStream>>> SshBackend::Impl::exec(Host host,
                                                                     std::string command) {
  // A session may die between two uses: then a new one, once.
  for (int deaths = 0;;) {
    std::shared_ptr<void> lease;
    auto pooled = co_await acquire(host, lease);
    if (!pooled) co_return tl::unexpected(pooled.error());
    const auto session = (*pooled)->session;
    auto stream = co_await SshStream::exec(session, command, (*pooled)->forward_agent, limits.exec,
                                           std::move(lease));
    if (stream) {
      (*pooled)->served = true;
      co_return std::move(*stream);
    }
    const bool died = !session->alive();
    if (!died && (*pooled)->users > 0) {
      // Its MaxSessions is smaller than what we thought: the next one may have room.
      (*pooled)->most_users = (*pooled)->users;
      continue;
    }
    if (!died && (*pooled)->served) {
      // sshd has not freed the place of the last command yet.
      session->close({ErrorKind::kUnavailable, "sshd runs no further command on it"});
      continue;
    }
    if (!died || ++deaths > 1)
      co_return tl::unexpected(stream.error().at(fmt::format("{}: exec", host)));
  }
}

}  // namespace dt::launcher
