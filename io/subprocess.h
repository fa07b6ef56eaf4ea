/// A child process of ours on this machine: a ProxyCommand, rsync.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/base/result.h"
#include "io/fd.h"

namespace dt::launcher {

/// Killed and reaped on destruction.
class Subprocess {
 public:
  /// Starts `argv` by PATH in its own process group, with `in` and `out` as stdin and stdout, and
  /// `err` (-1: /dev/null) as stderr. All other descriptors of ours are close-on-exec.
  [[nodiscard]] static Result<Subprocess> start(const std::vector<std::string>& argv, int in,
                                                int out, int err);
  Subprocess(Subprocess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Subprocess& operator=(Subprocess&&) = delete;
  ~Subprocess();

  /// Reaps a child that has ended or is about to (its pipes are closed): exit code or 128 + signal.
  [[nodiscard]] int wait();

 private:
  explicit Subprocess(pid_t pid) : pid_(pid) {}
  pid_t pid_ = -1;
};

/// Whether a program is in PATH.
[[nodiscard]] bool in_path(const std::string& program);

}  // namespace dt::launcher
