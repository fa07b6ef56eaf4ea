// A worker's bad input is an error for it, with key, worker and cause; the server stays up, and
// other workers are not disturbed.

#include <cmath>
#include <fstream>
#include <future>
#include <limits>

#include "kvstore/link/shared_memory.h"
#include "test/kvstore/cluster.h"
#include "test/kvstore/eventually.h"
#include "test/kvstore/proxy.h"
#include "test/kvstore/stranger.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::test;

namespace bad_input {

namespace {

constexpr std::size_t kElements = 3'000;  // three chunks

/// Checks the code and words of the text; for the workers' threads, where Catch's macros may not be
/// used.
void expect_error(const kv::Status& status, kv::Code code,
                  std::initializer_list<const char*> words) {
  if (status) throw std::runtime_error("no error");
  const auto& text = status.error().message;
  if (status.error().code != code)
    throw std::runtime_error(fmt::format("code {}, not {}: {}",
                                         static_cast<int>(status.error().code),
                                         static_cast<int>(code), text));
  for (const char* word : words)
    if (text.find(word) == std::string::npos)
      throw std::runtime_error(fmt::format("no '{}' in: {}", word, text));
}
template <class T>
kv::Status status_of(const kv::StoreResult<T>& result) {
  if (!result) return tl::unexpected(result.error());
  return {};
}

/// A round of ones from all workers on "w", which must succeed whatever one worker did.
void ones_add_up(kv::Store& store, std::uint32_t workers) {
  std::vector<float> ones(kElements, 1);
  std::vector<float> sum(kElements);
  must(pushpull(store, "w", ones, sum, {}));
  if (sum != std::vector<float>(kElements, static_cast<float>(workers)))
    throw std::runtime_error("a wrong sum");
}
void init_ones(kv::Store& store) {
  std::vector<float> zero(kElements, 0);
  init(store, "w", zero);
}

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  statm >> size >> resident;
  return resident * 4096;
}

std::string bytes_of(const data::Header& header) {
  const auto head = data::encode(header);
  return {head.begin(), head.end()};
}

/// A frame about chunk 0 of key 0.
data::Header frame_of(data::Type type, WorkerId worker) {
  data::Header header;
  header.type = type;
  header.worker = worker;
  header.generation = Generation(1);
  header.round = Round(1);
  header.samples = 1;
  return header;
}

}  // namespace

TEST_CASE("bad input: init with another size or dtype names key, worker and both shapes",
          "[bad-input]") {
  Cluster cluster(2, 2);
  cluster.run(2, [](kv::Store& store, std::uint32_t w) {
    if (w == 0) init_ones(store);
    if (w == 1) {
      std::vector<float> short_one(kElements - 1);
      expect_error(store.init({"w"}, {array_of(short_one)}, 0), kv::Code::kMismatch,
                   {"'w'", "3000 elements", "worker 1", "2999"});
      std::vector<double> wide(kElements);
      expect_error(store.init({"w"}, {array_of(wide)}, 0), kv::Code::kMismatch,
                   {"'w'", "float32", "worker 1", "float64"});
      std::vector<float> same(kElements);
      expect_error(store.init({"w"}, {array_of(same)}, data::kAuxiliary), kv::Code::kMismatch,
                   {"'w'", "worker 1", "auxiliary"});
      std::vector<std::uint16_t> half(kElements);
      expect_error(
          store.init({"h"}, {kv::Array{half.data(), half.size(), data::Dtype::kFloat16}}, 0),
          kv::Code::kInvalid, {"worker 1", "'h'", "float32", "not float16"});
      init_ones(store);
    }
    must(store.barrier());
    ones_add_up(store, 2);
  });
}

TEST_CASE("bad input: an array that does not fit its key is refused before anything is sent",
          "[bad-input]") {
  const std::string type = GENERATE("dist_sync", "dist_async");
  Cluster cluster(2, 2);
  cluster.run(
      2,
      [](kv::Store& store, std::uint32_t w) {
        init_ones(store);
        must(store.barrier());
        if (w == 1) {
          std::vector<float> good(kElements, 1);
          std::vector<float> short_one(kElements - 1);
          std::vector<double> wide(kElements);
          const auto refused = [](const auto& result) {
            expect_error(status_of(result), kv::Code::kMismatch,
                         {"worker 1", "'w'", "3000 elements of float32"});
          };
          refused(store.push({"w"}, {array_of(short_one)}, {}));
          expect_error(status_of(store.push({"w"}, {array_of(wide)}, {})), kv::Code::kMismatch,
                       {"float64"});
          refused(store.push({"w"}, {array_of(wide)}, {}));
          refused(store.pull({"w"}, {array_of(short_one)}, {}));
          refused(store.pull({"w"}, {array_of(wide)}, {}));
          refused(store.pushpull({"w"}, {array_of(good)}, {array_of(short_one)}, {}));
          refused(store.pushpull({"w"}, {array_of(wide)}, {array_of(good)}, {}));
          // A list is checked as a whole before any of it is sent.
          refused(store.push({"w", "w"}, {array_of(good), array_of(short_one)}, {}));
        }
        must(store.barrier());
        std::vector<float> ones(kElements, 1);
        std::vector<float> sum(kElements);
        must(pushpull(store, "w", ones, sum, {}));
        must(store.barrier());
        pull(store, "w", sum);
        if (sum != std::vector<float>(kElements, 2)) throw std::runtime_error("something was sent");
      },
      type);
}

TEST_CASE("bad input: a key that this worker did not initialise is refused by its name",
          "[bad-input]") {
  Cluster cluster(2, 2);
  cluster.run(2, [](kv::Store& store, std::uint32_t w) {
    std::vector<float> values(kElements, 1);
    const auto refused = [&](const std::string& key) {
      const std::string named = "'" + key + "'";
      const auto is_refused = [&](const auto& result) {
        expect_error(status_of(result), kv::Code::kInvalid, {named.c_str(), "not initialised"});
      };
      is_refused(store.push({key}, {array_of(values)}, {}));
      is_refused(store.pull({key}, {array_of(values)}, {}));
      is_refused(store.pushpull({key}, {array_of(values)}, {array_of(values)}, {}));
    };
    refused("w");  // pull before init
    if (w == 0) init_ones(store);
    must(store.barrier());
    if (w == 1) refused("w");  // another worker's init is not this one's
    if (w == 1) init_ones(store);
    refused("no-such-key");
    ones_add_up(store, 2);
  });
}

TEST_CASE("bad input: NaN in a gradient is counted, and refused where the job says so",
          "[bad-input]") {
  constexpr std::size_t kCount = 2'500;  // of several chunks, and only the first is bad
  const bool refuse = GENERATE(false, true);
  const std::string type = GENERATE("dist_sync", "dist_async");
  const std::string codec = GENERATE("none", "2bit threshold=0.5", "fp16", "bf16");
  const bool deterministic = GENERATE(false, true);
  CAPTURE(refuse, type, codec, deterministic);
  Cluster cluster(1, 2, true, deterministic, refuse);
  cluster.run(
      2,
      [&](kv::Store& store, std::uint32_t w) {
        std::vector<float> zero(kCount, 0);
        init(store, "w", zero);
        must(store.set_gradient_compression(codec));
        must(store.barrier());
        const float whole = 0.5f;  // leaves no residual
        std::vector<float> gradient(kCount, whole);
        std::vector<float> value(kCount);
        if (w == 1) {
          auto bad = gradient;
          bad[500] = std::nanf("");
          bad[501] = std::numeric_limits<float>::infinity();
          const auto done = pushpull(store, "w", bad, value, {});
          if (refuse)
            expect_error(done, kv::Code::kNonfinite,
                         {"'w'", "worker 1", "2 of ", "infinite or NaN", "--refuse-nonfinite"});
          else
            must(done);
        } else {
          must(pushpull(store, "w", gradient, value, {}));
        }
        must(store.barrier());
        if (type == "dist_async") return;
        // The round is over for both, in all chunks.
        must(pushpull(store, "w", gradient, value, {}));
        if (value != std::vector<float>(kCount, 2 * whole))
          throw std::runtime_error("a wrong sum in the round after");
      },
      type);
  // In shared memory one pass sees only the sum, so two are counted there, too.
  CHECK(eventually([&] { return cluster.server().counters().nonfinite >= 2; }));
  CHECK(cluster.server().counters().nonfinite == 2);
}

TEST_CASE("bad input: frames that nobody may send cost their sender's connection alone",
          "[bad-input]") {
  Cluster cluster(1, 3);
  const auto huge = [](data::Type type, auto change) {
    auto header = frame_of(type, WorkerId(2));
    change(header);
    return bytes_of(header);
  };
  const auto before = resident_bytes();
  std::atomic<bool> is_enough = false;
  // dist_async: no worker waits for the third one.
  auto others = std::async(std::launch::async, [&] {
    cluster.run(
        2,
        [&](kv::Store& store, std::uint32_t) {
          init_ones(store);
          must(store.barrier());
          std::vector<float> ones(kElements, 1);
          std::vector<float> value(kElements);
          int pushes = 0;
          for (; !is_enough || pushes < 20; ++pushes) must(pushpull(store, "w", ones, value, {}));
        },
        "dist_async");
  });
  // The bad pushes come once the key exists.
  {
    auto third = cluster.open(2, "dist_async");
    init_ones(*third);
    must(third->barrier());
  }
  const std::vector<std::string> bad = {
      huge(data::Type::kPush, [](auto& h) { h.payload = data::kMaxPayload; }),
      huge(data::Type::kPush, [](auto& h) { h.payload = 0xffff'ffff; }),
      huge(data::Type::kPushPull, [](auto& h) { h.payload = 4'097; }),
      huge(data::Type::kPush,
           [](auto& h) {
             h.payload = 4'096;
             h.dtype = data::Dtype::kFloat64;
           }),
      huge(data::Type::kPush,
           [](auto& h) {
             h.payload = 4'096;
             h.chunk = 77;
           }),
      huge(data::Type::kPush,
           [](auto& h) {
             h.payload = 4'096;
             data::set_codec(h, data::Codec::kFp16);
           }),
      huge(data::Type::kRegister, [](auto& h) { h.payload = data::kMaxPayload; }),
      huge(data::Type::kShare, [](auto& h) { h.payload = 1 << 20; }),
      huge(data::Type::kPull, [](auto& h) { h.payload = 8; }),
      // For a loop that does not exist, and requests that no loop handles for another.
      huge(data::Type::kSync,
           [](auto& h) {
             h.key = data::kForLoop;
             h.chunk = 2;
           }),
      huge(data::Type::kBarrier, [](auto& h) { h.key = data::kForLoop; }),
      huge(data::Type::kSetOptimizer,
           [](auto& h) {
             h.key = data::kForLoop;
             h.chunk = 1;
             h.payload = 1 << 20;
           }),
      // More than a worker ever has in flight; they are held, since their generation is in the
      // future.
      [] {
        auto header = frame_of(data::Type::kFinish, WorkerId(2));
        header.key = data::kForLoop;
        header.chunk = 1;
        header.generation = Generation(9);
        std::string many;
        for (int i = 0; i < 2 * 64 + 1; ++i) many += bytes_of(header);
        return many;
      }(),
  };
  for (const auto& bytes : bad) {
    Stranger member(cluster.server().port());
    member.authenticate(WorkerId(2));
    member.say(bytes);
    CHECK(member.is_closed());
  }
  is_enough = true;
  others.get();
  CHECK(eventually([&] { return cluster.server().counters().dropped_connections == bad.size(); }));
  CHECK(resident_bytes() < before + (std::uint64_t{64} << 20));
}

TEST_CASE("bad input: places outside of shared memory cost their sender's connection alone",
          "[bad-input]") {
  Cluster cluster(1, 2);
  auto store = cluster.open(0, "dist_async");
  init_ones(*store);
  const auto memory = kv::SharedMemory::create(4'096, true);
  REQUIRE(memory);
  const std::uint64_t size = (*memory)->bytes().size();
  const auto nowhere = data::SharedPlaces::kNowhere;
  std::vector<data::SharedPlaces> bad = {
      {1, nowhere, 0, 0},         // memory 1 was not shared
      {0, nowhere, size, 0},      // behind its end
      {0, nowhere, size - 4, 0},  // across its end
      {0, 0, 0, ~std::uint64_t{0}}, {0, 0, ~std::uint64_t{0} - 4'095, 0},
      {nowhere, 0, 0, 0},  // a push from nowhere
  };
  for (const auto& places : bad) {
    Stranger member(cluster.server().port());
    member.authenticate(WorkerId(1));
    auto share = frame_of(data::Type::kShare, WorkerId(1));
    REQUIRE(member.ask(share, wire::body_of((*memory)->describe(0))).type == data::Type::kDone);
    auto push = frame_of(data::Type::kPushPull, WorkerId(1));
    push.flags = data::kAsync | data::kShared;
    push.payload = sizeof places;
    member.say(bytes_of(push).append(payload_of(places)));
    CHECK(member.is_closed());
  }
  CHECK(eventually([&] { return cluster.server().counters().dropped_connections == bad.size(); }));
  std::vector<float> ones(kElements, 1);
  std::vector<float> value(kElements);
  must(pushpull(*store, "w", ones, value, {}));
  CHECK(value == ones);
}

TEST_CASE("bad input: a worker that reads no answers takes bounded memory and stops nobody",
          "[bad-input]") {
  // Every unread answer holds its own copy of the value, since the other workers keep changing it.
  constexpr std::size_t kLarge = std::size_t{1} << 18;  // 1 MB, one chunk
#ifndef DT_TSAN
  constexpr std::size_t kRounds = 600;
#else  // TSan is slow.
  constexpr std::size_t kRounds = 30;
#endif
  Cluster cluster(1, 2);
  auto store = cluster.open(0, "dist_async", false, kLarge * sizeof(float));
  std::vector<float> value(kLarge, 0);
  init(*store, "w", value);
  Stranger deaf(cluster.server().port());
  deaf.authenticate(WorkerId(1));
  const std::string pull_frame = bytes_of(frame_of(data::Type::kPull, WorkerId(1)));
  std::vector<float> ones(kLarge, 1);
  must(pushpull(*store, "w", ones, value, {}));
  const auto before = resident_bytes();
  std::size_t asked = 0;
  for (std::size_t round = 0; round < kRounds; ++round) {
    asked += deaf.say_some(pull_frame);
    must(pushpull(*store, "w", ones, value, {}));
    // The kernel closes a connection from which no byte is taken for 20 s.
    if (round % 50 == 49) (void)deaf.hear(std::size_t{256} << 10);
  }
  CHECK(asked > kRounds / 2 * data::kHeaderBytes);  // for more than may be queued
  CHECK(value == std::vector<float>(kLarge, kRounds + 1));
#ifndef DT_TSAN  // TSan's shadow memory is several times as large
  CHECK(resident_bytes() < before + (std::uint64_t{400} << 20));
#else
  (void)before;
#endif
}

}  // namespace bad_input
