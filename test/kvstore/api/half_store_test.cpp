// Arrays of float16 and bfloat16: the store computes with float32.

#include "kvstore/api/half_store.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <vector>

#include "kvstore/api/group_store.h"
#include "kvstore/compute/half.h"
#include "test/kvstore/cluster.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::test;

namespace half_store_tests {

constexpr auto kFp16 = data::Dtype::kFloat16;
constexpr auto kBf16 = data::Dtype::kBfloat16;
constexpr std::size_t kElements = 3'000;
using Halves = std::vector<std::uint16_t>;
using Values = std::vector<float>;

kv::HalfStore over(std::unique_ptr<kv::Store> inner) {
  return kv::HalfStore(std::make_unique<kv::GroupStore>(std::move(inner)));
}
kv::Array half_array(Halves& halves, data::Dtype dtype) {
  return {halves.data(), halves.size(), dtype};
}
Halves rounded(const Values& values, data::Dtype dtype) {
  Halves halves(values.size());
  kv::narrow(dtype, reinterpret_cast<std::byte*>(halves.data()), values.data(), values.size());
  return halves;
}
Values widened(const Halves& halves, data::Dtype dtype) {
  Values values(halves.size());
  kv::widen(dtype, values.data(), reinterpret_cast<const std::byte*>(halves.data()), halves.size());
  return values;
}
Halves filled(float value, data::Dtype dtype) { return rounded(Values(kElements, value), dtype); }

kv::PushOptions at_rate(float rate) {
  kv::PushOptions options;
  options.learning_rate = rate;
  return options;
}

TEST_CASE("half: weights have the precision of float32, whatever a worker pushes and pulls",
          "[half]") {
  auto store = over(kv::make_local_store("local"));
  for (const auto dtype : {kFp16, kBf16}) {
    const std::string key = name_of(dtype);
    Halves weights = filled(1, dtype);
    must(store.init({key}, {half_array(weights, dtype)}, 0));
    must(store.set_optimizer("sgd momentum=0.5"));
    Halves gradient = filled(0.125F, dtype);
    // Half of what both types can tell apart from 1.
    for (int step = 0; step < 2; ++step) {
      const auto handle = must(store.pushpull({key}, {half_array(gradient, dtype)},
                                              {half_array(weights, dtype)}, at_rate(0x1p-11F)));
      must(store.wait(handle, 0));
    }
    const float exact = 1 - 0.125F * 0x1p-11F - 1.5F * 0.125F * 0x1p-11F;
    Values as_float(kElements);
    pull(store, key, as_float);
    CHECK(as_float == Values(kElements, exact));
    CHECK(weights == filled(exact, dtype));
    Values momentum(kElements);
    std::uint64_t updates = 0;
    must(store.pull_state({key}, kv::Store::State::kFirst, {array_of(momentum)}, {&updates, 1}));
    CHECK(updates == 2);
    CHECK(momentum == Values(kElements, 0.1875F));
    Halves rough(kElements);
    must(store.pull_state({key}, kv::Store::State::kFirst, {half_array(rough, dtype)},
                          {&updates, 1}));
    CHECK(rough == filled(0.1875F, dtype));
  }
}

TEST_CASE("half: values are rounded to the nearest, ties to even", "[half]") {
  auto store = over(kv::make_local_store("local"));
  Values values = {1 + 0x1p-11F, 1 + 3 * 0x1p-11F, 1 + 0x1p-8F, 1 + 3 * 0x1p-8F,
                   70000,        -1e-30F,          1 / 3.0F,    0};
  init(store, "v", values);
  for (const auto dtype : {kFp16, kBf16}) {
    Halves out(values.size(), 0x7777);
    must(store.wait(must(store.pull({"v"}, {half_array(out, dtype)}, {})), 0));
    const Values got = widened(out, dtype);
    if (dtype == kFp16)
      CHECK(got ==
            Values{1, 1 + 0x1p-9F, 1 + 0x1p-8F, 1 + 3 * 0x1p-8F, INFINITY, -0.0F, 0x1.554p-2F, 0});
    else
      CHECK(got == Values{1, 1, 1, 1 + 0x1p-6F, 70144, widened(rounded({-1e-30F}, kBf16), kBf16)[0],
                          0x1.56p-2F, 0});
  }
}

TEST_CASE("half: workers of three types have one mean, each in its type", "[half]") {
  Cluster cluster(2, 3);
  const Values mine[] = {Values(kElements, 1.25F), Values(kElements, 3.0078125F),
                         Values(kElements, -0.3F)};
  std::vector<Values> means(3);
  auto work = [&](std::uint32_t w) {
    auto store = over(cluster.open(w));
    const data::Dtype dtype = w == 1 ? kFp16 : kBf16;
    Values as_float = mine[w];
    Halves halves = rounded(mine[w], dtype);
    Halves out(kElements);
    const kv::Array value = w == 0 ? array_of(as_float) : half_array(halves, dtype);
    // An operation's arrays are its own until it is done. Every transport's way: memory of the
    // store's own, and the caller's.
    Values float_in_place = mine[w];
    Halves half_in_place = halves;
    auto* own = static_cast<std::uint16_t*>(must(store.allocate(kElements * 2)));
    kv::Array in_place = w == 0 ? array_of(float_in_place) : half_array(half_in_place, dtype);
    if (w == 2) in_place.data = own;
    must(store.init({"v"}, {value}, 0));
    must(store.init({"mean"}, {value}, data::kAuxiliary));
    kv::PushOptions options;
    options.reduce = data::Reduce::kMean;
    options.samples = w + 1;
    for (int round = 0; round < 3; ++round) {
      float_in_place = mine[w];
      half_in_place = halves;
      std::copy(halves.begin(), halves.end(), own);
      // The first one's value goes elsewhere or over its gradient, the second's over its gradient.
      const kv::Array target = w == 0 ? value : half_array(out, dtype);
      const auto first = must(store.pushpull({"v"}, {value}, {target}, options));
      const auto second = must(store.pushpull({"mean"}, {in_place}, {in_place}, options));
      if (round == 1)
        must(store.wait_all(30));
      else
        for (const auto handle : {second, first}) must(store.wait(handle, 30));
      if (w == 0) {
        if (as_float != Values(kElements, as_float[0])) throw std::runtime_error("a torn mean");
        if (float_in_place != as_float) throw std::runtime_error("in place it is another value");
        means[0] = as_float;
        as_float = mine[0];
      } else {
        means[w] = widened(out, dtype);
        const Halves placed = w == 2 ? Halves(own, own + kElements) : half_in_place;
        if (placed != out) throw std::runtime_error("in place it is another value");
      }
    }
    must(store.release(own));
  };
  std::vector<std::future<void>> all;
  for (std::uint32_t w = 0; w < 3; ++w) all.push_back(std::async(std::launch::async, work, w));
  for (auto& one : all) one.get();
  const float b = widened(rounded({-0.3F}, kBf16), kBf16)[0];
  const float mean = (1.25F + 2 * 3.0078125F + 3 * b) / 6;
  CHECK(means[0] == Values(kElements, mean));
  CHECK(means[1] == widened(filled(mean, kFp16), kFp16));
  CHECK(means[2] == widened(filled(mean, kBf16), kBf16));
}

TEST_CASE("half: gradients of several devices are added up in float32", "[half]") {
  auto store = over(kv::make_local_store("device"));
  Values zero(kElements);
  init(store, "w", zero);
  // In float16 the sum of any two of them is 2048.
  Halves large = filled(2048, kFp16);
  Halves one = filled(1, kFp16);
  Halves a(kElements);
  Halves b(kElements);
  const auto of = [](Halves& halves) { return half_array(halves, kFp16); };
  must(store.wait(must(store.push({"w", "w", "w"}, {of(large), of(one), of(one)}, {})), 0));
  must(store.wait(must(store.pull({"w", "w"}, {of(a), of(b)}, {})), 0));
  CHECK(a == filled(2050, kFp16));
  CHECK(b == a);
}

TEST_CASE("half: refusals change nothing, and memory that is being written is not freed",
          "[half]") {
  Cluster cluster(1, 2);
  auto store = over(cluster.open(0));
  auto peer = over(cluster.open(1));
  std::vector<double> wide(kElements);
  Values zero(kElements);
  for (kv::Store* one : {static_cast<kv::Store*>(&store), static_cast<kv::Store*>(&peer)}) {
    init(*one, "wide", wide);
    init(*one, "w", zero);
  }
  Halves halves = filled(3, kFp16);
  const auto wrong = store.push({"wide"}, {half_array(halves, kFp16)}, {});
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().code == kv::Code::kMismatch);
  CHECK(wrong.error().message ==
        "worker 0: key 'wide' has 3000 elements of float64, the array has 3000 of float32 (float16 "
        "and bfloat16 arrays belong to float32 keys)");
  Halves longer(kElements + 1);
  CHECK_FALSE(store.pushpull({"w"}, {half_array(halves, kFp16)},
                             {{halves.data(), halves.size() - 1, kFp16}}, {}));
  CHECK_FALSE(store.pull({"w"}, {half_array(longer, kBf16)}, {}));
  CHECK_FALSE(store.init({"wide"}, {half_array(halves, kFp16)}, 0));

  void* memory = must(store.allocate(kElements * 2));
  const auto handle =
      must(store.pushpull({"w"}, {half_array(halves, kFp16)}, {{memory, kElements, kFp16}}, {}));
  const auto early = store.wait(handle, 0.05);
  REQUIRE_FALSE(early);
  CHECK(early.error().code == kv::Code::kTimeout);
  const auto kept = store.release(memory);
  REQUIRE_FALSE(kept);
  CHECK(kept.error().code == kv::Code::kInvalid);
  halves.assign(kElements, 0);  // what was pushed was taken by the call
  Values two(kElements, 2);
  auto other = std::async(std::launch::async, [&] { must(pushpull(peer, "w", two, two, {})); });
  must(store.wait(handle, 30));
  other.get();
  const auto* sum = static_cast<std::uint16_t*>(memory);
  CHECK(Halves(sum, sum + kElements) == filled(5, kFp16));
  must(store.release(memory));
}

}  // namespace half_store_tests
