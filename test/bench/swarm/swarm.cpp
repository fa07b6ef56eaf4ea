#include "test/bench/swarm/swarm.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "io/within.h"

namespace dt::swarm {

namespace asio = io::asio;
using io::awaitable;
using io::tok;
using namespace std::chrono_literals;

namespace {

constexpr int kBacklog = 4096;
constexpr Duration kFirstMessage = 10s;
constexpr Duration kNoDescriptors = 100ms;

awaitable<void> write_frames(launcher::Channel channel) { co_await channel->write_loop(); }

}  // namespace

Swarm::Swarm(asio::any_io_executor executor, std::string socket)
    : executor_(executor), socket_(std::move(socket)), tasks_(executor), acceptor_(executor) {}

Result<void> Swarm::listen() {
  boost::system::error_code ec;
  acceptor_.open(asio::local::stream_protocol(), ec);
  if (!ec) acceptor_.bind(socket_, ec);
  if (!ec) acceptor_.listen(kBacklog, ec);
  if (ec) return tl::unexpected(io::asio_error(ec, "listen on " + socket_));
  return {};
}

awaitable<void> Swarm::run() {
  tasks_.spawn(accept());
  co_await tasks_.join();
}

void Swarm::stop() {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  for (auto& [name, host] : hosts_) host.lose();
  tasks_.cancel();
}

void Swarm::lose(const std::vector<std::string>& hosts) {
  for (const std::string& name : hosts) host(name).lose();
}

void Swarm::bring_back() {
  for (auto& [name, host] : hosts_) host.boot();
}

std::size_t Swarm::attached() const {
  return static_cast<std::size_t>(std::count_if(
      hosts_.begin(), hosts_.end(), [](const auto& entry) { return entry.second.is_attached(); }));
}

SwarmHost& Swarm::host(const std::string& name) {
  return hosts_.try_emplace(name, executor_, tasks_, world_, name).first->second;
}

awaitable<void> Swarm::accept() {
  for (;;) {
    io::UnixSocket socket(executor_);
    auto [ec] = co_await acceptor_.async_accept(socket, tok);
    if (ec == asio::error::operation_aborted || !acceptor_.is_open()) co_return;
    if (ec)
      co_await io::sleep_for(kNoDescriptors);
    else
      tasks_.spawn(meet(std::move(socket)));
  }
}

awaitable<void> Swarm::meet(io::UnixSocket socket) {
  auto channel = std::make_shared<io::FrameChannel>(executor_, io::unix_stream(std::move(socket)));
  auto receiving = channel->receive();
  const auto first = co_await io::within(kFirstMessage, std::move(receiving), "the backend");
  if (!first || first->type != Reach::kType) co_return channel->close();
  const auto reach = wire::parse<Reach>(first->body);
  if (!reach) co_return channel->close();
  SwarmHost& there = host(reach->host);
  if (there.is_lost()) co_return channel->close();
  channel->send(Reached{});
  tasks_.spawn(write_frames(channel));
  co_await there.serve(channel, reach->starts);
}

}  // namespace dt::swarm
