#include "launcher/agent/cgroup.h"

#include <filesystem>

#include "test/support/catch.h"
#include "test/support/sshd.h"

using namespace dt;
namespace fs = std::filesystem;

namespace {

/// A kernel's folders.
struct Kernel {
  void write(const std::string& name, const std::string& text) {
    const fs::path path = place.root + "/" + name;
    fs::create_directories(path.parent_path());
    test::write_file(path.string(), text);
  }
  void is_in(const std::string& lines) { test::write_file(place.self, lines); }
  std::optional<std::uint32_t> quota() { return launcher::cpu_quota(place); }

  test::TempDir dir;
  launcher::CgroupPlace place{dir / "self", dir / "cgroup"};
};

}  // namespace

TEST_CASE("cgroup: the least CPU quota on the way up, rounded up, in version 2", "[cgroup]") {
  Kernel kernel;
  kernel.is_in("0::/a/b\n");
  CHECK_FALSE(kernel.quota());
  kernel.write("a/b/cpu.max", "max 100000\n");
  CHECK_FALSE(kernel.quota());
  kernel.write("a/cpu.max", "250000 100000\n");
  CHECK(kernel.quota() == 3);
  kernel.write("a/b/cpu.max", "20000 100000\n");
  CHECK(kernel.quota() == 1);
  // Inside a container the path of its cgroup may be the machine's.
  kernel.is_in("0::/machine/container\n");
  kernel.write("cpu.max", "200000 100000\n");
  CHECK(kernel.quota() == 2);
}

TEST_CASE("cgroup: the least CPU quota on the way up, rounded up, in version 1", "[cgroup]") {
  Kernel kernel;
  kernel.is_in("9:memory:/m\n4:cpu,cpuacct:/a/b\n1:name=systemd:/x\n0::/x\n");
  CHECK_FALSE(kernel.quota());
  for (const char* name : {"cpu", "cpu/a", "cpu/a/b"}) {
    kernel.write(std::string(name) + "/cpu.cfs_quota_us", "-1\n");
    kernel.write(std::string(name) + "/cpu.cfs_period_us", "100000\n");
  }
  CHECK_FALSE(kernel.quota());
  kernel.write("cpu/a/cpu.cfs_quota_us", "400000\n");
  CHECK(kernel.quota() == 4);
  kernel.write("cpu/a/b/cpu.cfs_quota_us", "100001\n");
  CHECK(kernel.quota() == 2);
}

TEST_CASE("cgroup: no file of the kernel, or one that is not understood, is no limit", "[cgroup]") {
  Kernel kernel;
  CHECK_FALSE(kernel.quota());
  kernel.is_in("0\n:\n0::\n");
  kernel.write("cpu.max", "100000\n");
  CHECK_FALSE(kernel.quota());
  kernel.write("cpu.max", "100000 0\n");
  CHECK_FALSE(kernel.quota());
}
