#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "io/subprocess.h"
#include "io/within.h"
#include "launcher/backend/ssh/internal.h"
#include "launcher/shell_word.h"

namespace dt::launcher {
namespace {

using asio::ip::tcp;

/// Tries of a connection that sshd drops before its first word.
constexpr int kBannerTries = 8;

Result<Endpoints> resolve_now(const std::string& name, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    return fail(error == EAI_AGAIN ? ErrorKind::kUnavailable : ErrorKind::kInvalid,
                "{}: {}: is the name right, and does this machine's DNS know it?", name,
                ::gai_strerror(error));
  Endpoints endpoints;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    tcp::endpoint endpoint;
    if (one->ai_addrlen > endpoint.capacity()) continue;
    std::memcpy(endpoint.data(), one->ai_addr, one->ai_addrlen);
    endpoint.resize(one->ai_addrlen);
    endpoints.push_back(endpoint);
  }
  ::freeaddrinfo(found);
  if (endpoints.empty()) return fail(ErrorKind::kInvalid, "{}: it has no address", name);
  return endpoints;
}

}  // namespace

Error phase_error(const Target& target, std::string_view phase, const Error& error) {
  return error.at(fmt::format("{}: {}", target.written, phase));
}

awaitable<Result<Endpoints>> SshBackend::Impl::resolve(Target target) {
  boost::system::error_code ec;
  const auto literal = asio::ip::make_address(target.hostname, ec);
  if (!ec) {
    const tcp::endpoint endpoint(literal, target.port);
    co_return Endpoints(1, endpoint);
  }
  std::function<Result<Endpoints>()> work = [name = target.hostname, port = target.port] {
    return resolve_now(name, port);
  };
  const auto limit = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(options.connect_timeout_s));
  auto found = co_await threads.finish_within(limit, std::move(work), target.hostname);
  if (!found) co_return tl::unexpected(phase_error(target, "resolve", found.error()));
  co_return std::move(*found);
}

awaitable<Result<io::Fd>> SshBackend::Impl::connect_tcp(Target target, Endpoints endpoints,
                                                        std::string& address) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(options.connect_timeout_s));
  std::string problems;
  ErrorKind kind = ErrorKind::kUnavailable;
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    const auto left = (end - Clock::now()) / static_cast<std::int64_t>(endpoints.size() - i);
    tcp::socket socket(executor);
    auto try_one = [](tcp::socket& s, tcp::endpoint to) -> awaitable<Result<int>> {
      auto [ec] = co_await s.async_connect(to, io::tok);
      if (ec) co_return fail(ErrorKind::kUnavailable, "{}", ec.message());
      co_return 0;
    };
    auto connected = co_await io::within(left, try_one(socket, endpoints[i]), "no answer");
    address = endpoints[i].address().to_string();
    if (connected) {
      const int one = 1;
      const auto silence = static_cast<unsigned>(
          std::chrono::duration_cast<std::chrono::milliseconds>(limits.alive_interval).count() *
          (limits.alive_count_max + 1));
      ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof silence);
      boost::system::error_code ec;
      io::Fd fd(socket.release(ec));
      ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
      co_return std::move(fd);
    }
    kind = connected.error().kind;
    problems += fmt::format("{}{} port {}: {}", problems.empty() ? "" : "; ", address, target.port,
                            connected.error().message);
  }
  co_return fail(kind, "{}: connect to {}: is sshd running there, and is the port right?",
                 target.written, problems);
}

Result<io::Fd> SshBackend::Impl::start_proxy(SshSession& session, const Target& target) {
  std::string command = target.config.proxy_command;
  if (command.empty()) {
    // The last hop forwards to the host, and is itself reached by way of the others.
    const std::string& jump = target.config.proxy_jump;
    const std::size_t comma = jump.rfind(',');
    const std::string last = jump.substr(comma == std::string::npos ? 0 : comma + 1);
    command = "ssh -o BatchMode=yes";
    if (!options.config_file.empty())
      command += " -F " + shell_word(expand_home(options.config_file));
    for (const std::string& file : options.identities)
      command += " -i " + shell_word(expand_home(file));
    if (comma != std::string::npos) command += " -J " + shell_word(jump.substr(0, comma));
    std::string hop = last.rfind("ssh://", 0) == 0 ? last.substr(6) : last;
    const std::size_t colon = hop.rfind(':');
    const bool has_port = colon != std::string::npos && hop.find(']', colon) == std::string::npos &&
                          (hop.find(':') == colon || hop[colon - 1] == ']');
    if (has_port) command += " -p " + shell_word(hop.substr(colon + 1));
    command += fmt::format(" -W '[%h]:%p' -- {}",
                           shell_word(hop.substr(0, has_port ? colon : hop.size())));
  }
  command = expand_tokens(command, target.hostname, target.name, target.port, target.user);
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0)
    return tl::unexpected(errno_error(errno, "socketpair"));
  io::Fd ours(pair[0]);
  const io::Fd theirs(pair[1]);
  auto child = Subprocess::start({"/bin/sh", "-c", "exec " + command}, theirs.get(), theirs.get(),
                                 STDERR_FILENO);
  if (!child) return tl::unexpected(child.error());
  session.keep(std::make_shared<Subprocess>(std::move(*child)));
  return ours;
}

awaitable<Result<std::shared_ptr<SshSession>>> SshBackend::Impl::connect(Target target,
                                                                         std::string& address) {
  const bool proxied = !target.config.proxy_command.empty() || !target.config.proxy_jump.empty();
  Endpoints endpoints;
  if (!proxied) {
    auto found = co_await resolve(target);
    if (!found) co_return tl::unexpected(found.error());
    endpoints = std::move(*found);
  }
  // Hosts behind a jump host all come to its sshd first.
  const std::string& jump = target.config.proxy_jump;
  const std::string place = !proxied       ? endpoints.front().address().to_string()
                            : jump.empty() ? target.hostname
                                           : "jump " + jump;
  auto& slots = per_address[fmt::format("{}:{}", place, jump.empty() ? target.port : 0)];
  if (!slots) slots = std::make_shared<Semaphore>(executor, limits.per_address);
  const auto turns = slots;  // the map may grow meanwhile

  for (int attempt = 1;; ++attempt) {
    Semaphore::Permit here = co_await turns->acquire();
    Semaphore::Permit overall = co_await setups->acquire();
    auto made = SshSession::make(executor);
    if (!made) co_return tl::unexpected(phase_error(target, "connect", made.error()));
    const std::shared_ptr<SshSession> session = std::move(*made);
    io::Fd fd;
    if (proxied) {
      address = target.hostname;
      auto started = start_proxy(*session, target);
      if (!started) co_return tl::unexpected(phase_error(target, "ProxyCommand", started.error()));
      fd = std::move(*started);
    } else {
      auto connected = co_await connect_tcp(target, endpoints, address);
      if (!connected) co_return tl::unexpected(connected.error());
      fd = std::move(*connected);
    }
    if (auto set = set_options(*session, target); !set)
      co_return tl::unexpected(phase_error(target, "options", set.error()));

    Error late{
        ErrorKind::kTimeout,
        fmt::format("nothing more from {} port {} for {:.1f} s: does something other than "
                    "sshd listen there, or is the machine overloaded?",
                    address, target.port, std::chrono::duration<double>(limits.handshake).count())};
    const Watchdog watchdog(session, limits.handshake, std::move(late));
    auto shaken = co_await session->handshake(std::move(fd));
    if (!shaken) {
      if (session->before_banner() && attempt < kBannerTries) {
        // sshd's MaxStartups drops some of those who come together: come again, apart.
        here.release();
        overall.release();
        const auto most = std::min(50 << attempt, 2000);
        const auto pause =
            std::chrono::milliseconds(std::uniform_int_distribution<int>(20, most)(random));
        co_await io::sleep_for(pause);
        continue;
      }
      const bool dropped = session->before_banner();
      co_return fail(
          shaken.error().kind, "{}: handshake: {}{}", target.written, shaken.error().message,
          !dropped  ? ""
          : proxied ? " (before sshd's first word; the ProxyCommand's own words are in the log)"
                    : " (before sshd's first word: MaxStartups of sshd, or a firewall?)");
    }
    if (auto checked = check_host_key(*session, target); !checked) {
      session->close(checked.error());
      co_return tl::unexpected(phase_error(target, "host key", checked.error()));
    }
    auto proven = co_await authenticate(session, auth_plan(target), keys, threads);
    if (!proven) {
      session->close(proven.error());
      co_return tl::unexpected(phase_error(target, "authentication", proven.error()));
    }
    const SshHostConfig& config = target.config;
    session->keep_alive(
        config.alive_interval > Duration::zero() ? config.alive_interval : limits.alive_interval,
        config.alive_count_max > 0 ? config.alive_count_max : limits.alive_count_max);
    co_return session;
  }
}

}  // namespace dt::launcher
