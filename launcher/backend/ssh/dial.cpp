#include "launcher/backend/ssh/dial.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstring>

#include "io/within.h"

namespace dt::launcher {
namespace {

namespace asio = io::asio;
using asio::ip::tcp;
using io::awaitable;

/// There is no such name, or no address of it; else it may be known later.
bool is_unknown(int error) { return error == EAI_NONAME || error == EAI_NODATA; }

Result<Endpoints> resolve_now(const std::string& name, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    return fail(is_unknown(error) ? ErrorKind::kInvalid : ErrorKind::kUnavailable,
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

awaitable<Result<int>> connect_one(tcp::socket& socket, tcp::endpoint to) {
  auto [ec] = co_await socket.async_connect(to, io::tok);
  if (ec) co_return fail(ErrorKind::kUnavailable, "{}", ec.message());
  co_return 0;
}

/// Small packets are sent at once; unanswered for `silence`, the connection ends.
void set_tcp_options(int socket, Duration silence) {
  const int one = 1;
  const std::uint32_t silence_ms = milliseconds(silence);
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof silence_ms);
}

Result<Dialed> start_proxy(const asio::any_io_executor& executor, const Target& target) {
  auto pair = io::make_socket_pair();
  if (!pair) return tl::unexpected(pair.error());
  auto proxy = ProxyCommand::start(executor, target.config.proxy_command, pair->theirs);
  if (!proxy) return tl::unexpected(proxy.error());
  return Dialed{std::move(pair->ours), target.hostname, std::move(*proxy)};
}

}  // namespace

awaitable<Result<Endpoints>> resolve(Target target, Duration limit, io::ThreadPool& threads) {
  boost::system::error_code ec;
  const auto literal = asio::ip::make_address(target.hostname, ec);
  if (!ec) {
    const tcp::endpoint endpoint(literal, target.port);
    co_return Endpoints(1, endpoint);
  }
  std::function<Result<Endpoints>()> work = [name = target.hostname, port = target.port] {
    return resolve_now(name, port);
  };
  auto found = co_await threads.finish_within(limit, std::move(work), target.hostname);
  if (!found) co_return tl::unexpected(phase_error(target, "resolve", found.error()));
  co_return std::move(*found);
}

awaitable<Result<Dialed>> dial(Target target, Endpoints endpoints, io::SshOptions options,
                               Duration silence) {
  if (!target.config.proxy_command.empty()) {
    const auto executor = co_await asio::this_coro::executor;
    auto started = start_proxy(executor, target);
    if (!started) co_return tl::unexpected(phase_error(target, "ProxyCommand", started.error()));
    co_return std::move(*started);
  }
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + options.connect_timeout;
  std::string problems;
  ErrorKind kind = ErrorKind::kUnavailable;
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    const auto left = (end - Clock::now()) / static_cast<std::int64_t>(endpoints.size() - i);
    tcp::socket socket(co_await asio::this_coro::executor);
    auto connected = co_await io::within(left, connect_one(socket, endpoints[i]), "no answer");
    std::string address = endpoints[i].address().to_string();
    if (connected) {
      set_tcp_options(socket.native_handle(), silence);
      boost::system::error_code ec;
      Dialed dialed{io::Fd(socket.release(ec)), std::move(address), nullptr};
      ::fcntl(dialed.socket.get(), F_SETFD, FD_CLOEXEC);
      co_return std::move(dialed);
    }
    kind = connected.error().kind;
    problems += fmt::format("{}{} port {}: {}", problems.empty() ? "" : "; ", address, target.port,
                            connected.error().message);
  }
  const std::string port = fmt::format(":{}", target.port);
  const bool is_count = target.port >= 2 && target.port <= 16 && target.written.ends_with(port);
  const std::string_view host =
      std::string_view(target.written).substr(0, target.written.size() - port.size());
  std::string hint;
  if (is_count)
    hint = fmt::format(" If {} workers are meant: {} slots={}", target.port, host, target.port);
  co_return fail(kind, "{}: connect to {}: is sshd running there, and is the port right?{}",
                 target.written, problems, hint);
}

}  // namespace dt::launcher
