/// What `dtctl exec` prints of many hosts: lines as they come, equal outputs folded, or JSON.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/hosts.h"
#include "launcher/reach/host_command.h"

namespace dt::supervisor {

/// Prints to stdout and stderr at once, or at the end. One thread.
class ExecOutput {
 public:
  virtual ~ExecOutput() = default;
  virtual void take(const Host& host, bool is_stderr, std::string_view bytes) = 0;
  /// No more comes from the host.
  virtual void end(const Host& host, const launcher::HostEnd& how) = 0;
  /// No more comes from any.
  virtual void finish() {}
};

/// How much of a host's output waits for its end; what is beyond it is left out, with a remark.
inline constexpr std::size_t kMostKept = std::size_t{16} << 20;

/// Each line as it comes, with "[host] " before it, on stdout or stderr as on the host.
[[nodiscard]] std::unique_ptr<ExecOutput> exec_lines();
/// At the end, on stdout: hosts with the same output share its lines: "[h[1-62]] (62): ok".
[[nodiscard]] std::unique_ptr<ExecOutput> exec_folded();
/// An object a line on stdout, when a host's command ends: host, exit_code or error, stdout,
/// stderr.
[[nodiscard]] std::unique_ptr<ExecOutput> exec_json();

/// What became of the command on all hosts.
class ExecSummary {
 public:
  void end(const Host& host, const launcher::HostEnd& how);
  /// 0 if all are, 65 if a host was not reached, else the largest exit code.
  [[nodiscard]] int exit_code() const;
  /// Lines for people about all that is not 0; empty if nothing is.
  [[nodiscard]] std::string text() const;

 private:
  std::size_t hosts_ = 0;
  std::map<int, std::vector<Host>> by_code_;
  std::vector<Host> late_;
  std::vector<std::string> unreached_;
};

}  // namespace dt::supervisor
