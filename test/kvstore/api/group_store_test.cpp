// A key given several times in one call: the arrays of one process's devices.

#include "kvstore/api/group_store.h"

#include <future>
#include <stdexcept>
#include <vector>

#include "test/kvstore/cluster.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::test;

namespace group_store_tests {

constexpr std::size_t kElements = 3'000;
using Values = std::vector<float>;

Values filled(float value) { return Values(kElements, value); }

kv::GroupStore over(std::unique_ptr<kv::Store> inner) { return kv::GroupStore(std::move(inner)); }

TEST_CASE("device group: arrays of one key are one contribution, and its value goes to all of them",
          "[device-group]") {
  auto store = over(kv::make_local_store("device"));
  Values one = filled(1);
  Values two = filled(2);
  Values four = filled(4);
  Values zero = filled(0);
  init(store, "a", zero);
  init(store, "b", zero);
  init(store, "c", zero);
  std::vector<Values> out(5, filled(-1));
  auto handle = store.pushpull(
      {"a", "a", "b", "c", "c"},
      {array_of(one), array_of(two), array_of(four), array_of(two), array_of(four)},
      {array_of(out[0]), array_of(out[1]), array_of(out[2]), array_of(out[3]), array_of(out[4])},
      {});
  must(store.wait(must(std::move(handle)), 30));
  CHECK(out == std::vector<Values>{filled(3), filled(3), filled(4), filled(6), filled(6)});

  std::vector<Values> again(2, filled(-1));
  must(store.wait(must(store.pull({"c", "c"}, {array_of(again[0]), array_of(again[1])}, {})), 30));
  CHECK(again == std::vector<Values>(2, filled(6)));
  CHECK(one == filled(1));  // a pushed array is only read
}

TEST_CASE("device group: the sum counts with the call's samples beside other workers",
          "[device-group]") {
  Cluster cluster(1, 2);
  auto work = [&cluster](std::uint32_t worker) {
    auto store = over(cluster.open(worker));
    Values zero = filled(0);
    must(store.init({"v", "v"}, {array_of(zero), array_of(zero)}, 0));
    kv::PushOptions options;
    options.reduce = data::Reduce::kMean;
    options.samples = worker == 0 ? 3 : 1;
    for (int round = 0; round < 5; ++round) {
      Values first = filled(static_cast<float>(worker + 1));
      Values second = filled(4);
      Values a = filled(-1);
      Values b = filled(-1);
      must(store.wait(must(store.pushpull({"v", "v"}, {array_of(first), array_of(second)},
                                          {array_of(a), array_of(b)}, options)),
                      30));
      // (3 * (1 + 4) + 1 * (2 + 4)) / 4
      if (a != filled(5.25F) || b != a) throw std::runtime_error("a wrong mean");
    }
  };
  auto other = std::async(std::launch::async, work, 1U);
  work(0);
  other.get();
}

TEST_CASE("device group: sums stay as they are while their operation is under way",
          "[device-group]") {
  Cluster cluster(1, 2);
  auto store = over(cluster.open(0));
  auto peer = cluster.open(1);
  Values zero = filled(0);
  init(store, "a", zero);
  init(store, "b", zero);
  init(*peer, "a", zero);
  init(*peer, "b", zero);
  Values one = filled(1);
  Values two = filled(2);
  Values out_a[2] = {filled(-1), filled(-1)};
  Values out_b[2] = {filled(-1), filled(-1)};
  const auto first = must(store.pushpull({"a", "a"}, {array_of(one), array_of(one)},
                                         {array_of(out_a[0]), array_of(out_a[1])}, {}));
  // No other worker has pushed: a wait that times out changes nothing.
  const auto early = store.wait(first, 0.2);
  REQUIRE_FALSE(early);
  CHECK(early.error().code == kv::Code::kTimeout);
  const auto second = must(store.pushpull({"b", "b"}, {array_of(two), array_of(two)},
                                          {array_of(out_b[0]), array_of(out_b[1])}, {}));
  Values of_peer = filled(10);
  Values value = filled(0);
  auto peers = std::async(std::launch::async, [&] {
    for (const char* key : {"a", "b"}) must(pushpull(*peer, key, of_peer, value, {}));
  });
  must(store.wait(first, 30));
  must(store.wait(second, 30));
  peers.get();
  CHECK(out_a[0] == filled(12));
  CHECK(out_a[1] == filled(12));
  CHECK(out_b[0] == filled(14));
  CHECK(out_b[1] == filled(14));
}

TEST_CASE("device group: arrays that do not fit together are refused by their key",
          "[device-group]") {
  auto store = over(kv::make_local_store("device"));
  Values whole = filled(1);
  Values part(kElements - 1, 1);
  std::vector<double> wide(kElements, 1);
  init(store, "w", whole);
  const auto shorter = store.push({"w", "w"}, {array_of(whole), array_of(part)}, {});
  REQUIRE_FALSE(shorter);
  CHECK(shorter.error().code == kv::Code::kMismatch);
  CHECK(shorter.error().message ==
        "key 'w' is given 2 times, and its arrays differ: 3000 and 2999 elements");
  const auto wider = store.pull({"w", "w"}, {array_of(whole), array_of(wide)}, {});
  REQUIRE_FALSE(wider);
  CHECK(wider.error().message.find("of different types") != std::string::npos);
}

TEST_CASE("device group: wait_all completes what was not waited for", "[device-group]") {
  auto store = over(kv::make_local_store("device"));
  Values zero = filled(0);
  Values one = filled(1);
  init(store, "w", zero);
  std::vector<Values> out(4, filled(-1));
  for (std::size_t i = 0; i < 4; i += 2)
    must(store.pushpull({"w", "w"}, {array_of(one), array_of(one)},
                        {array_of(out[i]), array_of(out[i + 1])}, {}));
  must(store.wait_all(30));
  CHECK(out[1] == filled(2));
  CHECK(out[3] == filled(2));
}

}  // namespace group_store_tests
