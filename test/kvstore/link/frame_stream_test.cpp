// What an attacker between two ends can do to a stream of frames with tags: whatever it is, the
// frames before it are delivered, none from there on is, and the receiver's reason says which.

#include <rapidcheck.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/task_group.h"
#include "kvstore/link/tcp.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::kv;

namespace frame_stream {

namespace {

using Tcp = io::asio::ip::tcp;

const FrameKey kKey{'k'};
const FrameKey kOtherKey{'o'};
constexpr std::size_t kHead = data::kHeaderBytes + data::kTagBytes;

/// The two sockets of a connection.
struct Ends {
  explicit Ends(io::asio::io_context& context) : near(context), far(context) {
    Tcp::acceptor acceptor(context, Tcp::endpoint(io::asio::ip::address_v4::loopback(), 0));
    far.connect(acceptor.local_endpoint());
    acceptor.accept(near);
  }
  Tcp::socket near;
  Tcp::socket far;
};

/// Frames and the bytes that they are on the wire.
struct Stream {
  std::vector<std::string> payloads;
  std::string bytes;
  /// Where each header with its tag ends, then its payload with its tag, if there is one.
  std::vector<std::size_t> ends;
};

io::awaitable<void> write(TcpConnection& link) { co_await link.write_loop(); }

/// What TcpConnection sends for these payloads.
Stream stream_of(std::vector<std::string> payloads) {
  Stream stream;
  for (const auto& payload : payloads) {
    stream.ends.push_back((stream.ends.empty() ? 0 : stream.ends.back()) + kHead);
    if (payload.empty()) continue;
    stream.ends.push_back(stream.ends.back() + payload.size() + data::kTagBytes);
  }
  io::asio::io_context context;
  Ends ends(context);
  TcpConnection link(std::move(ends.near));
  link.add_tags(kKey, kOtherKey);
  io::TaskGroup group(context.get_executor());
  group.spawn(write(link));
  data::Header header;
  header.type = data::Type::kPush;
  for (const auto& payload : payloads) {
    header.payload = static_cast<std::uint32_t>(payload.size());
    ++header.request;
    link.send(header, payload.data(), payload.size());
  }
  link.write_now();
  stream.bytes.resize(stream.ends.empty() ? 0 : stream.ends.back());
  io::asio::async_read(ends.far, io::asio::buffer(stream.bytes),
                       [&](boost::system::error_code, std::size_t) { link.close(); });
  context.run();
  stream.payloads = std::move(payloads);
  return stream;
}

/// Keeps what is delivered.
class Kept final : public FrameSink {
 public:
  Result<std::byte*> begin(const data::Header& header) override {
    headers.push_back(header.request);
    arriving_.assign(header.payload, '\0');
    return reinterpret_cast<std::byte*>(arriving_.data());
  }
  Result<void> end() override {
    payloads.push_back(arriving_);
    return {};
  }
  void idle() override {}

  std::vector<std::uint64_t> headers;  ///< Of the frames that began.
  std::vector<std::string> payloads;   ///< Of the frames that were delivered.

 private:
  std::string arriving_;
};

io::awaitable<void> receive(TcpConnection& link, FrameSink& sink, Error& why) {
  why = co_await link.receive(sink);
  link.close();
}

/// Sends pieces of up to `most` bytes, then ends the stream.
io::awaitable<void> feed(Tcp::socket& to, std::string_view bytes, std::size_t most) {
  while (!bytes.empty()) {
    const auto piece = io::asio::buffer(bytes.substr(0, most));
    auto [ec, n] = co_await io::asio::async_write(to, piece, io::tok);
    if (ec) co_return;
    bytes.remove_prefix(n);
  }
  boost::system::error_code ec;
  to.shutdown(Tcp::socket::shutdown_send, ec);
}

/// How a receiver takes the bytes.
struct Taken {
  Kept kept;
  Error why{};
};
Taken take(std::string_view bytes, std::size_t most) {
  Taken taken;
  io::asio::io_context context;
  Ends ends(context);
  TcpConnection link(std::move(ends.near));
  link.add_tags(kOtherKey, kKey);
  io::TaskGroup group(context.get_executor());
  group.spawn(receive(link, taken.kept, taken.why));
  group.spawn(feed(ends.far, bytes, most));
  context.run();
  return taken;
}

/// Why the receiver of `bytes` instead of the stream's behaves wrongly; empty: it does not.
std::string fault(const Stream& stream, std::string_view bytes, std::size_t most) {
  const auto same = std::ranges::mismatch(stream.bytes, bytes).in1 - stream.bytes.begin();
  const auto from = static_cast<std::size_t>(same);
  std::size_t parts = 0;
  while (parts < stream.ends.size() && stream.ends[parts] <= from) ++parts;
  // Parts that came whole and unchanged make frames that began and frames that were delivered.
  std::size_t begun = 0;
  std::size_t whole = 0;
  for (std::size_t left = parts; left > 0 && begun < stream.payloads.size(); ++begun) {
    --left;
    const bool has_payload = !stream.payloads[begun].empty();
    if (has_payload && left == 0) {
      ++begun;
      break;
    }
    if (has_payload) --left;
    ++whole;
  }
  const std::size_t part_ends =
      parts < stream.ends.size() ? stream.ends[parts] : stream.bytes.size() + kHead;
  const bool is_changed = bytes.size() >= part_ends;
  const Taken taken = take(bytes, most);
  if (taken.kept.headers.size() != begun)
    return fmt::format("{} frames began, not {}", taken.kept.headers.size(), begun);
  if (taken.kept.payloads.size() != whole)
    return fmt::format("{} frames were delivered, not {}", taken.kept.payloads.size(), whole);
  if (!std::equal(taken.kept.payloads.begin(), taken.kept.payloads.end(), stream.payloads.begin()))
    return "another payload was delivered";
  if (taken.why.kind != (is_changed ? ErrorKind::kProtocol : ErrorKind::kClosed))
    return fmt::format("the reason is: {}", taken.why.message);
  return {};
}

std::string bytes_of_size(std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 + i / 256);
  return bytes;
}

}  // namespace

TEST_CASE("frame stream: unchanged, it is delivered whole, in whatever pieces it comes",
          "[frames]") {
  // Around the sizes that are read in place, and of several portions of a tag.
  const auto stream = stream_of({"", bytes_of_size(1), bytes_of_size((32 << 10) - 1), "",
                                 bytes_of_size(32 << 10), bytes_of_size(700'001), "x"});
  for (const std::size_t most : {std::size_t{997}, std::size_t{70'000}, stream.bytes.size()})
    CHECK(fault(stream, stream.bytes, most) == "");
}

TEST_CASE("frame stream: values go before those of lower priority that have not begun",
          "[frames]") {
  const bool has_tags = GENERATE(false, true);
  CAPTURE(has_tags);
  io::asio::io_context context;
  Ends ends(context);
  TcpConnection link(std::move(ends.near));
  TcpConnection other(std::move(ends.far));
  if (has_tags) {
    link.add_tags(kKey, kOtherKey);
    other.add_tags(kOtherKey, kKey);
  }
  const std::string large = bytes_of_size(std::size_t{16} << 20);  // more than sockets take
  const auto send = [&](std::uint64_t number, data::Type type, int priority) {
    data::Header header;
    header.type = type;
    header.priority = priority;
    header.request = number;
    header.payload = number == 1 ? static_cast<std::uint32_t>(large.size()) : 1000;
    link.send(header, large.data(), header.payload);
  };
  send(1, data::Type::kValue, 0);
  link.write_now();
  REQUIRE(link.queued_bytes() > 1000);
  const std::vector<std::pair<data::Type, int>> later = {
      {data::Type::kValue, 1}, {data::Type::kValue, 3}, {data::Type::kDone, 9},
      {data::Type::kValue, 5}, {data::Type::kValue, 5}, {data::Type::kValue, 2},
      {data::Type::kValue, 9}, {data::Type::kValue, -1}};
  for (std::uint64_t number = 2; const auto& [type, priority] : later)
    send(number++, type, priority);
  link.write_now();
  Taken taken;
  io::TaskGroup group(context.get_executor());
  group.spawn(write(link));
  group.spawn(receive(other, taken.kept, taken.why));
  while (taken.kept.payloads.size() < 1 + later.size() &&
         context.run_one_for(std::chrono::seconds(5)) > 0) {
  }
  CHECK(taken.kept.headers == std::vector<std::uint64_t>{1, 3, 2, 4, 8, 5, 6, 7, 9});
  CHECK(taken.kept.payloads.front() == large);
  link.close();
  context.run();
}

TEST_CASE("frame stream: each bit changed, and each cut, ends it there", "[frames]") {
  const auto stream = stream_of({"", bytes_of_size(21), bytes_of_size(3)});
  for (std::size_t at = 0; at < stream.bytes.size(); ++at) {
    CAPTURE(at);
    for (int bit = 0; bit < 8; ++bit) {
      auto bytes = stream.bytes;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      REQUIRE(fault(stream, bytes, bytes.size()) == "");
    }
    REQUIRE(fault(stream, stream.bytes.substr(0, at), stream.bytes.size()) == "");
  }
}

TEST_CASE("frame stream: parts repeated, removed, moved or replaced end it there", "[frames]") {
  const bool good = rc::check([] {
    const auto size =
        rc::gen::weightedOneOf<std::size_t>({{6, rc::gen::inRange<std::size_t>(0, 40)},
                                             {1, rc::gen::inRange<std::size_t>(32'000, 33'000)},
                                             {1, rc::gen::just<std::size_t>(300'000)}});
    const auto sizes = *rc::gen::resize(10, rc::gen::container<std::vector<std::size_t>>(size));
    std::vector<std::string> payloads;
    for (const std::size_t bytes : sizes) payloads.push_back(bytes_of_size(bytes));
    const auto stream = stream_of(std::move(payloads));
    // Where a cut may be: most often between parts, so that whole ones move.
    auto cuts = stream.ends;
    cuts.push_back(0);
    const auto place = rc::gen::weightedOneOf<std::size_t>(
        {{3, rc::gen::elementOf(cuts)},
         {1, rc::gen::inRange<std::size_t>(0, stream.bytes.size() + 1)}});
    std::vector<std::size_t> at = {*place, *place, *place};
    std::ranges::sort(at);
    const auto part = [&](std::size_t from, std::size_t to) {
      return stream.bytes.substr(from, to - from);
    };
    const auto before = part(0, at[0]);
    const auto first = part(at[0], at[1]);
    const auto second = part(at[1], at[2]);
    const auto after = part(at[2], stream.bytes.size());
    const std::vector<std::string> harmed = {
        before + first + first + second + after,  // repeated
        before + second + after,                  // removed
        before + second + first + after,          // moved
        before + second + second + after,         // replaced
        before + first + second + after + first,  // once more, at the end
    };
    const auto most = *rc::gen::elementOf(std::vector<std::size_t>{300, 100'000, 2'000'000});
    for (const auto& bytes : harmed) RC_ASSERT(fault(stream, bytes, most) == "");
  });
  CHECK(good);
}

}  // namespace frame_stream
