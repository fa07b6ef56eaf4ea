#include "launcher/backend/bundle.h"

#include <filesystem>

#include "test/support/catch.h"
#include "test/support/sshd.h"

using namespace dt;
using namespace dt::launcher;

TEST_CASE("bundle: a program without its symbols runs, and is smaller", "[bundle]") {
  const test::TempDir dir;
  const std::string self = test::read_file("/proc/self/exe");
  const std::string stripped = without_symbols(self);
  CHECK(stripped.size() < self.size());
  test::write_file(dir / "program", stripped, 0700);
  CHECK(test::run_tool({dir / "program", "--help"}).find("usage:") != std::string::npos);
  CHECK(needs_of(stripped).loader == needs_of(self).loader);
  CHECK(without_symbols(stripped) == stripped);
}

TEST_CASE("bundle: what is no program, or half of one, stays as it is", "[bundle]") {
  const std::string self = test::read_file("/proc/self/exe");
  const std::size_t whole = without_symbols(self).size();  // the bytes that the loader reads
  for (const std::size_t size : {std::size_t{0}, std::size_t{4}, std::size_t{63}, std::size_t{100},
                                 std::size_t{4096}, whole / 2, whole - 1}) {
    const std::string half = self.substr(0, size);
    INFO(size << " of " << whole << " bytes");
    const bool is_same = without_symbols(half) == half;
    CHECK(is_same);
  }
  const std::string script = "#!/bin/sh\nexit 0\n";
  CHECK(without_symbols(script) == script);
  CHECK(needs_of(script).loader.empty());
}

TEST_CASE("bundle: its name is that of its contents, symbols apart", "[bundle]") {
  const test::TempDir dir;
  std::filesystem::create_directory(dir / "debug");
  const std::string self = test::read_file("/proc/self/exe");
  test::write_file(dir / "dtagent", without_symbols(self));
  test::write_file(dir / "debug/dtagent", self);
  test::write_file(dir / "dtserver", "one");
  const auto plain = load_bundle({dir / "dtagent", dir / "dtserver"});
  const auto debug = load_bundle({dir / "debug/dtagent", dir / "dtserver"});
  REQUIRE(plain);
  REQUIRE(debug);
  CHECK((*plain)->hash == (*debug)->hash);
  CHECK((*plain)->hash.size() == 32);
  test::write_file(dir / "dtserver", "two");
  const auto other = load_bundle({dir / "dtagent", dir / "dtserver"});
  REQUIRE(other);
  CHECK((*other)->hash != (*plain)->hash);
  CHECK((*other)->files[0].hash == (*plain)->files[0].hash);
  const auto none = load_bundle({dir / "absent"});
  REQUIRE_FALSE(none);
  CHECK(none.error().message.find("absent") != std::string::npos);
}
