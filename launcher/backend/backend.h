/// How an agent is reached on a host: run a command there, get a byte stream to it. One backend per
/// way (`local`, `ssh`, or `command` for srun, qrsh and others). A backend knows nothing of jobs,
/// workers or protocols above the bytes.
#pragma once

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/files/hosts.h"
#include "io/byte_stream.h"

namespace dt::launcher {

class Exec;

class Backend {
 public:
  virtual ~Backend() = default;
  /// Runs the agent's attach command on `host`. `argv[0]` is "dtagent"; the backend finds or brings
  /// the program of this very version. Errors name the host, the phase (resolve, connect,
  /// handshake, host key, authentication, bundle copy, exec) and the remedy. Has deadlines of its
  /// own. Destroying the stream ends the connection, never the agent behind it.
  virtual io::awaitable<Result<io::StreamPtr>> open(Host host, std::vector<std::string> argv) = 0;
  /// The literal address at which this backend has reached the host; empty: it has not, or by way
  /// of another machine, which alone may know the address.
  [[nodiscard]] virtual std::string address(const Host& host) const = 0;
  /// Runs any command on the hosts, over the same connections; null: this backend runs the agent
  /// alone. As old as the backend.
  [[nodiscard]] virtual Exec* exec(const Host&) { return nullptr; }
  /// What delays reaching a host at this moment, as a sentence; empty: nothing does.
  [[nodiscard]] virtual std::string doing(const Host&) const { return {}; }
  /// The host is not needed any more: closes what was kept open for its next stream.
  virtual void disconnect(const Host&) {}
  /// A line for a user's shell that reaches the host as this backend does and runs nothing there;
  /// empty if no program but this one can.
  [[nodiscard]] virtual std::string reach_command(const Host&) const { return {}; }
  /// The beginning of a command line that connects as this backend does, without the host, for
  /// rsync's -e; empty: none does.
  [[nodiscard]] virtual std::string remote_shell(const Host&) const { return {}; }
};

}  // namespace dt::launcher
