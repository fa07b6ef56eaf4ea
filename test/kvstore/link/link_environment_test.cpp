#include "kvstore/link/link_environment.h"

#include "test/support/catch.h"

using namespace dt;

TEST_CASE("kvstore environment: an interface is given by its name or its name's beginning",
          "[environment]") {
  const auto exact = kv::interface_address("lo");
  REQUIRE(exact);
  CHECK(*exact == "127.0.0.1");
  const auto beginning = kv::interface_address("l");
  REQUIRE(beginning);
  CHECK(*beginning == "127.0.0.1");
  const auto none = kv::interface_address("loop");
  REQUIRE_FALSE(none);
  CHECK(none.error().message.find("no network interface loop, and none whose name begins so") == 0);
}
