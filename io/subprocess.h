/// Programs that this process starts on its machine.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/protocol/control_messages.h"

namespace dt::io {

/// Decides which process group's terminal signals the program gets.
enum class ProcessGroup { kOurs, kOwn, kOwnSession };

/// Which of this process's variables a program does not get, by their names; null: it gets all.
using Without = std::function<bool(std::string_view)>;

/// A variable of this process; nothing: it is not set.
[[nodiscard]] std::optional<std::string> variable(const std::string& name);

/// As execve() takes words. As old as they are.
[[nodiscard]] std::vector<char*> pointers(const std::vector<std::string>& words);
/// The same of an environment: this process's, and further NAME=VALUEs, which win over it.
[[nodiscard]] std::vector<char*> environment_of(const Without& is_without,
                                                const std::vector<std::string>& with = {});

/// Starts `program` (a path, or a name in PATH) with `argv`, default signals and no signal blocked.
/// Its descriptor i is `files[i]`; it has no others. The caller reaps it.
[[nodiscard]] Result<pid_t> spawn(const std::string& program, const std::vector<std::string>& argv,
                                  const std::vector<int>& files, ProcessGroup group,
                                  const Without& is_without = {});

/// Converts waitpid()'s status.
[[nodiscard]] ExitStatus exit_status(int wait_status);

/// A child in its own process group, killed and reaped on destruction: a ProxyCommand, rsync.
class Subprocess {
 public:
  /// Starts argv[0]; `files` as in spawn().
  [[nodiscard]] static Result<Subprocess> start(const std::vector<std::string>& argv,
                                                const std::vector<int>& files,
                                                const Without& is_without = {});
  Subprocess(Subprocess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Subprocess& operator=(Subprocess&&) = delete;
  ~Subprocess();

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Blocks until it has ended, and reaps it; process_end.h waits beside a loop.
  [[nodiscard]] ExitStatus wait();

 private:
  explicit Subprocess(pid_t pid) : pid_(pid) {}
  pid_t pid_ = -1;
};

/// The folder of this program and its sibling programs. Empty if the kernel does not report it.
[[nodiscard]] std::filesystem::path program_folder();

/// Whether a program that is named so can be executed: it is in PATH, or a path leads to it.
[[nodiscard]] bool in_path(const std::string& program);

}  // namespace dt::io
