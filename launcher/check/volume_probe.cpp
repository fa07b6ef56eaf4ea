#include "launcher/check/volume_probe.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <utility>

namespace dt::launcher {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kStale = std::chrono::seconds(5);
constexpr auto kAgain = std::chrono::milliseconds(20);

std::string text_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::getline(file, text, '\0');
  return text;
}

}  // namespace

Result<VolumeProbe> VolumeProbe::make(const std::string& job_dir, std::string word) {
  std::string path = job_dir + "/.dtlaunch-check-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr)
    return tl::unexpected(errno_error(errno, "make a folder in " + job_dir));
  VolumeProbe probe(path, std::move(word));
  constexpr mode_t kLikeTmp = 01777;
  constexpr mode_t kForAll = 0644;
  const std::string file = path + "/master";
  if (::chmod(path.c_str(), kLikeTmp) != 0)
    return tl::unexpected(errno_error(errno, "chmod " + path));
  std::ofstream(file, std::ios::binary) << probe.word_;
  if (text_of_file(file) != probe.word_ || ::chmod(file.c_str(), kForAll) != 0)
    return fail(ErrorKind::kIo, "{}: cannot be written", file);
  return probe;
}

VolumeProbe::VolumeProbe(VolumeProbe&& other) noexcept
    : path_(std::exchange(other.path_, {})), word_(std::move(other.word_)) {}

void VolumeProbe::remove() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(std::exchange(path_, {}), ignored);
}

io::awaitable<std::string> VolumeProbe::wait_for(std::string name, std::string word) const {
  const auto deadline = Clock::now() + kStale;
  const std::string file = path_ + "/" + name;
  while (text_of_file(file) != word) {
    std::error_code ec;
    if (Clock::now() > deadline)
      co_return fs::exists(file, ec) ? "its content is another after 5 s"
                                     : "nothing is there after 5 s";
    co_await io::sleep_for(kAgain);
  }
  co_return "";
}

std::optional<std::uint32_t> VolumeProbe::other_owner(const std::string& name) const {
  struct stat file {};
  if (::stat((path_ + "/" + name).c_str(), &file) != 0 || file.st_uid == ::geteuid())
    return std::nullopt;
  return file.st_uid;
}

}  // namespace dt::launcher
