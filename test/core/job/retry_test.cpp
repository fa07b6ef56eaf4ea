#include "core/job/retry.h"

#include <algorithm>

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

TEST_CASE("retry: healthy time forgives failures one by one, and never more than there are",
          "[retry]") {
  const auto at = [](int minutes) { return Time{} + minutes * 1min; };
  Failures failures;
  for (int i = 0; i < 4; ++i) failures.add(at(100), 10min);
  CHECK(failures.count() == 4);
  failures.add(at(109), 10min);
  CHECK(failures.count() == 5);
  failures.add(at(130), 10min);  // two forgiven, one more
  CHECK(failures.count() == 4);
  failures.add(at(90), 10min);  // earlier, by a later term's estimate
  CHECK(failures.count() == 5);
  failures.add(at(100000), 10min);
  CHECK(failures.count() == 1);
  failures.add(at(200000), 0min);  // for ever
  CHECK(failures.count() == 2);
}

TEST_CASE("retry: retries are delayed longer each time, jittered, at most 75 s", "[retry]") {
  for (std::uint64_t salt = 0; salt < 200; ++salt) {
    for (std::uint32_t attempt = 1; attempt < 40; ++attempt) {
      const auto plain = std::min<Duration>(1s * (1U << std::min(attempt - 1, 6U)), 60s);
      const Duration delay = retry_delay(attempt, salt);
      REQUIRE(delay >= plain * 3 / 4);
      REQUIRE(delay <= plain * 5 / 4);
      REQUIRE(delay == retry_delay(attempt, salt));
      // Doubling beats the jitter: 0.75 * 2 > 1.25.
      if (attempt < 6) REQUIRE(retry_delay(attempt + 1, salt) > delay);
    }
  }
  CHECK(retry_delay(0, 1) <= 2s);
  CHECK(retry_delay(1, 1) != retry_delay(1, 2));
  CHECK(final_retry_delay(1) == Duration(1min));
  CHECK(final_retry_delay(3) == Duration(4min));
  CHECK(final_retry_delay(40) == Duration(10min));
}
