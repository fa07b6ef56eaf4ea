/// Address and user of a host, from the options, the hosts file and the ssh config.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/files/hosts.h"
#include "io/job/spec.h"
#include "launcher/backend/ssh/auth.h"
#include "launcher/backend/ssh/config.h"
#include "launcher/backend/ssh/once_log.h"
#include "launcher/backend/ssh/openssh.h"

namespace dt::launcher {

struct Target {
  std::string written;  ///< As the user wrote it; begins every message.
  std::string name;     ///< The same without user and port.
  std::string hostname;
  std::uint16_t port = 22;
  std::string user;
  std::string key_name;        ///< Its name in known_hosts.
  std::uint16_t key_port = 0;  ///< 0 with HostKeyAlias, which stands for name and port.
  io::HostKeyPolicy host_keys = io::HostKeyPolicy::kStrict;
  SshHostConfig config;

  [[nodiscard]] bool is_proxied() const {
    return !config.proxy_command.empty() || !config.proxy_jump.empty();
  }
};

/// "HOST: PHASE: what went wrong".
[[nodiscard]] Error phase_error(const Target& target, std::string_view phase, const Error& error);

/// The words of an `ssh` command line that name the config file and the identities, each after a
/// space.
[[nodiscard]] std::string file_words(const io::SshOptions& options);

/// Finds the target of each host. One thread. Must outlive its coroutines.
class Targets {
 public:
  Targets(io::SshOptions options, OnceLog& log, OpenSsh& openssh)
      : options_(std::move(options)), log_(&log), openssh_(&openssh) {}

  /// By the ssh config; OpenSSH's client is asked where that alone does not say. Warns of keywords
  /// that are not honoured.
  [[nodiscard]] io::awaitable<Result<Target>> find(Host host) const;
  /// The same without asking: what OpenSSH's client has already said of the host, else what the
  /// files say.
  [[nodiscard]] Target read(const Host& host) const;
  /// The host was not reached: where OpenSSH's client was asked, it is asked again.
  void forget(const Host& host) const { openssh_->forget(question(host)); }
  [[nodiscard]] AuthPlan auth_plan(const Target& target, Duration agent_deadline) const;
  /// Sets a session's libssh options. `host_key_types`: libssh's list, the preferred first.
  [[nodiscard]] Result<void> configure(SshSession& session, const Target& target,
                                       const std::string& host_key_types) const;
  /// See Backend::remote_shell.
  [[nodiscard]] std::string ssh_command(const Host& host) const;
  [[nodiscard]] const io::SshOptions& options() const { return options_; }

 private:
  [[nodiscard]] std::vector<std::string> config_files() const;
  [[nodiscard]] SshHostConfig read_files(const Host& host) const;
  [[nodiscard]] const std::string& given_user(const Host& host) const;
  [[nodiscard]] std::uint16_t given_port(const Host& host) const;
  [[nodiscard]] OpenSsh::Question question(const Host& host) const;
  [[nodiscard]] Target make(const Host& host, SshHostConfig config) const;

  io::SshOptions options_;
  OnceLog* log_;
  OpenSsh* openssh_;
};

}  // namespace dt::launcher
