#include "launcher/agent/cgroup.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

namespace dt::launcher {

std::vector<CgroupFolder> cgroup_folders(const std::string& controller, const CgroupPlace& place) {
  std::vector<CgroupFolder> folders;
  std::ifstream file(place.self);
  // Its lines are NUMBER:CONTROLLER,...:PATH, and of version 2 0::PATH.
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_v2 = controllers.empty();
    if (!is_v2 && ("," + controllers + ",").find("," + controller + ",") == std::string::npos)
      continue;
    const std::string root = is_v2 ? place.root : place.root + "/" + controller;
    for (std::filesystem::path path = line.substr(second + 1);; path = path.parent_path()) {
      folders.push_back({path == "/" ? root : root + path.string(), is_v2});
      if (path.empty() || path == "/") break;
    }
  }
  return folders;
}

std::optional<std::uint32_t> cpu_quota(const CgroupPlace& place) {
  std::optional<std::uint32_t> least;
  for (const auto& [folder, is_v2] : cgroup_folders("cpu", place)) {
    double quota = 0;
    double period = 0;
    std::ifstream most(folder + (is_v2 ? "/cpu.max" : "/cpu.cfs_quota_us"));
    std::ifstream v1_period(folder + "/cpu.cfs_period_us");
    // Without a limit it is "max", or -1.
    if (!(most >> quota) || !((is_v2 ? most : v1_period) >> period)) continue;
    if (quota <= 0 || period <= 0) continue;
    const auto cores = static_cast<std::uint32_t>(std::ceil(quota / period));
    least = std::min(least.value_or(cores), cores);
  }
  return least;
}

}  // namespace dt::launcher
