#include "trainer/lr_schedule.h"

#include <cmath>

#include "test/support/catch.h"

namespace {
bool near(float a, double b) { return std::abs(a - b) < 1e-6; }
}  // namespace

TEST_CASE("the learning rate drops by the factor at each given epoch") {
  const dt::train::LrOptions options{.rate = 0.8F, .factor = 0.5F, .factor_epochs = {2, 5}};
  CHECK(near(learning_rate(options, 0, 0, {}), 0.8));
  CHECK(near(learning_rate(options, 2, 0, {}), 0.4));
  CHECK(near(learning_rate(options, 4, 9, {}), 0.4));
  CHECK(near(learning_rate(options, 5, 0, {}), 0.2));
}

TEST_CASE("a growing world moves the learning rate smoothly, never past its new value") {
  const dt::train::LrOptions options{.rate = 0.1F, .smooth_steps = 10};
  const dt::train::Worlds grown{.initial = 2, .last = 2, .now = 4};
  float before = 0.1F;
  for (std::uint32_t step = 0; step < 10; ++step) {
    const float rate = learning_rate(options, 3, step, grown);
    CHECK(rate > before);
    CHECK(rate - before < 0.011F);
    CHECK(rate < 0.2F);
    before = rate;
  }
  CHECK(near(learning_rate(options, 3, 10, grown), 0.2));
  // The next epoch begins at the rate at which this one ended.
  CHECK(near(learning_rate(options, 4, 0, {.initial = 2, .last = 4, .now = 4}), 0.2));
}

TEST_CASE("a shrinking world moves it down, and a fixed whole batch leaves it alone") {
  dt::train::LrOptions options{.rate = 0.1F, .smooth_steps = 4};
  const dt::train::Worlds shrunk{.initial = 2, .last = 3, .now = 1};
  CHECK(learning_rate(options, 1, 0, shrunk) < 0.15F);
  CHECK(learning_rate(options, 1, 0, shrunk) > learning_rate(options, 1, 1, shrunk));
  CHECK(near(learning_rate(options, 1, 4, shrunk), 0.05));
  options.follows_world = false;
  CHECK(near(learning_rate(options, 1, 0, shrunk), 0.1));
}

TEST_CASE("a list of epochs must be numbers that rise") {
  CHECK(dt::train::parse_epochs("30,60,80").value() == std::vector<std::uint32_t>{30, 60, 80});
  CHECK(dt::train::parse_epochs("").value().empty());
  for (const auto* bad : {"30,,60", "x", "30,20", "30,30", "-1", "3.5", ","}) {
    INFO(bad);
    CHECK_FALSE(dt::train::parse_epochs(bad));
  }
}
