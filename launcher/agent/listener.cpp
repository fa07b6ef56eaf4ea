#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "io/within.h"
#include "launcher/agent/internal.h"

namespace dt::launcher {
namespace {

using io::tok;
using namespace std::chrono_literals;

/// Connections that have not said who they are, and how long they may take.
constexpr std::size_t kMaxStrangers = 32;
constexpr auto kIdentifyDeadline = 5s;
constexpr int kListenBacklog = 64;
/// Kept per process, and part of every AgentState: kinds of message, and bytes of them all. A whole
/// AgentState has to fit into a frame.
constexpr std::size_t kMaxSaid = 64;
constexpr std::size_t kMaxSaidBytes = std::size_t{1} << 20;

/// Whether `frame` may take the place of what was said of its type before.
bool fits(const std::map<std::uint16_t, std::string>& said, const wire::Frame& frame) {
  if (said.size() >= kMaxSaid && !said.contains(frame.type)) return false;
  std::size_t bytes = frame.body.size();
  for (const auto& [type, body] : said) bytes += type == frame.type ? 0 : body.size();
  return bytes <= kMaxSaidBytes;
}

}  // namespace

Result<void> Agent::listen() {
  ::unlink(files_.socket.c_str());
  boost::system::error_code ec;
  acceptor_.open(asio::local::stream_protocol(), ec);
  const mode_t before = ::umask(0177);
  if (!ec) acceptor_.bind(files_.socket, ec);
  ::umask(before);
  if (!ec) acceptor_.listen(kListenBacklog, ec);
  if (ec) return tl::unexpected(io::asio_error(ec, "listen on " + files_.socket));
  return {};
}

awaitable<void> Agent::accept_all() {
  for (;;) {
    io::UnixSocket socket(executor_);
    auto [ec] = co_await acceptor_.async_accept(socket, tok);
    if (ec == asio::error::operation_aborted) co_return;
    if (ec) {  // out of descriptors, for instance: later may be better
      co_await io::sleep_for(100ms);
      continue;
    }
    ucred peer{};
    socklen_t size = sizeof peer;
    const bool known =
        ::getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    if (!known || peer.uid != ::geteuid() || strangers_ >= kMaxStrangers) {
      ++kept_out_.refused;
      continue;
    }
    tasks_.spawn(serve(std::move(socket)));
  }
}

awaitable<void> Agent::write_frames(Channel channel) { co_await channel->write_loop(); }

awaitable<void> Agent::serve(io::UnixSocket socket) {
  auto channel = std::make_shared<io::FrameChannel>(executor_, io::unix_stream(std::move(socket)));
  ++strangers_;
  auto receiving = channel->receive();
  auto first = co_await io::within(kIdentifyDeadline, std::move(receiving), "first message");
  --strangers_;
  bool is_known = false;
  if (first && first->type == AgentHello::kType) {
    if (auto hello = wire::parse<AgentHello>(first->body); hello) {
      is_known = true;
      tasks_.spawn(write_frames(channel));
      co_await serve_supervisor(channel, std::move(*hello));
    }
  } else if (first && first->type == Identify::kType) {
    const auto identify = wire::parse<Identify>(first->body);
    is_known = identify && owns_token(*identify);
    if (is_known) {
      tasks_.spawn(write_frames(channel));
      co_await serve_process(channel, processes_.at(identify->process));
    } else if (identify) {
      log_.warn("dropped a connection that claimed to be {}", to_string(identify->process));
    }
  }
  if (!is_known) ++kept_out_.refused;
  channel->close();
}

bool Agent::owns_token(const Identify& identify) const {
  const auto found = processes_.find(identify.process);
  return found != processes_.end() && found->second->token == identify.token;
}

awaitable<void> Agent::serve_process(Channel channel, ProcessPtr process) {
  if (process->connection) process->connection->close();
  process->connection = channel;
  for (const auto& [type, body] : process->waiting) channel->send_bytes(wire::frame(type, body));
  process->waiting.clear();
  for (;;) {
    auto frame = co_await channel->receive();
    if (!frame && frame.error().kind == ErrorKind::kProtocol) ++kept_out_.dropped;
    if (!frame || process->connection != channel) break;
    if (!fits(process->said, *frame)) {
      ++kept_out_.dropped;
      log_.warn("{} said too much (type {}, {} bytes): its connection is dropped",
                to_string(process->id), frame->type, frame->body.size());
      break;
    }
    FromProcess relayed;
    relayed.process = process->id;
    relayed.type = frame->type;
    relayed.body = frame->body;
    tell(relayed);
    process->said[frame->type] = std::move(frame->body);
  }
  if (process->connection == channel) process->connection.reset();
  process->changed.cancel();
}

}  // namespace dt::launcher
