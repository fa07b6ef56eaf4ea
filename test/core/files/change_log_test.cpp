#include "core/files/change_log.h"

#include "test/support/catch.h"

using namespace dt;

TEST_CASE("change log: the line is exactly what old scripts parse", "[change_log]") {
  const Host host{"", "10.0.1.9", 0};
  CHECK(format_change({0, true, host, 1763664000123456789}) ==
        "0 ADDED 10.0.1.9 1763664000123456789\n");
  CHECK(format_change({7, true, {"me", "h", 2222}, 5}) == "7 ADDED h 5\n");
  CHECK(format_change({1, false, host, 1763664001123456789}) ==
        "1 REMOVED 10.0.1.9 1763664001123456789\n");
}
