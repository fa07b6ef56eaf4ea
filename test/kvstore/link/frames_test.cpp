// Authenticated frames: what is changed, repeated, moved, removed or cut on the way ends its
// connection, is counted, and never becomes a value.

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "kvstore/link/handshake.h"
#include "test/kvstore/cluster.h"
#include "test/kvstore/eventually.h"
#include "test/kvstore/proxy.h"
#include "test/kvstore/stranger.h"
#include "test/support/catch.h"
#include "test/support/own_address.h"

using namespace dt;
using namespace dt::test;

namespace frames {

namespace {

constexpr std::size_t kElements = 16;
constexpr std::size_t kPayload = kElements * sizeof(float);
constexpr std::size_t kHead = data::kHeaderBytes + data::kTagBytes;

void require_tags(kv::ServerOptions& options) { options.data_auth = kv::DataAuth::kFrames; }

std::uint64_t dropped(Cluster& cluster) { return cluster.server().counters().dropped_connections; }

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

/// Chunk 0 of key 0, in the worker's n-th push of dist_async.
data::Header push_of(std::uint32_t worker, std::uint64_t n) {
  data::Header header;
  header.type = data::Type::kPush;
  header.flags = data::kAsync;
  header.worker = WorkerId(worker);
  header.generation = Generation(1);
  header.round = Round(n);
  header.samples = 1;
  return header;
}

/// The value of chunk 0 of key 0.
std::string value(Stranger& asks, std::uint32_t worker) {
  data::Header pull;
  pull.type = data::Type::kPull;
  pull.worker = WorkerId(worker);
  pull.generation = Generation(1);
  REQUIRE(asks.ask(pull, {}).type == data::Type::kValue);
  return asks.last_payload;
}

/// Makes chunk 0 of key 0 with zeros.
void make_chunk(Stranger& member, std::uint32_t worker, std::size_t elements) {
  data::Header init;
  init.type = data::Type::kInit;
  init.worker = WorkerId(worker);
  init.generation = Generation(1);
  init.samples = elements;
  REQUIRE(member.ask(init, bytes_of(std::vector<float>(elements, 0))).type == data::Type::kDone);
}

/// What is done to one frame; both are whole, with their tags. The second is the one after it.
using Harm = std::function<std::string(std::string frame, std::string next)>;

/// Looks at the frames of all connections through a proxy and harms one when it is told to.
class Frames {
 public:
  /// For the proxy.
  [[nodiscard]] Proxy::Change change() {
    return [this](std::size_t connection, bool to_server, std::string bytes) {
      return take(connection, to_server, bytes);
    };
  }
  /// Harms the next frame of this type and, if the harm `takes_two`, the one after it.
  void harm(bool to_server, data::Type type, Harm harm, bool takes_two = false) {
    std::lock_guard lock(mutex_);
    wanted_.emplace(Wanted{to_server, type, std::move(harm), takes_two});
  }
  [[nodiscard]] bool is_done() {
    std::lock_guard lock(mutex_);
    return !wanted_;
  }
  /// Removes the next frame of this type on the connections to each of the loops below `loops`,
  /// and, if it `blocks`, all later ones of the same connection and direction.
  void remove(bool to_server, data::Type type, std::uint32_t loops, bool blocks) {
    std::lock_guard lock(mutex_);
    for (std::uint32_t loop = 0; loop < loops; ++loop) removals_[loop] = {to_server, type, blocks};
  }
  /// Removals that are not done.
  [[nodiscard]] std::size_t removals() {
    std::lock_guard lock(mutex_);
    return removals_.size();
  }

 private:
  struct Wanted {
    bool to_server;
    data::Type type;
    Harm harm;
    bool takes_two;
  };
  struct Removal {
    bool to_server;
    data::Type type;
    bool blocks;
  };
  struct Stream {
    int handshake = 0;  ///< Its messages still to come.
    std::string bytes;  ///< Not yet a frame.
    std::string first;  ///< The frame to be harmed, while the next one is awaited.
    bool is_blocked = false;
  };

  std::string take(std::size_t connection, bool to_server, const std::string& bytes) {
    std::lock_guard lock(mutex_);
    const auto [at, is_new] = streams_.try_emplace({connection, to_server});
    Stream& stream = at->second;
    if (is_new) stream.handshake = to_server ? 1 : 2;
    if (stream.is_blocked) return {};
    stream.bytes += bytes;
    std::string out;
    for (std::size_t size = 0; (size = next_size(stream)) > 0 && size <= stream.bytes.size();) {
      std::string frame = stream.bytes.substr(0, size);
      stream.bytes.erase(0, size);
      if (stream.handshake > 0) {
        const auto proof = wire::parse<data::ClientProof>(frame.substr(6));
        if (to_server && proof) loops_[connection] = proof->loop;
        --stream.handshake, out += frame;
      } else if (!is_removed(connection, stream, to_server, frame)) {
        out += pass(stream, to_server, std::move(frame));
      }
    }
    return out;
  }
  /// 0: not known yet.
  static std::size_t next_size(const Stream& stream) {
    std::uint32_t size = 0;
    if (stream.handshake > 0) {
      if (stream.bytes.size() < sizeof size) return 0;
      std::memcpy(&size, stream.bytes.data(), sizeof size);
      return sizeof size + size;
    }
    if (stream.bytes.size() < kHead) return 0;
    const auto header = data::decode(stream.bytes.substr(0, data::kHeaderBytes));
    if (!header) return stream.bytes.size();
    return kHead + (header->payload > 0 ? header->payload + data::kTagBytes : 0);
  }
  bool is_removed(std::size_t connection, Stream& stream, bool to_server,
                  const std::string& frame) {
    const auto found = removals_.find(loops_[connection]);
    if (found == removals_.end() || found->second.to_server != to_server) return stream.is_blocked;
    const auto header = data::decode(std::string_view(frame).substr(0, data::kHeaderBytes));
    if (!header || header->type != found->second.type) return stream.is_blocked;
    stream.is_blocked = found->second.blocks;
    removals_.erase(found);
    return true;
  }
  std::string pass(Stream& stream, bool to_server, std::string frame) {
    if (!stream.first.empty()) {
      auto harmed = wanted_->harm(std::exchange(stream.first, {}), std::move(frame));
      wanted_.reset();
      return harmed;
    }
    if (!wanted_ || wanted_->to_server != to_server) return frame;
    const auto header = data::decode(std::string_view(frame).substr(0, data::kHeaderBytes));
    if (!header || header->type != wanted_->type) return frame;
    if (wanted_->takes_two) {
      stream.first = std::move(frame);
      return {};
    }
    auto harmed = wanted_->harm(std::move(frame), {});
    wanted_.reset();
    return harmed;
  }

  std::mutex mutex_;
  std::optional<Wanted> wanted_;
  std::map<std::uint32_t, Removal> removals_;  ///< By loop.
  std::map<std::size_t, std::uint32_t> loops_;
  std::map<std::pair<std::size_t, bool>, Stream> streams_;
};

/// A worker whose frames go through a proxy, and its rounds of a key.
class Exchange {
 public:
  Exchange(kv::DataAuth server, kv::DataAuth worker)
      : cluster(1, 1, true, false, false,
                [server](kv::ServerOptions& options) { options.data_auth = server; }),
        proxy(cluster.server().port(), harms.change()) {
    cluster.transport = kv::Transport::kTcp;
    cluster.redirect(0, proxy.port());
    cluster.change_worker = [worker](kv::ClientOptions& options) {
      options.data_auth = worker;
      options.lost_limit = 30s;
    };
    store = cluster.open(0);
    std::vector<float> zeros(kElements, 0);
    init(*store, "w", zeros);
  }
  /// A round; the result is written over the gradient. Whether it is right.
  [[nodiscard]] bool is_right() {
    std::vector<float> values(kElements);
    for (auto& v : values) v = ++next_;
    const auto gradient = values;
    must(pushpull(*store, "w", values, values, {}));
    return values == gradient;
  }

  Cluster cluster;
  Frames harms;
  Proxy proxy;
  std::unique_ptr<kv::Store> store;

 private:
  float next_ = 0;
};

Harm flip(std::size_t at, int bits) {
  return [at, bits](std::string frame, const std::string&) {
    frame[at] = static_cast<char>(frame[at] ^ bits);
    return frame;
  };
}

}  // namespace

TEST_CASE(
    "frames: a byte changed on the way is a wrong sum where only the handshake is authenticated",
    "[frames]") {
  Cluster cluster(1, 1, true, false, false,
                  [](kv::ServerOptions& options) { options.data_auth = kv::DataAuth::kHandshake; });
  cluster.transport = kv::Transport::kTcp;
  cluster.change_worker = [](kv::ClientOptions& options) {
    options.data_auth = kv::DataAuth::kHandshake;
  };
  std::atomic<bool> flips = false;
  Proxy proxy(cluster.server().port(), [&](std::size_t, bool to_server, std::string bytes) {
    if (to_server && bytes.size() == data::kHeaderBytes + kPayload && flips.exchange(false))
      bytes.back() = static_cast<char>(bytes.back() ^ 1);
    return bytes;
  });
  cluster.redirect(0, proxy.port());
  auto store = cluster.open(0);
  std::vector<float> zeros(kElements, 0);
  init(*store, "w", zeros);
  flips = true;
  std::vector<float> gradient(kElements, 1);
  std::vector<float> sum(kElements);
  must(pushpull(*store, "w", gradient, sum, {}));
  CHECK(!flips);
  CHECK(sum != gradient);
  CHECK(dropped(cluster) == 0);
}

TEST_CASE(
    "frames: each byte of a frame to the server, once changed, costs the connection and no "
    "value changes",
    "[frames]") {
  Cluster cluster(1, 2, true, false, false, require_tags);
  Stranger honest(cluster.server().port());
  honest.authenticate(WorkerId(0), true);
  make_chunk(honest, 0, kElements);
  const std::string ones = bytes_of(std::vector<float>(kElements, 1));
  std::uint64_t count = 0;
  for (std::size_t at = 0; at < kHead + kPayload + data::kTagBytes; ++at)
    for (const int bits : {1, 128}) {
      Stranger member(cluster.server().port());
      member.authenticate(WorkerId(1), true);
      auto frame = member.frame(push_of(1, 1), ones);
      REQUIRE(frame.size() == kHead + kPayload + data::kTagBytes);
      frame[at] = static_cast<char>(frame[at] ^ bits);
      member.say(frame);
      CAPTURE(at, bits);
      REQUIRE(member.is_closed());
      ++count;
      REQUIRE(eventually([&] { return dropped(cluster) == count; }));
    }
  CHECK(value(honest, 0) == bytes_of(std::vector<float>(kElements, 0)));
  Stranger member(cluster.server().port());
  member.authenticate(WorkerId(1), true);
  REQUIRE(member.ask(push_of(1, 1), ones).type == data::Type::kDone);  // unchanged, it counts
  CHECK(value(member, 1) == ones);
}

TEST_CASE("frames: a byte changed anywhere in a payload that is read in place changes no value",
          "[frames]") {
  constexpr std::size_t kLarge = 150'000;  // several reads
  Cluster cluster(1, 2, true, false, false, require_tags);
  Stranger honest(cluster.server().port());
  honest.authenticate(WorkerId(0), true);
  make_chunk(honest, 0, kLarge);
  const std::string ones = bytes_of(std::vector<float>(kLarge, 1));
  std::uint64_t count = 0;
  const std::size_t size = kHead + ones.size() + data::kTagBytes;
  for (std::size_t at = 0; at < size; at += at < kHead ? 29 : 17'041) {
    Stranger member(cluster.server().port());
    member.authenticate(WorkerId(1), true);
    auto frame = member.frame(push_of(1, 1), ones);
    frame[at] = static_cast<char>(frame[at] ^ 16);
    member.say(frame);
    CAPTURE(at);
    REQUIRE(member.is_closed());
    ++count;
    REQUIRE(eventually([&] { return dropped(cluster) == count; }));
  }
  CHECK(value(honest, 0) == bytes_of(std::vector<float>(kLarge, 0)));
  Stranger member(cluster.server().port());
  member.authenticate(WorkerId(1), true);
  REQUIRE(member.ask(push_of(1, 1), ones).type == data::Type::kDone);
  CHECK(value(member, 1) == ones);
}

TEST_CASE(
    "frames: one that is repeated, of another connection, or whose predecessor is missing is "
    "refused",
    "[frames]") {
  Cluster cluster(1, 2, true, false, false, require_tags);
  Stranger honest(cluster.server().port());
  honest.authenticate(WorkerId(0), true);
  make_chunk(honest, 0, kElements);
  const std::string ones = bytes_of(std::vector<float>(kElements, 1));
  const auto is_refused = [&](const auto& say) {
    const std::uint64_t before = dropped(cluster);
    Stranger member(cluster.server().port());
    member.authenticate(WorkerId(1), true);
    say(member);
    return member.is_closed() && eventually([&] { return dropped(cluster) == before + 1; });
  };
  std::string earlier;
  CHECK(is_refused([&](Stranger& member) {
    earlier = member.frame(push_of(1, 1), ones);
    member.say(earlier + earlier);
  }));
  const std::string once = value(honest, 0);
  CHECK(once == ones);
  CHECK(is_refused([&](Stranger& member) { member.say(earlier); }));
  CHECK(is_refused([&](Stranger& member) {
    (void)member.frame(push_of(1, 2), ones);  // is not sent
    member.tell(push_of(1, 3), ones);
  }));
  CHECK(is_refused([&](Stranger& member) {
    const auto first = member.frame(push_of(1, 2), ones);
    member.say(member.frame(push_of(1, 3), ones) + first);
  }));
  CHECK(is_refused([&](Stranger& member) {  // a payload under another frame's header
    const auto first = member.frame(push_of(1, 2), ones);
    const auto second = member.frame(push_of(1, 3), bytes_of(std::vector<float>(kElements, 2)));
    member.say(first.substr(0, kHead) + second.substr(kHead));
  }));
  CHECK(is_refused([&](Stranger& member) {  // without its tags
    const auto frame = member.frame(push_of(1, 2), ones);
    member.say(frame.substr(0, data::kHeaderBytes) + frame.substr(kHead, kPayload));
  }));
  CHECK(value(honest, 0) == once);
}

TEST_CASE("frames: what is done to a frame on the way is counted, and the round's sum is right",
          "[frames][dist_sync]") {
  Exchange exchange(kv::DataAuth::kFrames, kv::DataAuth::kFrames);
  std::uint64_t count = 0;
  const auto survives = [&](bool to_server, const Harm& harm, bool takes_two = false) {
    const auto type = to_server ? data::Type::kPushPull : data::Type::kValue;
    exchange.harms.harm(to_server, type, harm, takes_two);
    const bool right = exchange.is_right();
    ++count;
    // The worker says what came to it when it connects again.
    return right && exchange.harms.is_done() &&
           eventually([&] { return dropped(exchange.cluster) == count; });
  };
  const bool to_server = GENERATE(true, false);
  CAPTURE(to_server);
  for (std::size_t at = 0; at < kHead + kPayload + data::kTagBytes; at += 3) {
    CAPTURE(at);
    REQUIRE(survives(to_server, flip(at, 4)));
  }
  const auto repeat = [](const std::string& frame, const std::string&) { return frame + frame; };
  const auto remove = [](const std::string&, const std::string& next) { return next; };
  const auto swap = [](const std::string& frame, const std::string& next) { return next + frame; };
  const auto cut = [](std::string frame, const std::string& next) {
    return frame.erase(kHead + 5, 20) + next;
  };
  CHECK(survives(to_server, repeat));
  // The next frame is a heartbeat at the latest.
  CHECK(survives(to_server, remove, true));
  CHECK(survives(to_server, swap, true));
  CHECK(survives(to_server, cut, true));
  CHECK(exchange.is_right());
}

TEST_CASE("frames: a connection that breaks anywhere is no forgery, and the round's sum is right",
          "[frames]") {
  constexpr std::size_t kLarge = 300'000;  // several reads and portions of a tag
  constexpr std::size_t kBytes = kLarge * sizeof(float);
  Cluster cluster(1, 1, true, false, false, require_tags);
  cluster.transport = kv::Transport::kTcp;
  std::mutex mutex;
  bool is_to_server = false;
  std::optional<std::size_t> left;    // bytes until the connection breaks
  std::optional<std::size_t> broken;  // the connection that ends with its next bytes
  Proxy proxy(cluster.server().port(),
              [&](std::size_t connection, bool to_server, std::string bytes) {
                std::lock_guard lock(mutex);
                if (broken == connection) {
                  proxy.cut();
                  return std::string();
                }
                if (!left || to_server != is_to_server) return bytes;
                if (bytes.size() > *left) {
                  bytes.resize(*left);
                  broken = connection;
                  left.reset();
                } else {
                  *left -= bytes.size();
                }
                return bytes;
              });
  cluster.redirect(0, proxy.port());
  cluster.change_worker = [](kv::ClientOptions& options) { options.lost_limit = 30s; };
  auto store = cluster.open(0, "dist_sync", false, 4 << 20);
  std::vector<float> zeros(kLarge, 0);
  init(*store, "w", zeros);
  float next = 0;
  for (const bool to_server : {true, false})
    for (const std::size_t at : {std::size_t{1}, data::kHeaderBytes - 1, kHead - 1, kHead + 70'000,
                                 kHead + kBytes - 200'000, kHead + kBytes + 3}) {
      {
        std::lock_guard lock(mutex);
        is_to_server = to_server;
        left = at;
      }
      CAPTURE(to_server, at);
      std::vector<float> values(kLarge, ++next);
      must(pushpull(*store, "w", values, values, {}));
      std::lock_guard lock(mutex);
      REQUIRE(values == std::vector<float>(kLarge, next));
      REQUIRE(!left);
    }
  CHECK(dropped(cluster) == 0);
}

TEST_CASE("frames: the last one on each loop's connection, removed or held, comes again",
          "[frames]") {
  constexpr std::uint32_t kLoops = 4;
  Cluster cluster(1, 1, true, false, false, [](kv::ServerOptions& options) {
    options.data_auth = kv::DataAuth::kFrames;
    options.loops = kLoops;
  });
  cluster.transport = kv::Transport::kTcp;
  Frames frames;
  Proxy proxy(cluster.server().port(), frames.change());
  cluster.redirect(0, proxy.port());
  cluster.change_worker = [](kv::ClientOptions& options) {
    options.lost_limit = 30s;
    options.answer_limit = 500ms;
  };
  auto store = cluster.open(0);
  std::vector<float> values(1024 * kLoops, 0);  // a chunk at each loop
  init(*store, "w", values);
  float next = 0;
  for (const bool to_server : {true, false})
    for (const bool blocks : {false, true}) {
      frames.remove(to_server, to_server ? data::Type::kPushPull : data::Type::kValue, kLoops,
                    blocks);
      CAPTURE(to_server, blocks);
      std::vector<float> gradient(values.size(), ++next);
      must(pushpull(*store, "w", gradient, values, {}));
      REQUIRE(values == gradient);
      REQUIRE(frames.removals() == 0);
    }
  CHECK(dropped(cluster) > 0);
}

TEST_CASE("frames: a resent request is answered when it has come whole, not before", "[frames]") {
  // Its bytes may lie where the answer goes: an earlier one would change what is still being sent.
  Cluster cluster(1, 2, true, false, false, require_tags);
  const auto push = [](std::uint32_t worker) {
    data::Header header;
    header.type = data::Type::kPushPull;
    header.worker = WorkerId(worker);
    header.generation = Generation(1);
    header.round = Round(1);
    header.samples = 1;
    return header;
  };
  data::Header sync;
  sync.type = data::Type::kSync;
  const std::string ones = bytes_of(std::vector<float>(kElements, 1));
  Stranger first(cluster.server().port());
  first.authenticate(WorkerId(0), true);
  make_chunk(first, 0, kElements);
  first.tell(push(0), ones);
  REQUIRE(first.ask(sync, {}).type == data::Type::kDone);  // the push was counted
  Stranger second(cluster.server().port());
  second.authenticate(WorkerId(0), true);
  REQUIRE(first.is_closed());
  const auto again = second.frame(push(0), ones);
  second.say(again.substr(0, kHead + 20));
  Stranger other(cluster.server().port());
  other.authenticate(WorkerId(1), true);
  REQUIRE(other.ask(push(1), ones).type == data::Type::kValue);  // the round is complete
  second.say(again.substr(kHead + 20));
  CHECK(second.ask(sync, {}).type == data::Type::kValue);
  CHECK(second.last_payload == bytes_of(std::vector<float>(kElements, 2)));
  CHECK(second.hear_answer().type == data::Type::kDone);
  CHECK(dropped(cluster) == 0);
}

TEST_CASE("frames: by default they have tags unless both addresses are the machine's own",
          "[frames]") {
  const std::string own = own_address();
  if (own.empty()) {
    WARN("this machine has no address but loopback's: nothing to show");
    return;
  }
  Cluster cluster(1, 1, true, false, false, [&](kv::ServerOptions& options) {
    options.data_auth = kv::DataAuth::kAuto;
    options.bind = own;
  });
  Stranger inside(cluster.server().port(), own, own);
  inside.authenticate(WorkerId(0), false);
  CHECK_FALSE(inside.has_tags);
  Stranger outside(cluster.server().port(), own, "127.0.0.1");
  outside.authenticate(WorkerId(0), false);
  CHECK(outside.has_tags);
}

TEST_CASE("frames: either end may require tags, and then both have them", "[frames]") {
  using Auth = kv::DataAuth;
  const auto [server, worker] =
      GENERATE(std::pair(Auth::kFrames, Auth::kHandshake),
               std::pair(Auth::kHandshake, Auth::kFrames), std::pair(Auth::kAuto, Auth::kFrames));
  Exchange exchange(server, worker);
  exchange.harms.harm(true, data::Type::kPushPull, flip(kHead, 1));
  CHECK(exchange.is_right());
  CHECK(exchange.harms.is_done());
  CHECK(dropped(exchange.cluster) == 1);
}

TEST_CASE("frames: a member without tags gets nothing from a server that requires them",
          "[frames][security]") {
  Cluster cluster(1, 1, true, false, false, require_tags);
  Stranger member(cluster.server().port());
  member.authenticate(WorkerId(0), false);
  CHECK(member.has_tags);
  data::Header sync;
  sync.type = data::Type::kSync;
  member.tell(sync, std::string(data::kTagBytes, 'x'));
  CHECK(member.is_closed());
  CHECK(eventually([&] { return dropped(cluster) == 1; }));
}

TEST_CASE("frames: who changes what the ends agree on is refused by both", "[frames][security]") {
  // A bool of ClientProof (server, worker, loop, wants_tags, ...), then of ServerProof (loops,
  // ...).
  const bool to_server = GENERATE(true, false);
  const std::size_t at = wire::kFrameHeader + (to_server ? 12 : 4);
  Cluster cluster(1, 1, true, false, false, [&](kv::ServerOptions& options) {
    // Each wish is of one end alone.
    options.data_auth = to_server ? kv::DataAuth::kHandshake : kv::DataAuth::kFrames;
  });
  cluster.change_worker = [&](kv::ClientOptions& options) {
    options.data_auth = to_server ? kv::DataAuth::kFrames : kv::DataAuth::kHandshake;
    options.start_limit = 2s;
  };
  std::map<std::size_t, std::size_t> messages;
  std::atomic<unsigned> changed = 0;
  std::mutex mutex;
  Proxy proxy(cluster.server().port(), [&](std::size_t connection, bool server, std::string bytes) {
    std::lock_guard lock(mutex);
    if (server != to_server) return bytes;
    // The handshake's messages come one by one, since each end waits for the other's.
    if (++messages[connection] != (to_server ? 1 : 2)) return bytes;
    if (bytes[at] == 1) bytes[at] = 0, ++changed;
    return bytes;
  });
  cluster.redirect(0, proxy.port());
  CHECK_THROWS_WITH(cluster.open(0), Catch::Contains("secret"));
  CHECK(changed > 0);
  if (to_server) CHECK(cluster.server().counters().refused_strangers >= changed);
}

TEST_CASE("frames: a worker that requires tags refuses a server that knows the secret and has none",
          "[frames][security]") {
  using Tcp = io::asio::ip::tcp;
  io::asio::io_context context;
  Tcp::acceptor acceptor(context, Tcp::endpoint(io::asio::ip::address_v4::loopback(), 0));
  std::atomic<bool> is_over = false;
  std::thread server([&] {
    const auto message = [](Tcp::socket& from) {
      std::uint32_t size = 0;
      boost::system::error_code ec;
      io::asio::read(from, io::asio::buffer(&size, sizeof size), ec);
      std::string text(ec ? 0 : size, '\0');
      if (!text.empty()) io::asio::read(from, io::asio::buffer(text), ec);
      return ec ? "" : text.substr(std::min(text.size(), sizeof(std::uint16_t)));
    };
    while (!is_over) {
      auto worker = acceptor.accept();
      data::Challenge challenge;
      challenge.nonce = kv::fresh_nonce();
      boost::system::error_code ec;
      io::asio::write(worker, io::asio::buffer(wire::frame(challenge)), ec);
      const auto proof = wire::parse<data::ClientProof>(message(worker));
      if (!proof) continue;
      data::ServerProof answer{.loops = 1, .has_tags = false, .mac = {}};
      answer.mac =
          kv::server_mac(kSecret, Stranger::transcript_of(challenge.nonce, *proof), answer);
      io::asio::write(worker, io::asio::buffer(wire::frame(answer)), ec);
      (void)message(worker);  // the end of the connection
    }
  });
  Cluster cluster(1, 1);
  cluster.change_worker = [](kv::ClientOptions& options) {
    options.data_auth = kv::DataAuth::kFrames;
    options.start_limit = 1s;
  };
  cluster.redirect(0, acceptor.local_endpoint().port());
  CHECK_THROWS_WITH(cluster.open(0), Catch::Contains("does not authenticate frames"));
  is_over = true;
  Tcp::socket last(context);
  last.connect(acceptor.local_endpoint());
  last.close();
  server.join();
}

TEST_CASE("frames: a server or worker of another version is named", "[frames]") {
  Cluster cluster(1, 1);
  cluster.change_worker = [](kv::ClientOptions& options) { options.start_limit = 1s; };
  Proxy proxy(cluster.server().port(), [](std::size_t, bool to_server, std::string bytes) {
    if (!to_server) bytes[wire::kFrameHeader] = static_cast<char>(data::kVersion - 1);
    return bytes;
  });
  cluster.redirect(0, proxy.port());
  CHECK_THROWS_WITH(cluster.open(0),
                    Catch::Contains(fmt::format("version {} of the protocol, not {}",
                                                data::kVersion - 1, data::kVersion)));
}

}  // namespace frames
