/// Commands on hosts: what a way of reaching hosts has to offer, and what can be done with that.
/// Everything about the agent and its programs is above it (bring_up.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/time.h"
#include "core/files/hosts.h"
#include "io/asio.h"
#include "io/byte_stream.h"

namespace dt::launcher {

/// The end of a command on a host, with its output.
struct CommandResult {
  int exit_code = 0;  ///< 128 + signal.
  std::string out;
  std::string err;  ///< The last 8 kB.
};

/// A running command's stdin and stdout. read() fails when the command ends with another exit code
/// than 0, with the end of its stderr, and when the connection ends before it.
class CommandStream : public io::ByteStream {
 public:
  /// No more will be written: the command reads the end of its input.
  virtual void finish_writing() = 0;
};

/// The same, where each end is read() == 0 and the caller judges it.
class ExecStream : public CommandStream {
 public:
  /// After read() has returned 0: the exit code (128 + signal), or -1 when none came.
  [[nodiscard]] virtual int exit_code() const = 0;
  /// Why none came.
  [[nodiscard]] virtual Error no_exit_code() const = 0;
  /// The last 8 kB of the command's stderr, trimmed.
  [[nodiscard]] virtual std::string stderr_tail() const = 0;
  /// `take` gets all of stderr, what came before included, until the stream is closed. Once.
  virtual void on_stderr(std::function<void(std::string_view)> take) = 0;
  /// Kills what a program of this machine that carries the stream has forked, and lets it live
  /// itself.
  virtual void kill_children() {}
};
using ExecStreamPtr = std::unique_ptr<ExecStream>;

/// A way of running commands on hosts. One thread. Streams may outlive it.
class Exec {
 public:
  virtual ~Exec() = default;
  /// Runs `script` by /bin/sh on the host. Errors name host and phase. Has deadlines of its own.
  virtual io::awaitable<Result<ExecStreamPtr>> open(Host host, std::string script) = 0;
  /// See Backend::address.
  [[nodiscard]] virtual std::string address(const Host& host) const = 0;
  /// See Backend::disconnect.
  virtual void disconnect(const Host&) {}
};

/// Runs a short script to its end. An exit code other than 0 is a result, not an error. `input`
/// must live until then.
io::awaitable<Result<CommandResult>> run_command(Exec& exec, Host host, std::string script,
                                                 std::string_view input, Duration deadline);

/// Runs a script for as long as it takes.
io::awaitable<Result<std::unique_ptr<CommandStream>>> start_command(Exec& exec, Host host,
                                                                    std::string script);

/// A stream to `program`, which has started. Its failure is an error of read(), with the last of
/// its stderr.
[[nodiscard]] std::unique_ptr<CommandStream> program_stream(ExecStreamPtr stream, const Host& host,
                                                            std::string program);

/// A line of a command's output, and the bytes that were read behind it.
struct FirstLine {
  std::string line;
  std::string rest;
};
/// The first line that begins with `prefix`, after whatever start-up files print. `who`: the
/// program whose output it is, for errors.
io::awaitable<Result<FirstLine>> read_answer(ExecStream& stream, std::string prefix,
                                             std::string who);

/// The stream with these bytes before all others.
[[nodiscard]] ExecStreamPtr unread(ExecStreamPtr stream, std::string bytes);

}  // namespace dt::launcher
