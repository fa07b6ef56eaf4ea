/// A supervisor of a swarm as a process of its own: the program itself, started in another role.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/base/time.h"
#include "io/asio.h"
#include "io/job/spec.h"

namespace dt::swarm {

/// What a process uses, from /proc.
struct Memory {
  double rss_mb = 0;
  double pss_mb = 0;
  double peak_mb = 0;
};

/// Killed and reaped on destruction.
class SupervisorRun {
 public:
  /// Starts it for the job of `spec`, whose folders exist; what it writes goes to `log`. Returns
  /// once it is ready.
  [[nodiscard]] static io::awaitable<Result<SupervisorRun>> start(io::JobSpec spec,
                                                                  std::string swarm_socket,
                                                                  std::string log);
  SupervisorRun(SupervisorRun&& other) noexcept;
  SupervisorRun& operator=(SupervisorRun&&) = delete;
  ~SupervisorRun();

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// CPU time so far, without its volume helper's.
  [[nodiscard]] Duration cpu() const;
  [[nodiscard]] Memory memory() const;
  /// Its exit code (128 + signal), once it has ended.
  [[nodiscard]] std::optional<int> ended();

 private:
  explicit SupervisorRun(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

/// The role: runs the job of the spec file to its end; the exit code.
int run_supervisor(const std::string& spec_file, const std::string& swarm_socket);

}  // namespace dt::swarm
