#include "core/base/number.h"

#include <cstdint>

#include "test/support/catch.h"

namespace dt {
namespace {

TEST_CASE("a text is a number from its first to its last letter", "[number]") {
  CHECK(parse_number<int>("-12") == -12);
  CHECK(parse_number<std::uint32_t>("ff", 16) == 255U);
  CHECK(parse_number<double>("2.5e1") == 25.0);
  for (const char* wrong : {"", " 1", "1 ", "+1", "1x", "x"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_number<int>(wrong));
    CHECK_FALSE(parse_number<double>(wrong));
  }
}

TEST_CASE("a number that does not fit is none", "[number]") {
  CHECK(parse_number<std::uint8_t>("255") == 255);
  CHECK_FALSE(parse_number<std::uint8_t>("256"));
  CHECK_FALSE(parse_number<std::uint8_t>("-1"));
  CHECK_FALSE(parse_number<double>("1e999"));
}

TEST_CASE("what follows a number is left, and all of it where there is none", "[number]") {
  std::string_view text = "500ms";
  CHECK(take_number<int>(text) == 500);
  CHECK(text == "ms");
  CHECK_FALSE(take_number<int>(text));
  CHECK(text == "ms");
}

}  // namespace
}  // namespace dt
