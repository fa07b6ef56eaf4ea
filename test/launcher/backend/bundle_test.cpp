#include "launcher/backend/bundle.h"

#include <unistd.h>

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

namespace {

/// Runs the script as a host's shell would, with the environment that the words name.
std::string on_host(const std::string& environment, const std::string& script,
                    const std::string& input, const test::TempDir& dir,
                    const std::string& before = "") {
  test::write_file(dir / "script", script);
  test::write_file(dir / "input", input);
  return test::run_tool(
      {"/bin/sh", "-c",
       fmt::format("{}env -i PATH=\"$PATH\" {} /bin/sh {} <{} 2>&1; echo \"code $?\"", before,
                   environment, dir / "script", dir / "input")});
}

}  // namespace

TEST_CASE("bundle: it goes to the first folder where a program can be put and run", "[bundle]") {
  const test::TempDir dir;
  test::write_file(dir / "dtagent", "#!/bin/sh\necho it runs\n");
  const auto bundle = load_bundle({dir / "dtagent"});
  REQUIRE(bundle);
  const auto packed = pack_bundle(**bundle);
  REQUIRE(packed);
  const std::string copy = bundle_copy_script(**bundle, {{0, (*packed)[0].size()}}, "0123");
  const std::string start = bundle_exec_script(**bundle, {"dtagent"});
  const std::string in_tmp = fmt::format("/var/tmp/dtlaunch-{}", ::getuid());
  const auto is_in = [&](const std::string& root) {
    return std::filesystem::exists(fmt::format("{}/{}/dtagent", root, (*bundle)->hash));
  };
  test::write_file(dir / "file", "no folder");
  std::filesystem::create_directory(dir / "home");
  const std::string home = "HOME=" + (dir / "home");
  const std::string no_home = "HOME=" + (dir / "file");
  CHECK(on_host(home, start, "", dir).starts_with("dtlaunch:missing " + (*bundle)->files[0].hash));
  // An XDG_CACHE_HOME that is not to be used: ~/.cache; that neither: /var/tmp, and so it is said.
  const std::string no_cache = home + " XDG_CACHE_HOME=" + (dir / "file");
  CHECK(on_host(no_cache, copy, (*packed)[0], dir).find("dtlaunch:root " + (dir / "home/.cache")) !=
        std::string::npos);
  CHECK(is_in(dir / "home/.cache/dtlaunch"));
  CHECK(on_host(no_cache, start, "", dir) == "dtlaunch:ready\nit runs\ncode 0\n");
  const std::string elsewhere = on_host(no_home, copy, (*packed)[0], dir);
  CHECK(elsewhere.find("dtlaunch:root " + in_tmp + "\n") != std::string::npos);
  CHECK(elsewhere.ends_with("code 0\n"));
  CHECK(is_in(in_tmp));
  CHECK(on_host(no_home, start, "", dir) == "dtlaunch:ready\nit runs\ncode 0\n");
  std::filesystem::remove_all(fmt::format("{}/{}", in_tmp, (*bundle)->hash));
  // The usual one is not worth a word.
  CHECK(on_host(home, copy, (*packed)[0], dir) == "code 0\n");
  // Where nothing may be executed the error says so: in a mount namespace of its own.
  if (test::run_tool({"/bin/sh", "-c", "unshare -m true 2>/dev/null && echo yes || true"})
          .empty()) {
    WARN("SKIPPED: no mount namespaces");
    return;
  }
  const std::string noexec =
      "unshare -m /bin/sh -c 'for d in /tmp /var/tmp; do mount --bind $d $d && "
      "mount -o remount,bind,noexec $d; done; exec \"$@\"' sh ";
  const std::string nowhere = on_host(home, copy, (*packed)[0], dir, noexec);
  INFO(nowhere);
  CHECK(nowhere.find("dtlaunch:root") == std::string::npos);
  CHECK(nowhere.ends_with(fmt::format("code {}\n", kNoRoot)));
}
