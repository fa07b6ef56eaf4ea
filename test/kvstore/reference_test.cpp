// The result of a round, over the whole path from worker to server and back, compared with plain
// loops over elements; and with --deterministic the same bits in any order of arrival.

#include <algorithm>
#include <cstring>
#include <random>

#include "kvstore/compute/compression.h"
#include "kvstore/compute/optimizer.h"
#include "test/kvstore/cluster.h"
#include "test/kvstore/compute/plain_arithmetic.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::test;

namespace {

constexpr float kLearningRate = 0.125f;

template <class T>
constexpr data::Dtype dtype_of() {
  if (std::is_same_v<T, float>) return data::Dtype::kFloat32;
  return std::is_same_v<T, double> ? data::Dtype::kFloat64 : data::Dtype::kInt64;
}

/// Numbers of very different sizes: in another order their sum has other bits.
template <class T>
std::vector<T> gradient_of(std::size_t n, std::uint32_t worker, std::uint64_t round) {
  const auto seed = static_cast<std::uint32_t>(round * 16 + worker + n);
  if constexpr (std::is_floating_point_v<T>) {
    return kv::numbers<T>(n, seed, false);
  } else {
    std::mt19937_64 random(seed);
    std::vector<T> out(n);
    for (auto& x : out) x = static_cast<T>(random());
    return out;
  }
}

/// A key's value after each round, element by element.
template <class T>
class Reference {
 public:
  Reference(const std::string& optimizer, std::size_t n) : values_(n), first_(n), second_(n) {
    if (!optimizer.empty()) spec_ = *kv::parse_optimizer(optimizer);
  }

  const std::vector<T>& round(const std::vector<std::vector<T>>& gradients,
                              const std::vector<T>& samples) {
    if constexpr (!std::is_floating_point_v<T>) {
      std::fill(values_.begin(), values_.end(), 0);
      for (const auto& g : gradients)
        for (std::size_t i = 0; i < g.size(); ++i)
          values_[i] = static_cast<T>(static_cast<std::uint64_t>(values_[i]) +
                                      static_cast<std::uint64_t>(g[i]));
    } else if (!spec_) {
      values_ = kv::plain_sum<T>(gradients, {}, T{1});
    } else {
      // The first ones of equal weights are added plainly, and multiplied when one differs.
      const auto is_other = [&](T n) { return n != samples.front(); };
      const auto other = std::find_if(samples.begin(), samples.end(), is_other);
      const bool even = other == samples.end();
      const auto first = gradients.begin() + (other - samples.begin());
      std::vector<std::vector<T>> addends = {
          kv::plain_sum<T>({gradients.begin(), first}, {}, T{1})};
      addends.insert(addends.end(), first, gradients.end());
      std::vector<T> weights = {samples.front()};
      weights.insert(weights.end(), other, samples.end());
      T divisor = 0;
      for (const T n : samples) divisor += even ? T{1} : n;
      step(kv::plain_sum<T>(addends, even ? std::vector<T>() : weights, divisor));
    }
    return values_;
  }

 private:
  void step(const std::vector<T>& mean) {
    ++updates_;
    if (spec_->rule == kv::OptimizerSpec::Rule::kSgd) {
      kv::SgdStep<T> sgd;
      sgd.learning_rate = static_cast<T>(kLearningRate);
      sgd.momentum = static_cast<T>(spec_->momentum);
      sgd.weight_decay = static_cast<T>(spec_->weight_decay);
      sgd.nesterov = spec_->nesterov;
      for (std::size_t i = 0; i < mean.size(); ++i)
        kv::plain_sgd(values_[i], first_[i], mean[i], sgd);
      return;
    }
    kv::AdamOptions options;
    options.learning_rate = static_cast<double>(kLearningRate);
    options.weight_decay = spec_->weight_decay;
    options.decoupled = spec_->rule == kv::OptimizerSpec::Rule::kAdamW;
    options.update = updates_;
    const auto adam = kv::adam_step<T>(options);
    for (std::size_t i = 0; i < mean.size(); ++i)
      kv::plain_adam(values_[i], first_[i], second_[i], mean[i], adam);
  }

  std::optional<kv::OptimizerSpec> spec_;
  std::uint64_t updates_ = 0;
  std::vector<T> values_;
  std::vector<T> first_;
  std::vector<T> second_;
};

/// An array of the caller's own or of the store's.
template <class T>
class Tensor {
 public:
  Tensor(kv::Store& store, std::size_t n, bool is_shared) : own_(is_shared ? 0 : n), size_(n) {
    data_ = is_shared ? static_cast<T*>(must(store.allocate(n * sizeof(T)))) : own_.data();
  }
  [[nodiscard]] kv::Array array() { return {data_, size_, dtype_of<T>()}; }
  void set(const std::vector<T>& values) { std::copy(values.begin(), values.end(), data_); }
  [[nodiscard]] std::vector<T> values() const { return {data_, data_ + size_}; }

 private:
  std::vector<T> own_;
  T* data_ = nullptr;
  std::size_t size_;
};

kv::PushOptions options_of(std::uint64_t round, std::uint64_t samples) {
  kv::PushOptions options;
  options.step = round;
  options.samples = samples;
  options.learning_rate = kLearningRate;
  return options;
}

/// Rounds of some workers on one key, each result compared bit by bit.
template <class T>
void follow_reference(kv::Transport transport, std::uint32_t workers, bool deterministic,
                      const std::string& optimizer, std::size_t n, bool is_uneven, bool is_shared) {
  Cluster cluster(2, workers, true, deterministic);
  cluster.transport = transport;
  cluster.run(workers, [&](kv::Store& store, std::uint32_t w) {
    std::vector<T> zero(n);
    must(store.init({"w"}, {kv::Array{zero.data(), n, dtype_of<T>()}}, 0));
    if (!optimizer.empty()) must(store.set_optimizer(optimizer));
    Tensor<T> gradient(store, n, is_shared);
    Tensor<T> value(store, n, is_shared);
    Reference<T> reference(optimizer, n);
    std::vector<std::uint64_t> samples(workers, 3);
    if (is_uneven) samples.back() = 5;
    for (std::uint64_t round = 0; round < 4; ++round) {
      std::vector<std::vector<T>> all;
      for (std::uint32_t i = 0; i < workers; ++i) all.push_back(gradient_of<T>(n, i, round));
      gradient.set(all[w]);
      const auto handle = must(store.pushpull({"w"}, {gradient.array()}, {value.array()},
                                              options_of(round, samples[w])));
      must(store.wait(handle, 30));
      const auto& wanted = reference.round(all, {samples.begin(), samples.end()});
      const auto wrong = kv::difference(value.values(), wanted);
      if (!wrong.empty()) throw std::runtime_error("round " + std::to_string(round) + ": " + wrong);
    }
  });
}

/// The bits of "w" after some rounds whose contributions reach the servers in this order.
std::vector<float> train_in_order(const std::vector<std::uint32_t>& order, bool deterministic,
                                  kv::Transport transport, const std::string& codec,
                                  const std::string& optimizer) {
  constexpr std::size_t kElements = 9'001;  // several chunks on each loop
  const auto workers = static_cast<std::uint32_t>(order.size());
  Cluster cluster(2, workers, true, deterministic);
  cluster.transport = transport;
  std::vector<std::unique_ptr<kv::Store>> stores;
  for (std::uint32_t w = 0; w < workers; ++w) stores.push_back(cluster.open(w));
  for (auto& store : stores) {
    std::vector<float> zero(kElements, 0);
    init(*store, "w", zero);
    init(*store, "probe", zero);
    must(store->set_gradient_compression(codec));
    if (!optimizer.empty()) must(store->set_optimizer(optimizer));
  }
  std::vector<float> value(kElements);
  for (std::uint64_t round = 0; round < 3; ++round) {
    std::vector<std::vector<float>> gradients(workers);
    std::vector<kv::Handle> pushes;
    for (const auto w : order) {
      gradients[w] = gradient_of<float>(kElements, w, round);
      pushes.push_back(must(
          stores[w]->push({"w"}, {array_of(gradients[w])}, options_of(round, w == 1 ? 5 : 3))));
      // On every connection the probe's chunks follow the gradient's: answered means counted.
      pull(*stores[w], "probe", value);
    }
    for (std::size_t i = 0; i < order.size(); ++i) must(stores[order[i]]->wait(pushes[i], 30));
  }
  pull(*stores[0], "w", value);
  for (auto& store : stores) {
    std::vector<float> theirs(kElements);
    pull(*store, "w", theirs);
    REQUIRE(kv::difference(theirs, value) == "");
  }
  return value;
}

const std::vector<std::vector<std::uint32_t>> kOrders = {
    {0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}, {1, 3, 0, 2}};

/// The number of different results over the orders.
std::size_t results_over_orders(bool deterministic, kv::Transport transport,
                                const std::string& codec, const std::string& optimizer) {
  std::vector<std::vector<float>> results;
  for (const auto& order : kOrders) {
    auto result = train_in_order(order, deterministic, transport, codec, optimizer);
    const auto is_it = [&](const auto& one) { return kv::difference(one, result).empty(); };
    if (std::none_of(results.begin(), results.end(), is_it)) results.push_back(std::move(result));
  }
  return results.size();
}

}  // namespace

TEMPLATE_TEST_CASE("reference: rounds have the bits of plain loops, wherever the values lie",
                   "[reference]", float, double) {
  const auto transport = GENERATE(kv::Transport::kTcp, kv::Transport::kSharedMemory);
  const std::string optimizer =
      GENERATE("", "sgd", "sgd momentum=0.9 nesterov=1 weight_decay=0.01", "adam", "adamw");
  const bool is_uneven = GENERATE(false, true);
  const bool is_shared = GENERATE(false, true);
  const std::size_t n = GENERATE(1u, 15u, 5001u);
  CAPTURE(transport, optimizer, is_uneven, is_shared, n);
  // Two contributions have the same sum in either order, four only in a given one.
  follow_reference<TestType>(transport, 2, false, optimizer, n, is_uneven, is_shared);
  follow_reference<TestType>(transport, 4, true, optimizer, n, is_uneven, is_shared);
}

TEST_CASE("reference: int64 sums are exact and wrap on the whole way", "[reference]") {
  const auto transport = GENERATE(kv::Transport::kTcp, kv::Transport::kSharedMemory);
  const bool deterministic = GENERATE(false, true);
  const bool is_shared = GENERATE(false, true);
  follow_reference<std::int64_t>(transport, 3, deterministic, "", 5001, true, is_shared);
}

TEST_CASE("deterministic: the same bits whoever came first, by every way and codec",
          "[deterministic]") {
  const auto transport = GENERATE(kv::Transport::kTcp, kv::Transport::kSharedMemory);
  const std::string optimizer = GENERATE("", "sgd momentum=0.9", "adam");
  const std::string codec = GENERATE("none", "2bit threshold=0.5", "fp16", "bf16");
  CAPTURE(transport, codec, optimizer);
  CHECK(results_over_orders(true, transport, codec, optimizer) == 1);
}

TEST_CASE("deterministic: without it the order of arrival is seen in the bits", "[deterministic]") {
  // Otherwise the test above would prove nothing.
  const auto transport = GENERATE(kv::Transport::kTcp, kv::Transport::kSharedMemory);
  for (const std::string codec : {"none", "fp16"})
    CHECK(results_over_orders(false, transport, codec, "") > 1);
}
