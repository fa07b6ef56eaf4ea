#include "kvstore/link/tcp.h"

#include <fcntl.h>
#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <future>
#include <thread>

#include "io/task_group.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::kv;

namespace {

using Tcp = io::asio::ip::tcp;

/// Answers each frame with kAnswer bytes, as a server answers a request for a table.
class Generous final : public FrameSink {
 public:
  static constexpr std::size_t kAnswer = std::size_t{1} << 20;

  explicit Generous(TcpConnection& link) : link_(link) {}
  Result<std::byte*> begin(const data::Header& header) override {
    header_ = header;
    return nullptr;
  }
  Result<void> end() override {
    header_.type = data::Type::kDone;
    header_.payload = kAnswer;
    link_.send(header_, bytes_.data(), bytes_.size());
    most_queued = std::max(most_queued, link_.queued_bytes());
    return {};
  }
  void idle() override { link_.write_now(); }

  std::size_t most_queued = 0;

 private:
  TcpConnection& link_;
  data::Header header_;
  std::string bytes_ = std::string(kAnswer, '.');
};

/// Counts the frames between two turns.
class Counting final : public FrameSink {
 public:
  Result<std::byte*> begin(const data::Header&) override { return nullptr; }
  Result<void> end() override {
    ++all;
    most = std::max(most, ++in_turn_);
    return {};
  }
  void idle() override { in_turn_ = 0; }

  std::size_t all = 0;
  std::size_t most = 0;

 private:
  std::size_t in_turn_ = 0;
};

io::awaitable<void> receive(TcpConnection& link, FrameSink& sink) {
  (void)co_await link.receive(sink);
}
io::awaitable<void> write(TcpConnection& link) { co_await link.write_loop(); }

}  // namespace

TEST_CASE("link: many small requests are answered as the answers are read, not all at once",
          "[wire]") {
  constexpr std::size_t kRequests = 200;
  constexpr std::size_t kLimit = 4 * Generous::kAnswer;
  io::asio::io_context context;
  Tcp::acceptor acceptor(context, Tcp::endpoint(io::asio::ip::address_v4::loopback(), 0));
  Tcp::socket peer(context);
  peer.connect(acceptor.local_endpoint());
  data::Header request;
  request.type = data::Type::kSync;
  const auto bytes = data::encode(request);
  std::string requests;
  for (std::size_t i = 0; i < kRequests; ++i) requests.append(bytes.begin(), bytes.end());
  io::asio::write(peer, io::asio::buffer(requests));

  TcpConnection link(acceptor.accept());
  link.limit_queue(kLimit);
  Generous sink(link);
  io::TaskGroup group(context.get_executor());
  group.spawn(write(link));
  group.spawn(receive(link, sink));
  std::thread loop([&] {
    context.run_for(std::chrono::seconds(30));
    link.close();
  });
  constexpr std::size_t kAll = kRequests * (Generous::kAnswer + data::kHeaderBytes);
  std::vector<char> some(1 << 20);
  std::size_t got = 0;
  for (boost::system::error_code ec; got < kAll && !ec;)
    got += peer.read_some(io::asio::buffer(some), ec);
  io::asio::post(context, [&] { link.close(); });
  loop.join();
  CHECK(got == kAll);
  CHECK(sink.most_queued <= kLimit + Generous::kAnswer + data::kHeaderBytes);
}

TEST_CASE(
    "link: a turn ends after some frames, and those that it leaves are handed on all the same",
    "[wire]") {
  constexpr std::size_t kFrames = 3000;
  const bool polls = GENERATE(false, true);
  CAPTURE(polls);
  io::asio::io_context context;
  Tcp::acceptor acceptor(context, Tcp::endpoint(io::asio::ip::address_v4::loopback(), 0));
  Tcp::socket peer(context);
  peer.connect(acceptor.local_endpoint());
  data::Header request;
  request.type = data::Type::kBeat;
  const auto bytes = data::encode(request);
  std::string frames;
  for (std::size_t i = 0; i < kFrames; ++i) frames.append(bytes.begin(), bytes.end());
  TcpConnection link(acceptor.accept());
  Counting sink;
  io::TaskGroup group(context.get_executor());
  group.spawn(receive(link, sink));
  if (polls) context.poll();  // receive() waits
  auto writing =
      std::async(std::launch::async, [&] { io::asio::write(peer, io::asio::buffer(frames)); });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  bool is_first = true;
  while (sink.all < kFrames && std::chrono::steady_clock::now() < deadline) {
    if (polls && is_first && link.read_now(sink)) is_first = false;
    if (!polls || !is_first) context.run_one_for(std::chrono::milliseconds(100));
  }
  writing.get();
  link.close();
  context.run();
  CHECK(sink.all == kFrames);
  CHECK(sink.most <= (polls ? 1200 : 256));
}
