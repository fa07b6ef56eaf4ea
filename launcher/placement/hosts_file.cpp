#include "launcher/placement/hosts_file.h"

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "io/volume_answers.h"

namespace dt::launcher {
namespace {

namespace fs = std::filesystem;

Result<std::string> read_text(const std::string& path) {
  if (auto there = io::volume_answers(path, "hosts file " + path); !there)
    return tl::unexpected(there.error());
  constexpr std::size_t kLargest = std::size_t{16} << 20;
  std::error_code ec;
  if (fs::is_directory(path, ec))
    return fail(ErrorKind::kInvalid, "hosts file {}: it is a folder; give a file", path);
  std::ifstream file(path, std::ios::binary);
  if (!file && errno == ENOENT && path.find(',') != std::string::npos)
    return fail(ErrorKind::kInvalid, "hosts file {}: -H names a file: one host a line there", path);
  if (!file) return tl::unexpected(errno_error(errno, "hosts file " + path));
  std::string text;
  for (char c; text.size() <= kLargest && file.get(c);) text.push_back(c);
  if (text.size() > kLargest)
    return fail(ErrorKind::kInvalid, "hosts file {}: larger than 16 MiB", path);
  return text;
}

}  // namespace

Result<std::vector<HostLine>> read_hosts_file(const std::string& path) {
  if (path.empty()) return std::vector<HostLine>();
  const auto text = read_text(path);
  if (!text) return tl::unexpected(text.error());
  auto lines = parse_hosts(*text, path);
  if (lines && lines->empty())
    return fail(ErrorKind::kInvalid, "{} names no host: one line per host was expected", path);
  return lines;
}

std::string lines_of_words(std::string_view words) {
  std::string lines;
  int depth = 0;
  for (const char c : words) {
    if (c == '[') ++depth;
    if (c == ']') --depth;
    lines += c == ',' && depth == 0 ? '\n' : c;
  }
  return lines + "\n";
}

}  // namespace dt::launcher
