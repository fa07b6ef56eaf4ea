#include "launcher/check/volume_probe.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "io/read_file.h"

namespace dt::launcher {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kStale = std::chrono::seconds(5);
constexpr auto kAgain = std::chrono::milliseconds(20);

std::string text_of_file(const std::string& path) { return io::read_file(path).value_or(""); }

constexpr const char* kName = ".dtlaunch-check-";

/// Opens the file and locks it; none: another process has it, or the file system has no locks.
io::Fd locked(const std::string& path) {
  io::Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (file && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) file.reset();
  return file;
}

/// A younger folder without `master` may belong to a running check.
constexpr auto kHalfMade = std::chrono::minutes(10);

/// An old folder without `master`: its check was killed while it created or removed the folder.
bool is_half_made(const std::string& probe) {
  std::error_code ec;
  if (fs::exists(probe + "/master", ec) || ec) return false;
  const auto changed = fs::last_write_time(probe, ec);
  return !ec && fs::file_time_type::clock::now() - changed > kHalfMade;
}

/// If the lock is free, the process that held it has ended.
void remove_abandoned(const std::string& job_dir) {
  std::error_code ec;
  std::vector<std::string> probes;
  for (fs::directory_iterator entry(job_dir, ec), end; !ec && entry != end; entry.increment(ec))
    if (entry->path().filename().string().starts_with(kName))
      probes.push_back(entry->path().string());
  for (const std::string& probe : probes) {
    io::Fd lock = locked(probe + "/master");
    if (!lock && !is_half_made(probe)) continue;
    lock.reset();  // NFS keeps a file that is open
    fs::remove_all(probe, ec);
  }
}

}  // namespace

Result<VolumeProbe> VolumeProbe::make(const std::string& job_dir, std::string word) {
  remove_abandoned(job_dir);
  std::string path = job_dir + "/" + kName + "XXXXXX";
  if (::mkdtemp(path.data()) == nullptr)
    return tl::unexpected(errno_error(errno, "make a folder in " + job_dir));
  VolumeProbe probe(path, std::move(word));
  constexpr mode_t kLikeTmp = 01777;
  constexpr mode_t kForAll = 0644;
  const std::string file = path + "/master";
  if (::chmod(path.c_str(), kLikeTmp) != 0)
    return tl::unexpected(errno_error(errno, "chmod " + path));
  const std::string unlocked = file + ".new";  // another check does not look at that
  std::ofstream(unlocked, std::ios::binary) << probe.word_;
  probe.lock_ = locked(unlocked);
  if (text_of_file(unlocked) != probe.word_ || ::chmod(unlocked.c_str(), kForAll) != 0 ||
      ::rename(unlocked.c_str(), file.c_str()) != 0)
    return fail(ErrorKind::kIo, "{}: cannot be written", file);
  return probe;
}

VolumeProbe::VolumeProbe(VolumeProbe&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      word_(std::move(other.word_)),
      lock_(std::move(other.lock_)) {}

void VolumeProbe::remove() {
  std::error_code ignored;
  lock_.reset();  // NFS keeps a file that is open
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
    co_await io::sleep_for(kAgain);  // tidy: allow (a network file system tells no reader)
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
