/// The cgroup of this process and those above it, whose limits all count, in version 2 and 1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dt::launcher {

/// Where the kernel shows cgroups.
struct CgroupPlace {
  std::string self = "/proc/self/cgroup";
  std::string root = "/sys/fs/cgroup";
};

struct CgroupFolder {
  std::string path;
  bool is_v2 = false;
};

/// The folders in which limits of `controller` ("memory", "cpu") may stand. One that is not mounted
/// here does not exist: in a container those above its own.
[[nodiscard]] std::vector<CgroupFolder> cgroup_folders(const std::string& controller,
                                                       const CgroupPlace& place = {});

/// How many cores' time this process may take, rounded up; none: no limit.
[[nodiscard]] std::optional<std::uint32_t> cpu_quota(const CgroupPlace& place = {});

}  // namespace dt::launcher
