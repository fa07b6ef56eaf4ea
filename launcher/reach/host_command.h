/// A person's command on many hosts at once, in the process that asks for it: no agent, no
/// supervisor, nothing to be installed there but /bin/sh.
///
/// Beside the command a shell on the host waits for the end of its stdin. That comes when this
/// process ends the command, ends itself or loses the connection; then the command's process group
/// gets TERM, and 5 s later KILL. The exit code comes in the output, behind a mark that is taken
/// out: a starter's own 0 does not say that the command has ended. Where this process is killed
/// while srun, qrsh or mpirun carry the stdin, it depends on them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "core/base/time.h"
#include "core/files/hosts.h"
#include "io/asio.h"
#include "io/semaphore.h"
#include "launcher/backend/exec.h"

namespace dt::launcher {

struct HostCommand {
  std::string text;                          ///< For /bin/sh.
  std::shared_ptr<const std::string> input;  ///< The command's stdin; null: /dev/null.
  Duration timeout{};                        ///< From its start on a host; 0: none.
};

/// How it ended on a host.
struct HostEnd {
  std::optional<int> exit_code;  ///< None: the host was not reached, or lost. 128 + signal.
  std::string why;               ///< Without an exit code, or of one that did not end by KILL.
  bool is_late = false;          ///< It was ended after HostCommand::timeout.
};

/// What timeout(1) has for a command that took too long.
inline constexpr int kExitLateCommand = 124;

/// Gets a piece of the output on a host as it comes.
using TakeOutput = std::function<void(bool is_stderr, std::string_view bytes)>;

/// One thread. Must outlive its coroutines.
class HostCommands {
 public:
  /// On at most `parallel` hosts at a time.
  HostCommands(io::asio::any_io_executor executor, HostCommand command, std::size_t parallel);

  /// Runs the command on the host by `exec`, which must live as long.
  io::awaitable<HostEnd> run(Exec& exec, Host host, TakeOutput take);

  /// Ends the commands that run; on hosts that wait none begins. The runs end when the hosts have
  /// answered, or after about kEndPatience.
  void end();

 private:
  io::awaitable<HostEnd> run_on(ExecStream& stream, Host host, TakeOutput take);

  HostCommand command_;
  std::string script_;
  std::shared_ptr<io::Semaphore> window_;
  std::set<ExecStream*> running_;
  bool is_ending_ = false;
};

/// From the end of its stdin to the end of a command that does not obey TERM, and the answer.
inline constexpr Duration kEndPatience = std::chrono::seconds(8);

/// The script that runs the command as described above. For tests.
[[nodiscard]] std::string host_command_script(const HostCommand& command);

}  // namespace dt::launcher
