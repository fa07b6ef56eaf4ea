#include "io/volume_answers.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>

#include "io/process_tree.h"

namespace dt::io {
namespace {

/// In the child of a fork. Opening asks a network file system's server, and so does statfs, which
/// no client answers from its memory. A pipe's writer would take us for its reader.
[[noreturn]] void ask(const char* path) {
  ::close_range(0, UINT_MAX, 0);  // whoever reads our output does not wait for this process
  struct stat file {};
  struct statfs volume {};
  if (::stat(path, &file) == 0 && (S_ISREG(file.st_mode) || S_ISDIR(file.st_mode)) &&
      ::open(path, O_RDONLY | O_CLOEXEC) >= 0)
    ::statfs(path, &volume);
  ::_exit(0);
}

}  // namespace

VolumeQuestion::~VolumeQuestion() {
  if (child_ > 0) signal_pidfd(process_, SIGKILL);
}

Result<void> VolumeQuestion::answers(Duration limit) {
  if (child_ < 0 || ends_within({})) {  // an earlier answer says nothing of now
    child_ = ::fork();
    if (child_ < 0) return tl::unexpected(errno_error(errno, "fork"));
    if (child_ == 0) ask(path_.c_str());
    process_ = open_pidfd(child_);
    asked_ = std::chrono::steady_clock::now();
  }
  if (ends_within(limit)) return {};
  return fail(ErrorKind::kTimeout,
              "{}: the volume has not answered for {} on this machine: is its server there?",
              place_, duration_text(seconds(std::chrono::steady_clock::now() - asked_)));
}

bool VolumeQuestion::ends_within(Duration limit) {
  pollfd ended{process_.get(), POLLIN, 0};
  for (int ready = 0; process_ && ready <= 0;) {
    const auto left = std::max(asked_ + limit - std::chrono::steady_clock::now(), Duration{});
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    ready = ::poll(&ended, 1, static_cast<int>(ms));
    if (ready == 0 || (ready < 0 && errno != EINTR)) return false;
  }
  ::waitpid(child_, nullptr, 0);
  child_ = -1;
  return true;
}

}  // namespace dt::io
