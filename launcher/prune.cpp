#include "launcher/prune.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "io/fd.h"
#include "io/job/master_folders.h"
#include "io/job/spec.h"

namespace dt::launcher {
namespace {

namespace fs = std::filesystem;
using SystemTime = std::chrono::system_clock::time_point;

constexpr std::chrono::hours kKept{7 * 24};

SystemTime changed_at(const struct stat& st) {
  return std::chrono::system_clock::from_time_t(st.st_mtim.tv_sec);
}

/// How long hosts may wait for the supervisor of the job in this folder; 0 without a spec.
std::chrono::seconds orphan_timeout(const fs::path& folder) {
  const auto spec = io::read_spec((folder / "spec.json").string());
  return spec ? std::chrono::duration_cast<std::chrono::seconds>(spec->rules.orphan_timeout)
              : std::chrono::seconds();
}

/// The locks of a job of which nothing lives and nothing changed after `before`; nothing otherwise.
/// While they are held the job cannot be resumed.
std::optional<std::vector<io::Fd>> locks_of_ended(const fs::path& folder, SystemTime before) {
  std::vector<io::Fd> locks;
  std::error_code ec;
  for (fs::directory_iterator at(folder, ec), end; !ec && at != end; at.increment(ec)) {
    const std::string path = at->path().string();
    struct stat st {};
    if (::lstat(path.c_str(), &st) != 0 || changed_at(st) > before) return std::nullopt;
    if (S_ISSOCK(st.st_mode) && io::somebody_listens(path).value_or(true)) return std::nullopt;
    if (!S_ISREG(st.st_mode)) continue;
    io::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!file || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return std::nullopt;
    locks.push_back(std::move(file));
  }
  if (ec) return std::nullopt;
  return locks;
}

}  // namespace

bool is_job_name(const std::string& name) {
  constexpr std::string_view kForm = "dddddddd-dddddd-xxxxxxxx";
  const auto fits = [](char form, char c) {
    const bool is_digit = c >= '0' && c <= '9';
    if (form == 'd') return is_digit;
    if (form == 'x') return is_digit || (c >= 'a' && c <= 'f');
    return c == form;
  };
  return std::equal(kForm.begin(), kForm.end(), name.begin(), name.end(), fits);
}

void prune_jobs(const std::string& folder, SystemTime now) {
  std::vector<fs::path> old;
  std::error_code ec;
  for (fs::directory_iterator at(folder, ec), end; !ec && at != end; at.increment(ec)) {
    struct stat st {};
    if (is_job_name(at->path().filename().string()) && ::lstat(at->path().c_str(), &st) == 0 &&
        S_ISDIR(st.st_mode) && st.st_uid == ::geteuid() && changed_at(st) < now - kKept)
      old.push_back(at->path());
  }
  for (const fs::path& job : old) {
    const auto locks = locks_of_ended(job, now - kKept - orphan_timeout(job));
    if (locks) fs::remove_all(job, ec);
  }
}

void prune_ended_jobs() {
  const auto now = std::chrono::system_clock::now();
  for (const std::string& one : {io::state_home().path, io::shared_state_home(),
                                 io::runtime_home(io::make_job_name(0, 0).size()).path})
    prune_jobs(one, now);
}

}  // namespace dt::launcher
