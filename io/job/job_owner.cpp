#include "io/job/job_owner.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "io/fd.h"
#include "io/job/spec.h"

namespace dt::io {
namespace {

constexpr mode_t kWritableForOthers = 022;

/// A file that this process makes in the folder, as the folder's volume shows it.
std::optional<struct stat> shown_as(const std::string& folder) {
  std::string name = folder + "/.owner.XXXXXX";
  const Fd file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file) return std::nullopt;
  struct stat st {};
  const bool is_known = ::fstat(file.get(), &st) == 0;
  ::unlink(name.c_str());
  return is_known ? std::optional(st) : std::nullopt;
}

Result<void> check_one(const std::string& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0)
    return errno == ENOENT ? Result<void>() : tl::unexpected(errno_error(errno, path));
  if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
    return fail(ErrorKind::kDenied,
                "{} is a link or no plain file: the job's files are not used; remove it", path);
  const bool is_mine = st.st_uid == ::geteuid() && (st.st_mode & kWritableForOthers) == 0;
  if (is_mine) return {};
  const auto ours = shown_as(S_ISDIR(st.st_mode) ? path : path.substr(0, path.rfind('/')));
  if (ours && ours->st_uid == st.st_uid &&
      (ours->st_mode & kWritableForOthers) == (st.st_mode & kWritableForOthers))
    return {};
  if (st.st_uid == ::geteuid())
    return fail(ErrorKind::kDenied,
                "{} is writable for other users, who could say there how hosts are reached: it is "
                "not used; if nobody has changed it: chmod go-w {}",
                path, path);
  const std::string owner = user_name(st.st_uid);
  const std::string sudo_user = ::getpwuid(st.st_uid) ? owner : fmt::format("'#{}'", st.st_uid);
  return fail(ErrorKind::kDenied,
              "{} belongs to {}: a job's files say how hosts are reached, so they are not used; as "
              "that user: sudo -u {} ...; for a job of your own: another folder",
              path, owner, sudo_user);
}

}  // namespace

Result<void> check_job_owner(const std::string& job_dir, const JobPointer& pointer) {
  const std::string marker = marker_dir(job_dir);
  const std::string job = marker + "/" + pointer.job;
  for (const std::string& path :
       {marker, pointer_file(job_dir), job, job + "/spec.json", pointer.state_dir})
    if (auto checked = check_one(path); !checked) return checked;
  return {};
}

Result<void> check_folder_owner(const std::string& job_dir) {
  return check_one(marker_dir(job_dir));
}

std::string user_name(unsigned uid) {
  const passwd* user = ::getpwuid(uid);
  return user ? user->pw_name : fmt::format("user {}", uid);
}

}  // namespace dt::io
