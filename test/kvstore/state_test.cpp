// The optimizer's state, out of a store and into another one: a model's checkpoint goes on with it.

#include <cmath>

#include "test/kvstore/cluster.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::test;
using State = kv::Store::State;

namespace {

constexpr std::size_t kCount = 5001;  // several chunks

std::vector<float> gradient(std::uint64_t step) {
  std::vector<float> out(kCount);
  for (std::size_t i = 0; i < kCount; ++i) out[i] = std::sin(static_cast<float>(i + 7 * step));
  return out;
}

struct Trained {
  std::vector<float> values = std::vector<float>(kCount, 0.5F);
  std::vector<float> first = std::vector<float>(kCount);
  std::vector<float> second = std::vector<float>(kCount);
  std::uint64_t updates = 0;
};

unsigned states(const std::string& optimizer) { return optimizer.starts_with("sgd") ? 1 : 2; }

/// Begins with `from` and makes the steps begin to end - 1.
Trained train(kv::Store& store, const std::string& optimizer, Trained from, std::uint64_t begin,
              std::uint64_t end) {
  init(store, "w", from.values);
  must(store.set_optimizer(optimizer));
  must(store.init_state({"w"}, State::kFirst, {array_of(from.first)}, {{from.updates}}));
  if (states(optimizer) == 2)
    must(store.init_state({"w"}, State::kSecond, {array_of(from.second)}, {{from.updates}}));
  (void)must(store.epoch_boundary(Epoch(0)));
  for (std::uint64_t step = begin; step < end; ++step) {
    auto g = gradient(step);
    kv::PushOptions options;
    options.step = step;
    options.learning_rate = 0.01F;
    must(pushpull(store, "w", g, from.values, options));
  }
  must(store.finish_steps());
  must(store.pull_state({"w"}, State::kFirst, {array_of(from.first)}, {&from.updates, 1}));
  if (states(optimizer) == 2)
    must(store.pull_state({"w"}, State::kSecond, {array_of(from.second)}, {&from.updates, 1}));
  return from;
}

void check_same(const Trained& a, const Trained& b) {
  CHECK(a.values == b.values);
  CHECK(a.first == b.first);
  CHECK(a.second == b.second);
  CHECK(a.updates == b.updates);
}

}  // namespace

TEST_CASE("state: training goes on with the optimizer's state as if it had never stopped",
          "[dist_sync]") {
  const std::string optimizer =
      GENERATE(as<std::string>(), "sgd momentum=0.9 weight_decay=1e-4", "adam", "adamw");
  CAPTURE(optimizer);
  const auto in_a_job = [&](const Trained& from, std::uint64_t begin, std::uint64_t end) {
    Cluster cluster(2, 2);
    std::vector<Trained> out(2);
    cluster.run(2, [&](kv::Store& store, std::uint32_t w) {
      // Rank 0 provides them.
      out[w] = train(store, optimizer, w == 0 ? from : Trained(), begin, end);
    });
    check_same(out[0], out[1]);
    return out[0];
  };
  const Trained whole = in_a_job({}, 0, 6);
  const Trained half = in_a_job({}, 0, 3);
  CHECK(half.updates == 3);
  check_same(in_a_job(half, 3, 6), whole);
  // A store alone has the same states.
  const auto alone = [&](const Trained& from, std::uint64_t begin, std::uint64_t end) {
    const auto store = kv::make_local_store("local");
    return train(*store, optimizer, from, begin, end);
  };
  check_same(alone(alone({}, 0, 3), 3, 6), alone({}, 0, 6));
}

TEST_CASE("state: what cannot be asked for or set is refused by name, and changes nothing",
          "[dist_sync]") {
  Cluster cluster(1, 1);
  const auto served = cluster.open(0);
  const auto local = kv::make_local_store("local");
  kv::Store& store = GENERATE(false, true) ? *served : *local;
  std::vector<float> values(kCount, 1);
  std::vector<float> state(kCount, 2);
  std::vector<double> wrong(kCount);
  std::uint64_t updates = 0;
  const auto pulls = [&](const std::string& key, State which) {
    return store.pull_state({key}, which, {array_of(state)}, {&updates, 1});
  };
  init(store, "w", values);
  init(store, "mean", values, data::kAuxiliary);
  CHECK(must(store.optimizer()).empty());
  CHECK(pulls("w", State::kFirst).error().message.find("no optimizer was set") !=
        std::string::npos);
  must(store.set_optimizer("sgd momentum=0.5"));
  CHECK(must(store.optimizer()).starts_with("sgd momentum=0.5"));
  CHECK(pulls("w", State::kSecond).error().message.find("has 1 state,") != std::string::npos);
  CHECK(pulls("mean", State::kFirst).error().message.find("'mean'") != std::string::npos);
  CHECK(pulls("v", State::kFirst).error().code == data::Code::kInvalid);
  CHECK(store.pull_state({"w"}, State::kFirst, {array_of(wrong)}, {&updates, 1}).error().code ==
        data::Code::kMismatch);
  CHECK(store.init_state({"w"}, State::kFirst, {array_of(wrong)}, {{1}}).error().code ==
        data::Code::kMismatch);
  must(pulls("w", State::kFirst));
  CHECK(state == std::vector<float>(kCount, 0));
  CHECK(updates == 0);
  // After an update a state is not set any more, as a value is not.
  (void)must(store.epoch_boundary(Epoch(0)));
  kv::PushOptions options;
  options.learning_rate = 1;
  must(pushpull(store, "w", values, values, options));
  must(store.init_state({"w"}, State::kFirst, {array_of(state)}, {{9}}));
  must(pulls("w", State::kFirst));
  CHECK(state == std::vector<float>(kCount, 1));
  CHECK(updates == 1);
}
