#include "launcher/mount.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace dt::launcher {

std::string mount_of(const std::string& path) {
  std::error_code ec;
  const std::string real = std::filesystem::weakly_canonical(path, ec).string();
  std::ifstream file("/proc/self/mountinfo");
  std::string best;
  std::string found;
  for (std::string line; std::getline(file, line);) {
    // id parent major:minor root mount-point options [tags] - type source options
    std::istringstream words(line);
    std::string skipped, root, point, word, type, source;
    words >> skipped >> skipped >> skipped >> root >> point;
    while (words >> word && word != "-") continue;
    words >> type >> source;
    const bool is_above = point == "/" || real == point || real.starts_with(point + "/");
    if (!is_above || point.size() < best.size()) continue;
    best = point;
    found = fmt::format("{}{}, {}", source, root == "/" ? "" : root, type);
  }
  return found;
}

}  // namespace dt::launcher
