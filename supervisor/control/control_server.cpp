#include "supervisor/control/control_server.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "io/frame_channel.h"
#include "io/job/master_folders.h"

namespace dt::supervisor {

using io::awaitable;
using io::tok;
using namespace std::chrono_literals;
namespace asio = io::asio;

namespace {

/// Between looks whether the socket is still there.
constexpr auto kSocketLook = 1s;

io::Console lost_note(std::uint64_t bytes) {
  return {false,
          fmt::format("[{} bytes were not shown here: this terminal was too slow]\n", bytes)};
}

bool is_same_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == ::getuid() || peer.uid == 0);
}

}  // namespace

struct ControlServer::Client {
  Client(const asio::any_io_executor& executor, io::UnixSocket socket, std::size_t limit)
      : channel(executor, io::unix_stream(std::move(socket)), limit) {}
  io::FrameChannel channel;
  bool console = false;
  bool owner = false;
  std::uint64_t lost = 0;  ///< Bytes dropped since the last ones sent.
};

ControlServer::ControlServer(asio::any_io_executor executor, Options options, Handler handler)
    : executor_(executor),
      options_(std::move(options)),
      handler_(std::move(handler)),
      acceptor_(executor),
      group_(executor) {}

ControlServer::~ControlServer() = default;

Result<void> ControlServer::listen(const std::string& path) {
  path_ = path;
  return open();
}

Result<void> ControlServer::open() {
  if (path_.size() > io::kLongestSocket)
    return fail(ErrorKind::kInvalid,
                "{}: the path is too long for a socket, {} characters at most: set XDG_RUNTIME_DIR "
                "to a shorter folder",
                path_, io::kLongestSocket);
  auto place = io::make_socket_folder(path_);
  if (!place) return tl::unexpected(place.error());
  path_ = std::move(*place);
  boost::system::error_code ec;
  const asio::local::stream_protocol::endpoint endpoint(path_);
  io::UnixSocket probe(executor_);
  probe.connect(endpoint, ec);
  if (!ec) return fail(ErrorKind::kDenied, "another supervisor answers on {}", path_);
  ::unlink(path_.c_str());
  const mode_t old = ::umask(0177);
  acceptor_.open(endpoint.protocol(), ec);
  if (!ec) acceptor_.bind(endpoint, ec);
  ::umask(old);
  if (!ec) acceptor_.listen(asio::socket_base::max_listen_connections, ec);
  if (ec) return tl::unexpected(io::asio_error(ec, "listen on " + path_));
  return {};
}

awaitable<void> ControlServer::keep_socket() {
  for (;;) {
    co_await io::sleep_for(kSocketLook);
    struct stat st {};
    if (stopped_ || ::lstat(path_.c_str(), &st) == 0) continue;
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    const std::string before = path_;
    if (open() && path_ != before && on_moved) on_moved();
  }
}

awaitable<void> ControlServer::run() {
  co_await asio::this_coro::throw_if_cancelled(false);
  group_.spawn(keep_socket());
  for (;;) {
    io::UnixSocket socket(executor_);
    auto [ec] = co_await acceptor_.async_accept(socket, tok);
    const auto cancelled = co_await asio::this_coro::cancellation_state;
    if (stopped_ || cancelled.cancelled() != asio::cancellation_type::none) break;
    if (ec) {  // out of descriptors, or the socket is being made again: later again
      co_await io::sleep_for(100ms);
      continue;
    }
    if (!is_same_user(socket.native_handle()) || clients_.size() >= options_.connections) {
      ++kept_out_.refused;
      continue;
    }
    // Room for replies besides the console's own limit.
    auto client = std::make_shared<Client>(executor_, std::move(socket),
                                           options_.console_limit + (std::size_t{64} << 20));
    clients_.push_back(client);
    group_.spawn(write(client));
    group_.spawn(serve(client));
  }
  stop();
  ::unlink(path_.c_str());
  ::rmdir(path_.substr(0, path_.rfind('/')).c_str());  // an agent's files keep it
  for (const auto& client : clients_) client->channel.close();
  group_.cancel();
  co_await group_.join();
}

void ControlServer::stop() {
  stopped_ = true;
  boost::system::error_code ignored;
  acceptor_.close(ignored);
}

/// Keeps the client alive as long as its channel is being written to.
awaitable<void> ControlServer::write(std::shared_ptr<Client> client) {
  co_await client->channel.write_loop();
}

awaitable<void> ControlServer::serve(std::shared_ptr<Client> client) {
  co_await asio::this_coro::throw_if_cancelled(false);
  co_await requests(client);
  client->channel.close();
  clients_.remove(client);
  if (client->owner) {
    --owners_;
    if (!ended_ && !stopped_ && on_owner_gone) on_owner_gone();
  }
}

awaitable<void> ControlServer::requests(std::shared_ptr<Client> client) {
  for (;;) {
    auto frame = co_await client->channel.receive();
    if (!frame && frame.error().kind != ErrorKind::kProtocol) co_return;
    Result<io::ControlRequest> request = fail(ErrorKind::kProtocol, "not a request");
    if (frame && frame->type == io::ControlRequest::kType)
      request = wire::parse<io::ControlRequest>(frame->body);
    if (!request) {
      ++kept_out_.dropped;
      co_return;
    }
    auto ask = control_ask_from_json(request->json);
    const bool is_console = ask && ask->op == Op::kConsole;
    io::ControlReply reply{R"({"ok":true})"};
    if (!ask) reply.json = error_reply(ask.error().message);
    if (ask && !is_console) reply.json = co_await handler_(*ask);
    client->channel.send(reply);
    if (is_console) subscribe(*client, ask->owner);
  }
}

void ControlServer::subscribe(Client& client, bool owner) {
  if (client.console) return;
  client.console = true;
  client.owner = owner;
  if (owner) ++owners_;
  if (owner && !had_owner_) {
    had_owner_ = true;
    client.lost = backlog_lost_;
    for (const auto& text : backlog_) tell(client, text);
    backlog_.clear();
  }
  if (ended_) client.channel.send(*ended_);
}

void ControlServer::tell(Client& client, const io::Console& text) {
  if (client.channel.queued_bytes() + text.bytes.size() > options_.console_limit) {
    client.lost += text.bytes.size();
    return;
  }
  if (client.lost > 0) {
    client.channel.send(lost_note(client.lost));
    client.lost = 0;
  }
  client.channel.send(text);
}

void ControlServer::console(std::string_view bytes, bool is_stderr) {
  io::Console text{is_stderr, std::string(bytes)};
  for (const auto& client : clients_)
    if (client->console) tell(*client, text);
  if (had_owner_) return;
  backlog_bytes_ += bytes.size();
  backlog_.push_back(std::move(text));
  while (backlog_bytes_ > options_.backlog) {
    backlog_bytes_ -= backlog_.front().bytes.size();
    backlog_lost_ += backlog_.front().bytes.size();
    backlog_.pop_front();
  }
}

awaitable<void> ControlServer::end(io::JobEnded ended, Duration limit) {
  ended_ = std::move(ended);
  for (const auto& client : clients_) {
    if (!client->console) continue;
    if (client->lost > 0) client->channel.send(lost_note(client->lost));
    client->channel.send(*ended_);
  }
  const auto until = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < until) {
    const bool all_written = std::ranges::all_of(clients_, [](const auto& c) {
      return !c->channel.is_open() || c->channel.queued_bytes() == 0;
    });
    if (all_written) break;
    co_await io::sleep_for(5ms);  // tidy: allow (many channels, whose flush() knows no limit)
  }
}

}  // namespace dt::supervisor
