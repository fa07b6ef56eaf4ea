#include "io/volume_answers.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>

#include "io/fd.h"
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

bool ends_within(const Fd& process, Duration limit) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(limit).count();
  const auto deadline = std::chrono::steady_clock::now() + limit;
  pollfd ended{process.get(), POLLIN, 0};
  int ready = ::poll(&ended, 1, static_cast<int>(ms));
  while (ready < 0 && errno == EINTR && std::chrono::steady_clock::now() < deadline)
    ready = ::poll(&ended, 1, static_cast<int>(ms));
  return ready > 0;
}

}  // namespace

Result<void> volume_answers(const std::string& path, const std::string& place, Duration limit) {
  const pid_t child = ::fork();
  if (child < 0) return tl::unexpected(errno_error(errno, "fork"));
  if (child == 0) ask(path.c_str());
  const Fd process = open_pidfd(child);
  if (process && !ends_within(process, limit)) {
    ::kill(child, SIGKILL);
    return fail(ErrorKind::kTimeout,
                "{}: the volume has not answered for {} s on this machine: is its server there?",
                place, seconds(limit));
  }
  ::waitpid(child, nullptr, 0);
  return {};
}

}  // namespace dt::io
