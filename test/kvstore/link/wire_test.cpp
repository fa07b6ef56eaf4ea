#include <algorithm>
#include <cstring>
#include <deque>
#include <future>

#include "kvstore/link/handshake.h"
#include "kvstore/link/shared_memory.h"
#include "test/kvstore/cluster.h"
#include "test/kvstore/device_under_test.h"
#include "test/kvstore/eventually.h"
#include "test/kvstore/proxy.h"
#include "test/kvstore/stranger.h"
#include "test/support/catch.h"
#include "test/support/emulated_device/emulated_device.h"

using namespace dt;
using namespace dt::test;

TEST_CASE("strangers: a wrong secret is refused, and the client says what is wrong", "[security]") {
  Cluster cluster(1, 1);
  Stranger stranger(cluster.server().port());
  const auto challenge = stranger.hear_message<data::Challenge>();
  stranger.say(wire::frame(Stranger::prove(challenge.nonce, std::string(32, 'x'))));
  CHECK(stranger.is_closed());
  CHECK(eventually([&] { return cluster.server().counters().refused_strangers == 1; }));
}

TEST_CASE("strangers: a proof that was good once cannot be replayed", "[security]") {
  Cluster cluster(1, 1);
  Stranger honest(cluster.server().port());
  const auto challenge = honest.hear_message<data::Challenge>();
  const std::string proof = wire::frame(Stranger::prove(challenge.nonce, kSecret));
  honest.say(proof);
  CHECK(honest.hear_message<data::ServerProof>().loops == 2);
  Stranger replay(cluster.server().port());
  CHECK(replay.hear_message<data::Challenge>().nonce != challenge.nonce);
  replay.say(proof);
  CHECK(replay.is_closed());
}

TEST_CASE("strangers: a server's own proof reflected as a client's is refused", "[security]") {
  kv::Transcript transcript;
  transcript.server_nonce = kv::fresh_nonce();
  transcript.client_nonce = kv::fresh_nonce();
  CHECK_FALSE(kv::same_mac(kv::client_mac(kSecret, transcript),
                           kv::server_mac(kSecret, transcript, data::ServerProof{})));
}

TEST_CASE("strangers: garbage, a 4 GiB length and silence cost a bounded time and no state",
          "[security]") {
  Cluster cluster(1, 1);
  const auto port = cluster.server().port();
  std::string huge;
  for (int i = 0; i < 64; ++i) huge += "\xff\xff\xff\xff";
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), huge, std::string("\x02\x00\x00\x00\x00\x00", 6)}) {
    Stranger stranger(port);
    stranger.say(bytes);
    CHECK(stranger.is_closed());
  }
  Stranger silent(port);
  CHECK(silent.is_closed());  // after the handshake's 5 s
  CHECK(eventually([&] { return cluster.server().counters().refused_strangers == 4; }));
  cluster.run(1, [](kv::Store& store, std::uint32_t) { must(store.barrier()); });
}

TEST_CASE("strangers: more than 64 at once are turned away, and members still get in afterwards",
          "[security]") {
  Cluster cluster(1, 1);
  {
    std::vector<std::unique_ptr<Stranger>> many;
    for (int i = 0; i < 80; ++i)
      many.push_back(std::make_unique<Stranger>(cluster.server().port()));
    CHECK(eventually([&] { return cluster.server().counters().refused_strangers >= 16; }));
  }
  cluster.run(1, [](kv::Store& store, std::uint32_t) { must(store.barrier()); });
}

TEST_CASE("strangers: silent ones keep no member out, however many there are", "[security]") {
  Cluster cluster(1, 1, true, false, false,
                  [](kv::ServerOptions& options) { options.handshake_limit = 60s; });
  std::vector<std::unique_ptr<Stranger>> many;
  for (int i = 0; i < 80; ++i) many.push_back(std::make_unique<Stranger>(cluster.server().port()));
  CHECK(eventually([&] { return cluster.server().counters().refused_strangers == 16; }));
  cluster.run(1, [](kv::Store& store, std::uint32_t) { must(store.barrier()); });
}

TEST_CASE("members: a frame that nobody may send drops the connection before memory is taken",
          "[security]") {
  Cluster cluster(1, 1);
  auto frame = [](auto change) {
    data::Header header;
    header.type = data::Type::kSync;
    change(header);
    const auto bytes = data::encode(header);
    return std::string(bytes.begin(), bytes.end());
  };
  const std::vector<std::string> bad = {
      std::string(data::kHeaderBytes, 'x'),
      frame([](auto& h) { h.payload = 0xffffffff; }),
      frame([](auto& h) { h.payload = data::kMaxPayload; }),
      frame([](auto& h) { h.worker = WorkerId(3); }),
      frame([](auto& h) { h.type = data::Type::kValue; }),
      frame([](auto& h) { h.type = data::Type::kPush; }),
      frame([](auto& h) {
        h.type = data::Type::kInit;
        h.samples = ~0ull;
      }),
  };
  for (const auto& bytes : bad) {
    Stranger member(cluster.server().port());
    member.authenticate();
    member.say(bytes);
    CHECK(member.is_closed());
  }
  CHECK(eventually([&] { return cluster.server().counters().dropped_connections == bad.size(); }));
}

TEST_CASE("connections: after a cut everything unanswered is sent again and counts once",
          "[dist_sync]") {
  Cluster cluster(1, 2);
  Proxy proxy(cluster.server().port());
  cluster.redirect(0, proxy.port());
  constexpr std::uint64_t kSteps = 60;
  std::atomic<std::uint64_t> steps = 0;
  auto scissors = std::async(std::launch::async, [&] {
    for (std::uint64_t at = 3; at < kSteps; at += 3)
      if (eventually([&] { return steps >= at; })) proxy.cut();
  });
  std::exception_ptr failed;
  try {
    cluster.run(2, [&](kv::Store& store, std::uint32_t w) {
      std::vector<float> values(100'000, 0);
      init(store, "w", values);
      must(store.set_optimizer("sgd"));
      must(store.barrier());
      std::vector<float> g(values.size(), 1);
      for (std::uint64_t step = 0; step < kSteps; ++step) {
        kv::PushOptions options;
        options.step = step;
        options.learning_rate = 1;
        must(pushpull(store, "w", g, values, options));
        const float wanted = -static_cast<float>(step) - 1;
        if (std::count(values.begin(), values.end(), wanted) != std::ssize(values))
          throw std::runtime_error("a push was lost or counted twice");
        if (w == 0) ++steps;
      }
    });
  } catch (...) {
    failed = std::current_exception();
  }
  steps = kSteps;
  scissors.get();
  if (failed) std::rethrow_exception(failed);
  CHECK(proxy.said().size() > 6);  // it was cut at all
}

TEST_CASE("connections: in dist_async every update counts once as well, whatever is cut",
          "[dist_async]") {
  Cluster cluster(1, 3);
  Proxy proxy(cluster.server().port());
  cluster.redirect(0, proxy.port());
  constexpr std::uint64_t kPushes = 120;
  constexpr std::size_t kElements = 20'000;
  std::atomic<std::uint64_t> pushes = 0;
  auto scissors = std::async(std::launch::async, [&] {
    for (std::uint64_t at = 5; at < 3 * kPushes; at += 20)
      if (eventually([&] { return pushes >= at; })) proxy.cut();
  });
  std::exception_ptr failed;
  try {
    cluster.run(
        3,
        [&](kv::Store& store, std::uint32_t w) {
          std::vector<double> values(kElements, 0);
          init(store, "w", values);
          must(store.barrier());
          // Several pushes are in flight when the connection breaks.
          std::vector<double> ones(kElements, w + 1.0);
          std::deque<kv::Handle> under_way;
          for (std::uint64_t i = 0; i < kPushes; ++i) {
            under_way.push_back(must(store.push({"w"}, {array_of(ones)}, {})));
            if (under_way.size() > 3) {
              must(store.wait(under_way.front(), 30));
              under_way.pop_front();
            }
            if (i % 10 == 9) {
              must(pushpull(store, "w", ones, values, {}));
              const double own = (w + 1.0) * static_cast<double>(i + 1 + (i + 1) / 10);
              if (values[kElements - 1] < own) throw std::runtime_error("an own push is missing");
            }
            ++pushes;
          }
          must(store.wait_all(30));
          must(store.barrier());
          pull(store, "w", values);
          const double all = 6 * static_cast<double>(kPushes + kPushes / 10);
          if (values != std::vector<double>(kElements, all))
            throw std::runtime_error(fmt::format("lost or doubled: {}, not {}", values[0], all));
        },
        "dist_async");
  } catch (...) {
    failed = std::current_exception();
  }
  pushes = 3 * kPushes;
  scissors.get();
  if (failed) std::rethrow_exception(failed);
  CHECK(proxy.said().size() > 6);  // it was cut at all
}

TEST_CASE("connections: a server that is gone for too long is an error with its address",
          "[dist_sync]") {
  Cluster cluster(1, 1);
  auto proxy = std::make_unique<Proxy>(cluster.server().port());
  cluster.redirect(0, proxy->port());
  const auto port = std::to_string(proxy->port());
  auto store = cluster.open(0);
  std::vector<float> values(10, 0);
  init(*store, "w", values);
  proxy.reset();
  const auto lost = pushpull(*store, "w", values, values, {});
  REQUIRE_FALSE(lost);
  CHECK(lost.error().code == kv::Code::kUnavailable);
  CHECK(lost.error().message.find("127.0.0.1 port " + port) != std::string::npos);
}

TEST_CASE("connections: a server that drops us after each handshake is lost as well",
          "[dist_sync]") {
  Cluster cluster(1, 1);
  Proxy proxy(cluster.server().port());
  cluster.redirect(0, proxy.port());
  auto store = cluster.open(0);
  std::vector<float> values(10, 0);
  init(*store, "w", values);
  proxy.end_after_handshake();
  proxy.cut();
  const auto lost = pushpull(*store, "w", values, values, {});
  REQUIRE_FALSE(lost);
  CHECK(lost.error().code == kv::Code::kUnavailable);
  CHECK(lost.error().message.find("127.0.0.1 port " + std::to_string(proxy.port())) !=
        std::string::npos);
  CHECK(proxy.said().size() < 100);  // it did not reconnect at once each time
}

TEST_CASE("connections: cuts while nothing is asked lose nobody", "[dist_sync]") {
  Cluster cluster(1, 1);
  Proxy proxy(cluster.server().port());
  cluster.redirect(0, proxy.port());
  auto store = cluster.open(0);
  std::vector<float> values(10, 1);
  init(*store, "w", values);
  init(*store, "v", values);  // on the second loop: there is a connection to each
  const auto end = std::chrono::steady_clock::now() + 4s;  // longer than a server may be gone
  while (std::chrono::steady_clock::now() < end) {
    const auto before = proxy.handshakes();
    proxy.cut();
    // To both loops: a server whose handshakes are all cut off counts as gone.
    REQUIRE(eventually([&] { return proxy.handshakes() >= before + 2; }));
  }
  must(pushpull(*store, "w", values, values, {}));
}

TEST_CASE("connections: a worker connects to a loop when the loop owns a chunk, not before",
          "[dist_sync][elastic]") {
  constexpr std::uint32_t kLoops = 4;
  Cluster cluster(1, 2, true, false, false,
                  [](kv::ServerOptions& options) { options.loops = kLoops; });
  Proxy proxy(cluster.server().port());
  cluster.redirect(0, proxy.port());
  auto first = cluster.open(0);
  auto second = cluster.open(1);
  CHECK(eventually([&] { return proxy.handshakes() == 2; }));
  // A request to all loops reaches those without a connection.
  must(first->set_optimizer("sgd"));
  CHECK(eventually([&] { return proxy.handshakes() == 2; }));
  std::vector<float> zeros(10, 0);
  std::vector<float> one(10, 1);
  std::vector<float> out(10, 7);
  // No parameter: the second worker has none at the first boundary, and is not compared.
  std::thread other([&] { init(*second, "on loop 0", zeros, data::kAuxiliary); });
  init(*first, "on loop 0", zeros, data::kAuxiliary);
  other.join();
  CHECK(eventually([&] { return proxy.handshakes() == 2; }));
  // The first worker alone has this key. Its rounds wait for the second until that has finished.
  for (const char* key : {"on loop 1", "on loop 2"}) init(*first, key, zeros);
  CHECK(eventually([&] { return proxy.handshakes() == 4; }));
  kv::PushOptions options;
  options.samples = 1;
  options.learning_rate = 1;
  const auto handle =
      must(first->pushpull({"on loop 2"}, {array_of(one)}, {array_of(out)}, options));
  CHECK_FALSE(first->wait(handle, 0.1));
  std::thread finishing([&] { must(second->epoch_boundary(Epoch(1))); });
  must(first->wait(handle, 30));
  CHECK(out == std::vector<float>(10, -1));
  must(first->epoch_boundary(Epoch(1)));
  finishing.join();
  CHECK(eventually([&] { return proxy.handshakes() == 4; }));
  // From now on both have it; the second also knows the earlier rounds.
  std::thread also([&] {
    init(*second, "on loop 1", zeros);
    init(*second, "on loop 2", zeros);
    std::vector<float> mine(10, 0);
    must(pushpull(*second, "on loop 2", one, mine, options));
  });
  must(pushpull(*first, "on loop 2", one, out, options));
  also.join();
  CHECK(out == std::vector<float>(10, -2));
  CHECK(eventually([&] { return proxy.handshakes() == 6; }));
}

TEST_CASE("connections: a job without servers is said plainly, at once", "[dist_sync]") {
  Cluster cluster(0, 1, false);
  try {
    cluster.open(0);
    FAIL("a store without servers");
  } catch (const std::runtime_error& e) {
    CHECK(std::string(e.what()).find("-s 0") != std::string::npos);
  }
}

TEST_CASE("priorities: what is wanted first is sent first", "[dist_sync]") {
  Cluster cluster(1, 1);
  cluster.transport = kv::Transport::kTcp;  // over shared memory nothing waits for a window
  Proxy proxy(cluster.server().port(), {}, 64 << 10);
  cluster.redirect(0, proxy.port());
  auto store = cluster.open(0, "dist_sync", false, 1 << 20);
  // Two loops: each loop's connection must carry frames in order of priority.
  std::vector<std::string> names;
  std::vector<std::vector<float>> values(64, std::vector<float>(25'000, 1));
  std::vector<kv::Array> arrays;
  for (std::size_t i = 0; i < values.size(); ++i) {
    names.push_back("k" + std::to_string(i));
    arrays.push_back(array_of(values[i]));
  }
  must(store->init(names, arrays, 0));
  const auto before = proxy.said();
  proxy.hold(true);
  std::vector<kv::Handle> handles;
  for (std::size_t i = 0; i < values.size(); ++i) {
    kv::PushOptions options;
    options.priority = static_cast<int>(i);
    handles.push_back(must(store->push({names[i]}, {arrays[i]}, options)));
  }
  CHECK_FALSE(store->wait(handles.back(), 0.2));  // by then all are queued, most of them unsent
  proxy.hold(false);
  for (const auto handle : handles) must(store->wait(handle, 30));
  const auto after = proxy.said();
  std::size_t out_of_order = 0;
  std::size_t pushes = 0;
  std::size_t compared = 0;
  for (std::size_t c = 0; c < after.size(); ++c) {
    std::string_view bytes(after[c]);
    bytes.remove_prefix(before[c].size());
    std::vector<int> order;
    while (bytes.size() >= data::kHeaderBytes) {
      const auto header = data::decode(bytes.substr(0, data::kHeaderBytes));
      REQUIRE(header);
      if (header->type == data::Type::kPush) order.push_back(header->priority);
      bytes.remove_prefix(std::min(bytes.size(), data::kHeaderBytes + header->payload));
    }
    pushes += order.size();
    // The first few were on their way before the later, more urgent ones were submitted.
    const auto window = std::min<std::ptrdiff_t>(std::ssize(order), 22);
    for (auto i = order.begin() + window; i + 1 < order.end(); ++i)
      ++compared, out_of_order += *i < *(i + 1);
  }
  CHECK(pushes == values.size());
  CHECK(compared > 10);
  CHECK(out_of_order == 0);
}

TEST_CASE("frames: a header in memory is what the field list says", "[wire]") {
  data::Header header;
  header.payload = 0x01020304;
  header.type = data::Type::kPushPull;
  header.dtype = data::Dtype::kFloat64;
  header.reduce = data::Reduce::kMean;
  header.flags = data::kAsync;
  header.priority = -5;
  header.key = KeyId(6);
  header.chunk = 7;
  header.worker = WorkerId(8);
  header.learning_rate = 0.25f;
  header.request = 9;
  header.generation = Generation(10);
  header.round = Round(11);
  header.step = 12;
  header.samples = 13;
  const auto bytes = data::encode(header);
  CHECK(std::string(bytes.begin(), bytes.end()) == wire::body_of(header));
}

TEST_CASE("frames: a codec says nothing of the other flags, and one that is none is refused",
          "[wire]") {
  data::Header header;
  header.type = data::Type::kPush;
  for (unsigned codec = 0; codec < 8; ++codec) {
    header.flags = data::kAsync | data::kShared;
    data::set_codec(header, static_cast<data::Codec>(7));
    data::set_codec(header, static_cast<data::Codec>(codec));
    CHECK((header.flags & ~data::kCodec) == (data::kAsync | data::kShared));
    CHECK(data::codec_of(header) == static_cast<data::Codec>(codec));
    const auto bytes = data::encode(header);
    const auto decoded = data::decode(std::string_view(bytes.data(), bytes.size()));
    CHECK(decoded.has_value() == (codec <= static_cast<unsigned>(data::Codec::kBf16)));
  }
}

TEST_CASE("members: one memory too many is refused, and the connection lives", "[security]") {
  Cluster cluster(1, 1);
  Stranger member(cluster.server().port());
  member.authenticate();
  const auto memory = kv::SharedMemory::create(1, true);
  REQUIRE(memory);
  data::Header share;
  share.type = data::Type::kShare;
  std::uint32_t number = 0;
  const auto next = [&] { return member.ask(share, wire::body_of((*memory)->describe(number++))); };
  while (next().type == data::Type::kDone) REQUIRE(number <= 4096);
  CHECK(number == 1025);
  data::Header forget;
  forget.type = data::Type::kUnshare;
  CHECK(member.ask(forget, {}).type == data::Type::kDone);
  CHECK(next().type == data::Type::kDone);
}

TEST_CASE("members: one that asks and does not read is read from no more", "[security]") {
  Cluster cluster(1, 1);
  Stranger member(cluster.server().port());
  member.authenticate();
  data::Header init;
  init.type = data::Type::kInit;
  init.samples = std::uint64_t{1} << 18;
  const std::string values(init.samples * sizeof(float), '\0');
  REQUIRE(member.ask(init, values).type == data::Type::kDone);
  data::Header pull;
  pull.type = data::Type::kPull;
  const auto frame = data::encode(pull);
  CHECK(member.is_stopped_within(std::size_t{64} << 20, std::string(frame.begin(), frame.end())));
  Stranger other(cluster.server().port());
  other.authenticate();  // the same worker: it replaces the first connection
  CHECK(other.ask(pull, {}).type == data::Type::kValue);
}

TEST_CASE("members: memory that is taken back in an open round is read to the round's end",
          "[security][shm]") {
  constexpr std::size_t kElements = 100'000;
  Cluster cluster(1, 2);
  Stranger first(cluster.server().port());
  first.authenticate(WorkerId(1));
  Stranger second(cluster.server().port());
  second.authenticate(WorkerId(0));
  data::Header init;
  init.type = data::Type::kInit;
  init.samples = kElements;
  const std::string zeros(kElements * sizeof(float), '\0');
  CHECK(second.ask(init, zeros).type == data::Type::kDone);
  auto memory = kv::SharedMemory::create(zeros.size(), true);
  REQUIRE(memory);
  const std::span<float> values(reinterpret_cast<float*>((*memory)->bytes().data()), kElements);
  std::fill(values.begin(), values.end(), 5.0f);
  data::Header header;
  header.worker = WorkerId(1);
  header.type = data::Type::kShare;
  CHECK(first.ask(header, wire::body_of((*memory)->describe(0))).type == data::Type::kDone);
  // A device reads the memory directly.
  CHECK(emulated::alive().registrations == (device_under_test() ? 1 : 0));
  data::SharedPlaces places;
  places.in = 0;
  header.type = data::Type::kPush;
  header.flags = data::kShared;
  header.generation = cluster.generation();
  header.round = Round(1);
  header.samples = 1;
  first.tell(header, payload_of(places));
  data::Header forget;
  forget.worker = WorkerId(1);
  forget.type = data::Type::kUnshare;
  CHECK(first.ask(forget, {}).type == data::Type::kDone);
  header.worker = WorkerId(0);
  header.flags = 0;
  CHECK(second.ask(header, zeros).type == data::Type::kDone);
  header.type = data::Type::kPull;
  second.tell(header, {});
  const auto answer = data::decode(second.hear(data::kHeaderBytes));
  REQUIRE(answer);
  const std::string got = second.hear(answer->payload);
  const bool is_sum =
      got == std::string(reinterpret_cast<const char*>(values.data()), zeros.size());
  CHECK(is_sum);
}

// A worker whose store broke closes its connections and then returns memory to its program.
TEST_CASE("members: a closed connection says that the worker's memory is read no more",
          "[security][shm]") {
  constexpr std::size_t kElements = 100'000;
  // The end arrives with the push, or after the server has just read the connection.
  const bool is_late = GENERATE(false, true);
  Cluster cluster(1, 2);
  Stranger goes(cluster.server().port());
  goes.authenticate(WorkerId(1));
  Stranger stays(cluster.server().port());
  stays.authenticate(WorkerId(0));
  data::Header init;
  init.type = data::Type::kInit;
  init.samples = kElements;
  const std::string zeros(kElements * sizeof(float), '\0');
  REQUIRE(stays.ask(init, zeros).type == data::Type::kDone);
  const auto memory = kv::SharedMemory::create(zeros.size(), true);
  REQUIRE(memory);
  const std::span<float> values(reinterpret_cast<float*>((*memory)->bytes().data()), kElements);
  data::Header header;
  header.worker = WorkerId(1);
  header.type = data::Type::kShare;
  REQUIRE(goes.ask(header, wire::body_of((*memory)->describe(0))).type == data::Type::kDone);
  std::fill(values.begin(), values.end(), 5.0f);
  data::SharedPlaces places;
  places.in = 0;
  header.type = data::Type::kPush;
  header.flags = data::kShared;
  header.generation = cluster.generation();
  header.round = Round(1);
  header.samples = 1;
  goes.tell(header, payload_of(places));
  data::Header forget;
  forget.worker = WorkerId(1);
  forget.type = data::Type::kUnshare;
  forget.chunk = 1;
  if (is_late) REQUIRE(goes.ask(forget, {}).type == data::Type::kDone);
  goes.hang_up();
  CHECK(goes.is_closed());
  std::fill(values.begin(), values.end(), 1000.0f);
  header.worker = WorkerId(0);
  header.flags = 0;
  REQUIRE(stays.ask(header, zeros).type == data::Type::kDone);
  header.type = data::Type::kPull;
  stays.tell(header, {});
  const auto answer = data::decode(stays.hear(data::kHeaderBytes));
  REQUIRE(answer);
  const std::string got = stays.hear(answer->payload);
  float first = 0;
  float last = 0;
  std::memcpy(&first, got.data(), sizeof first);
  std::memcpy(&last, got.data() + got.size() - sizeof last, sizeof last);
  CHECK(first == 5);
  CHECK(last == 5);
}
