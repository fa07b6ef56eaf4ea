#include "trainer/gradient_exchange.h"

#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>

#include "test/support/catch.h"
#include "test/trainer/dtkv_double.h"
#include "trainer/module.h"

namespace {

using dt::test::dtkv_double;
using Calls = std::vector<std::string>;

/// A test's options for the network.
struct Wishes {
  bool says_use = true;
  bool forgets_second = false;
  bool throws_in_backward = false;
};

/// Two layers of one bucket each and an unused one; records its passes among the double's calls.
class TwoLayers final : public dt::train::Network {
 public:
  explicit TwoLayers(Wishes wishes)
      : wishes_(wishes),
        first_(register_module("first", torch::nn::Linear(784, 256))),
        second_(register_module("second", torch::nn::Linear(256, 512))),
        unused_(register_module("unused", torch::nn::Linear(256, 256))) {}

  torch::Tensor forward(torch::Tensor x) override {
    if (wishes_.says_use) use(first_);
    note("forward first");
    x = first_(x.flatten(1));
    if (x.requires_grad()) {
      x.register_hook([this](const torch::Tensor&) {
        note("backward first");
        if (wishes_.throws_in_backward) throw std::runtime_error("thrown in backward");
      });
    }
    if (wishes_.says_use && !wishes_.forgets_second) use(second_);
    note("forward second");
    return second_(x);
  }
  bool says_use() const override { return wishes_.says_use; }

 private:
  static void note(const char* what) { dtkv_double().calls.emplace_back(what); }

  Wishes wishes_;
  torch::nn::Linear first_;
  torch::nn::Linear second_;
  torch::nn::Linear unused_;
};

dt::Result<dt::train::FitEnd> fit(Wishes wishes, std::uint32_t steps) {
  dt::train::Module module(std::make_shared<TwoLayers>(wishes));
  dtkv::KVStore kv("local");
  const dt::train::DataPair data{dt::train::generate_digits(4 * steps, 1), {}, "generated"};
  dt::train::DatasetIterator iterator(data, {.per_worker = 4});
  return module.fit(kv, iterator, {.num_epochs = 1, .say = [](std::string_view) {}});
}

/// The calls from the first `begin` on, without those in `but`.
Calls calls_from(const std::string& begin, const Calls& but) {
  const auto& calls = dtkv_double().calls;
  Calls found;
  for (auto at = std::ranges::find(calls, begin); at != calls.end(); ++at) {
    if (std::ranges::find(but, *at) == but.end()) found.push_back(*at);
  }
  return found;
}

const Calls kBiases{"push first.bias", "push second.bias", "push unused.bias"};

}  // namespace

TEST_CASE("each bucket leaves as backward has it and is waited for where forward comes to it") {
  dt::test::reset_dtkv_double();
  REQUIRE(fit({}, 2));
  auto calls = calls_from("forward first", kBiases);
  calls.resize(14);
  // In the first step no operation is in flight; a bucket's name is its first key.
  CHECK(calls == Calls{"forward first", "forward second", "push second.weight", "backward first",
                       "push first.weight", "push unused.weight",  //
                       "wait first.weight", "forward first", "wait second.weight", "forward second",
                       "wait unused.weight", "push second.weight", "backward first",
                       "push first.weight"});
}

TEST_CASE("a network that does not say use() waits for everything before forward") {
  dt::test::reset_dtkv_double();
  REQUIRE(fit({.says_use = false}, 2));
  const auto calls = calls_from("push unused.weight", kBiases);
  const auto forward = std::ranges::find(calls, "forward first");
  REQUIRE(forward != calls.end());
  CHECK(std::count_if(calls.begin(), forward,
                      [](const std::string& call) { return call.starts_with("wait "); }) == 3);
}

TEST_CASE("a network that forgets a use() is told so, by the parameter's name") {
  dt::test::reset_dtkv_double();
  const auto end = fit({.forgets_second = true}, 2);
  REQUIRE_FALSE(end);
  CHECK(end.error().message.find("reads second.") != std::string::npos);
  CHECK(dtkv_double().under_way == 0);
  CHECK(dtkv_double().freed_in_flight == 0);
  CHECK(dtkv_double().memories == 0);
}

TEST_CASE("a parameter without gradient takes part in every step") {
  dt::test::reset_dtkv_double();
  REQUIRE(fit({}, 3));
  CHECK(std::ranges::count(dtkv_double().calls, "push unused.weight") == 3);
  CHECK(std::ranges::count(dtkv_double().calls, "push unused.bias") == 3);
}

TEST_CASE("an exception in the middle of backward leaves nothing on its way") {
  dt::test::reset_dtkv_double();
  CHECK_THROWS(fit({.throws_in_backward = true}, 1));
  CHECK(std::ranges::count(dtkv_double().calls, "push second.weight") == 1);
  CHECK(std::ranges::count(dtkv_double().calls, "push first.weight") == 0);
  CHECK(dtkv_double().under_way == 0);
  CHECK(dtkv_double().freed_in_flight == 0);
  CHECK(dtkv_double().memories == 0);
}

TEST_CASE("an error while gradients leave or weights come ends fit with the library's sentence") {
  dt::test::reset_dtkv_double();
  if (GENERATE(true, false)) {
    dtkv_double().refused = "first.weight";
  } else {
    dtkv_double().lost = "second.weight";
  }
  const auto end = fit({}, 3);
  REQUIRE_FALSE(end);
  CHECK(end.error().message == "cannot exchange gradients: the test says so");
  CHECK(dtkv_double().under_way == 0);
  CHECK(dtkv_double().freed_in_flight == 0);
  CHECK(dtkv_double().memories == 0);
}
