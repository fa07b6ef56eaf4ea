#include "kvstore/link/descriptors.h"

#include "test/support/catch.h"

using namespace dt::kv;

TEST_CASE("descriptors: a server has as many loops as cores and connections allow",
          "[descriptors]") {
  CHECK(loops_for(4, 64) == 8);
  CHECK(loops_for(4, 2) == 2);
  CHECK(loops_for(511, 64) == 8);
  CHECK(loops_for(512, 64) == 7);
  CHECK(loops_for(1000, 64) == 4);
  CHECK(loops_for(4095, 64) == 1);
  CHECK(loops_for(100'000, 64) == 1);
  CHECK(loops_for(~0U, 64) == 1);
}

TEST_CASE("descriptors: what is lacking is said with numbers and remedy", "[descriptors]") {
  CHECK(lacking_descriptors(1024, 100, 8).empty());
  const auto lack = lacking_descriptors(1024, 511, 8);
  CHECK(lack.find("4224 file descriptors") != std::string::npos);
  CHECK(lack.find("the hard limit is 1024") != std::string::npos);
  CHECK(lack.find("ulimit -Hn") != std::string::npos);
}
