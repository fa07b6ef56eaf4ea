/// The settings of a host in `~/.ssh/config` that libssh does not apply by itself: address, user,
/// keys, and the keywords that libssh's parser ignores (ForwardAgent, IdentitiesOnly, HostKeyAlias,
/// ServerAlive*). Ciphers and the like are left to libssh.
///
/// OpenSSH's rules: the first value of a keyword wins (IdentityFile adds up), `Host` patterns with
/// `*`, `?` and `!`, `Include`, `Match all` and `Match host`. Other Match blocks are skipped, with
/// a note. Relative Includes are taken from the folder of the file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/base/time.h"
#include "io/job/spec.h"

namespace dt::launcher {

/// One host's settings; an empty string or 0: not configured.
struct SshHostConfig {
  std::string hostname;  ///< What to connect to: HostName, else the name as written.
  std::uint16_t port = 0;
  std::string user;
  std::vector<std::string> identity_files;  ///< `~` and tokens expanded.
  bool identities_only = false;
  std::string identity_agent;  ///< Socket; "none": no agent; empty: $SSH_AUTH_SOCK.
  std::string host_key_alias;
  bool forward_agent = false;
  Duration alive_interval{};
  int alive_count_max = 0;
  std::string proxy_command;  ///< "none" is given as empty.
  std::string proxy_jump;
  std::vector<std::string> user_known_hosts;    ///< Empty: not configured.
  std::vector<std::string> global_known_hosts;  ///< Empty: not configured.
  std::optional<io::HostKeyPolicy> host_keys;   ///< StrictHostKeyChecking, where "ask" is strict.
  /// Keywords that would matter for this host and are not honoured, each "file:line: ...".
  std::vector<std::string> ignored;
};

/// The settings of host `name`, as the user wrote it, from the files in order of precedence; those
/// that do not exist are skipped. `user` as given elsewhere, or empty. Never fails: what it cannot
/// make sense of is a note.
[[nodiscard]] SshHostConfig read_ssh_config(const std::vector<std::string>& files,
                                            std::string_view name, std::string_view user);

/// %h (host), %n (original), %p, %r (user), %u, %d, %i and %% of HostName, IdentityFile and
/// ProxyCommand; others stay as they are.
[[nodiscard]] std::string expand_tokens(std::string_view text, std::string_view host,
                                        std::string_view original, std::uint16_t port,
                                        std::string_view user);
/// `*`, `?`; case matters as it does for ssh: names are compared in lower case.
[[nodiscard]] bool glob_match(std::string_view pattern, std::string_view text);
/// A list of patterns with `!` negation: a negated match refuses, else any match accepts.
[[nodiscard]] bool patterns_match(const std::vector<std::string>& patterns, std::string_view text);
/// "~" and "~/..." by $HOME, else by the password file.
[[nodiscard]] std::string expand_home(std::string_view path);
[[nodiscard]] const std::string& own_user_name();
[[nodiscard]] std::string lower_case(std::string_view text);

}  // namespace dt::launcher
