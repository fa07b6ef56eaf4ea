#include "core/base/time.h"

#include "test/support/catch.h"

namespace dt {
namespace {

TEST_CASE("a duration in the two largest units that it fills", "[time]") {
  CHECK(duration_text(59.9) == "59 s");
  CHECK(duration_text(184) == "3 min 04 s");
  CHECK(duration_text(5 * 3600 + 2 * 60) == "5 h 02 min");
  CHECK(duration_text(79 * 3600) == "3 d 07 h");
}

TEST_CASE("seconds as a number and back", "[time]") {
  CHECK(from_seconds(1.5) == std::chrono::milliseconds(1500));
  CHECK(seconds(std::chrono::milliseconds(250)) == 0.25);
}

}  // namespace
}  // namespace dt
