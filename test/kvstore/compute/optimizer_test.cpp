#include "kvstore/compute/optimizer.h"

#include <cmath>

#include "test/support/catch.h"

using namespace dt;
using namespace dt::kv;

namespace {

/// Three steps on one weight of 1 with gradients 1, 0.5, -0.25 and learning rate 0.1.
double after_three(const std::string& text) {
  const auto spec = parse_optimizer(text);
  REQUIRE(spec);
  OptimizerState state;
  double w = 1;
  for (const double g : {1.0, 0.5, -0.25}) {
    const Addend gradient{reinterpret_cast<const std::byte*>(&g), 1};
    update(*spec, state, data::Dtype::kFloat64, 0.1, reinterpret_cast<std::byte*>(&w),
           Reduction{std::span(&gradient, 1), 1}, 1);
  }
  return w;
}

}  // namespace

TEST_CASE("optimizer: the rules are those of torch.optim", "[optimizer]") {
  // Worked out by hand (sgd) and with the textbook formulas (adam).
  CHECK(after_three("sgd") == Approx(1 - 0.1 * 1.25).epsilon(1e-12));
  // m: 1, 1.4, 1.01
  CHECK(after_three("sgd momentum=0.9") == Approx(1 - 0.1 * (1 + 1.4 + 1.01)).epsilon(1e-12));
  // g + 0.9 m: 1.9, 1.76, 0.659
  CHECK(after_three("sgd momentum=0.9 nesterov=1") ==
        Approx(1 - 0.1 * (1.9 + 1.76 + 0.659)).epsilon(1e-12));
  // w: 1 -> 0.89 -> 0.8311 -> 0.847789
  CHECK(after_three("sgd weight_decay=0.1") == Approx(0.847789).epsilon(1e-9));
  double w = 1;
  double m = 0;
  double v = 0;
  int t = 0;
  for (const double g : {1.0, 0.5, -0.25}) {
    ++t;
    w *= 1 - 0.1 * 0.01;
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    w -= 0.1 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8);
  }
  CHECK(after_three("adamw weight_decay=0.01") == Approx(w).epsilon(1e-12));
  CHECK(after_three("adamw") == Approx(w).epsilon(1e-12));
  CHECK(after_three("adam beta1=0 beta2=0") < 1);
  CHECK(after_three("adam") < 1);
}

TEST_CASE("optimizer: a word that is not understood is named", "[optimizer]") {
  for (const char* bad : {"", "sgdd", "sgd momentum", "sgd momentum=x", "sgd beta1=0.9",
                          "adam momentum=0.9", "sgd momentum=-1", "sgd momentum=nan",
                          "adam beta1=1", "adamw beta2=1.5", "adam eps=0", "sgd nesterov=1"}) {
    const auto spec = parse_optimizer(bad);
    REQUIRE_FALSE(spec);
    CHECK(spec.error().message.find("optimizer") == 0);
  }
  CHECK(*parse_optimizer("sgd momentum=0.90  nesterov=1") ==
        *parse_optimizer("sgd nesterov=1 momentum=0.9"));
}
