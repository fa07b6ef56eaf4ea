#include "launcher/agent/agent_listener.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/within.h"

namespace dt::launcher {
namespace {

namespace asio = io::asio;
using io::awaitable;
using io::tok;
using namespace std::chrono_literals;

/// Connections that have not identified themselves, and how long they may take.
constexpr std::size_t kMaxStrangers = 32;
constexpr auto kIdentifyDeadline = 5s;
constexpr int kListenBacklog = 64;

awaitable<void> write_frames(Channel channel) { co_await channel->write_loop(); }

}  // namespace

Listener::Listener(asio::io_context& context, std::string path, const Processes& processes,
                   KeptOut& kept_out, io::Log& log)
    : path_(std::move(path)),
      processes_(&processes),
      kept_out_(&kept_out),
      log_(&log),
      acceptor_(context) {}

Result<void> Listener::listen() {
  ::unlink(path_.c_str());
  boost::system::error_code ec;
  acceptor_.open(asio::local::stream_protocol(), ec);
  const mode_t before = ::umask(0177);
  if (!ec) acceptor_.bind(path_, ec);
  ::umask(before);
  if (!ec) acceptor_.listen(kListenBacklog, ec);
  if (ec) return tl::unexpected(io::asio_error(ec, "listen on " + path_));
  return {};
}

Result<void> Listener::listen_again(const std::string& path) {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  path_ = path;
  return listen();
}

void Listener::close() {
  is_closed_ = true;
  ::unlink(path_.c_str());
  boost::system::error_code ignored;
  acceptor_.close(ignored);
}

awaitable<void> Listener::run(io::TaskGroup& tasks, Handlers handlers) {
  handlers_ = std::move(handlers);
  for (;;) {
    io::UnixSocket socket(acceptor_.get_executor());
    auto [ec] = co_await acceptor_.async_accept(socket, tok);
    if (ec && is_closed_) co_return;
    if (ec) {  // out of descriptors, or the socket is being made again: try again later
      co_await io::sleep_for(100ms);
      continue;
    }
    if (may_connect(socket))
      tasks.spawn(serve(std::move(socket), tasks));
    else
      ++kept_out_->refused;
  }
}

bool Listener::may_connect(io::UnixSocket& socket) const {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid() && strangers_ < kMaxStrangers;
}

awaitable<void> Listener::serve(io::UnixSocket socket, io::TaskGroup& tasks) {
  const auto executor = socket.get_executor();
  auto channel = std::make_shared<io::FrameChannel>(executor, io::unix_stream(std::move(socket)));
  ++strangers_;
  auto receiving = channel->receive();
  auto first = co_await io::within(kIdentifyDeadline, std::move(receiving), "first message");
  --strangers_;
  bool is_known = false;
  if (first) is_known = co_await hand_over(channel, *first, tasks);
  if (!is_known) ++kept_out_->refused;
  channel->close();
}

awaitable<bool> Listener::hand_over(Channel channel, const wire::Frame& first,
                                    io::TaskGroup& tasks) {
  if (first.type == AgentHello::kType) {
    auto hello = wire::parse<AgentHello>(first.body);
    if (!hello) co_return false;
    tasks.spawn(write_frames(channel));
    co_await handlers_.supervisor(channel, std::move(*hello));
    co_return true;
  }
  if (first.type != Identify::kType) co_return false;
  const auto identify = wire::parse<Identify>(first.body);
  if (!identify) co_return false;
  const ProcessPtr process = processes_->authenticate(*identify);
  if (!process) {
    log_->warn("dropped a connection that claimed to be {}", to_string(identify->process));
    co_return false;
  }
  tasks.spawn(write_frames(channel));
  co_await handlers_.process(channel, process);
  co_return true;
}

}  // namespace dt::launcher
