#include "io/descriptor_limit.h"

#include "test/support/catch.h"

using namespace dt::io;

namespace {

rlimit present() {
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  return limit;
}

}  // namespace

TEST_CASE("descriptors: a program has all that it may, what it starts has the user's limit",
          "[io]") {
  const rlimit before = present();
  const rlimit soft{64, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &soft) == 0);
  CHECK(raise_descriptor_limit().rlim_cur == 64);
  CHECK(present().rlim_cur == before.rlim_max);
  CHECK(raise_descriptor_limit().rlim_cur == 64);
  {
    const RestoredDescriptorLimit restored;
    CHECK(present().rlim_cur == 64);
  }
  CHECK(present().rlim_cur == before.rlim_max);
  restore_descriptor_limit();
  CHECK(present().rlim_cur == 64);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE("descriptors: a hard limit that is too low is named, with what is needed", "[io]") {
  const std::uint64_t hard = present().rlim_max;
  CHECK(lacking_descriptors(hard, "a job of 7 hosts").empty());
  if (hard == RLIM_INFINITY) return;
  const std::string why = lacking_descriptors(hard + 1, "a job of 7 hosts");
  CHECK(why.find("a job of 7 hosts needs up to " + std::to_string(hard + 1)) == 0);
  CHECK(why.find("the hard limit is " + std::to_string(hard)) != std::string::npos);
}
