#include "kvstore/link/agent_socket.h"

#include <algorithm>

namespace dt::kv {

namespace {

constexpr Duration kFirstRetry = std::chrono::milliseconds(50);
constexpr Duration kLongestRetry = std::chrono::seconds(1);

io::awaitable<void> write(std::shared_ptr<io::FrameChannel> channel) {
  co_await channel->write_loop();
}

}  // namespace

io::awaitable<Error> AgentSocket::run(io::TaskGroup& group,
                                      std::function<void(const wire::Frame&)> on_frame) {
  using Clock = std::chrono::steady_clock;
  const auto executor = co_await io::asio::this_coro::executor;
  auto seen = Clock::now();
  Duration pause = kFirstRetry;
  for (;;) {
    io::UnixSocket socket(executor);
    const io::asio::local::stream_protocol::endpoint at(address_.path);
    auto [ec] = co_await socket.async_connect(at, io::tok);
    if (!ec) {
      auto channel =
          std::make_shared<io::FrameChannel>(executor, io::unix_stream(std::move(socket)));
      channel->send(Identify{address_.process, address_.token});
      for (const auto& [type, frame] : latest_) channel->send_bytes(frame);
      channel_ = channel;
      group.spawn(write(channel));
      for (;;) {
        auto frame = co_await channel->receive();
        if (!frame) break;
        pause = kFirstRetry;
        on_frame(*frame);
      }
      channel_.reset();
      channel->close();
      seen = Clock::now();
    }
    if (Clock::now() - seen > address_.orphan_limit)
      co_return Error{ErrorKind::kUnavailable,
                      fmt::format("the agent of this host ({}) is gone: {}", address_.path,
                                  ec ? ec.message() : "it closed the connection")};
    co_await io::sleep_for(pause);
    pause = std::min(pause * 2, kLongestRetry);
  }
}

io::awaitable<void> AgentSocket::flush() {
  auto channel = channel_;
  if (channel) co_await channel->flush();
}

namespace {

class AgentJobControl final : public JobControl {
 public:
  explicit AgentJobControl(AgentAddress address) : socket_(std::move(address)) {}

  io::awaitable<void> run(io::TaskGroup& group, JobListener& listener) override {
    std::function<void(const wire::Frame&)> on_frame = [this, &listener](const wire::Frame& frame) {
      take(frame, listener);
    };
    Error error = co_await socket_.run(group, std::move(on_frame));
    listener.on_lost(std::move(error));
  }

  void opened(const OpenedKvStore& message) override { socket_.send(message); }
  void arrive(const Arrive& message) override { socket_.send(message); }
  void released() override { socket_.forget<Arrive>(); }
  void progress(const Progress& message) override { socket_.send(message); }
  void figures(const Figures& message) override { socket_.send(message); }
  void heard(const ServersHeard& message) override { socket_.send(message); }

 private:
  void take(const wire::Frame& frame, JobListener& listener) {
    if (frame.type == Servers::kType) {
      if (auto message = wire::parse<Servers>(frame.body)) listener.on_servers(*message);
    } else if (frame.type == Release::kType) {
      if (auto message = wire::parse<Release>(frame.body)) listener.on_release(*message);
    } else if (frame.type == Shrunk::kType) {
      if (auto message = wire::parse<Shrunk>(frame.body)) listener.on_shrunk(*message);
    }
  }

  AgentSocket socket_;
};

}  // namespace

std::unique_ptr<JobControl> make_job_control(AgentAddress address) {
  return std::make_unique<AgentJobControl>(std::move(address));
}

}  // namespace dt::kv
