/// The settings of a host in `~/.ssh/config`. No other parser reads these files: libssh's is never
/// called, so that one set of rules decides, and the blocks of a host apply by its name as written.
///
/// OpenSSH's rules: the first value of a keyword wins (IdentityFile and CertificateFile add up),
/// `Host` patterns with `*`, `?` and `!`, `Include`, `Match` with all, host, originalhost, user and
/// localuser. A Match block that needs more (exec, localnetwork, tagged, canonical, final) is for
/// OpenSSH's client to decide: see openssh.h. Relative Includes are taken from the folder of the
/// file.
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
  std::vector<std::string> identity_files;     ///< `~` and tokens expanded.
  std::vector<std::string> certificate_files;  ///< The same.
  bool identities_only = false;
  std::string identity_agent;  ///< Socket; "none": no agent; empty: $SSH_AUTH_SOCK.
  std::string host_key_alias;
  bool forward_agent = false;
  Duration alive_interval{};
  int alive_count_max = 0;
  std::string proxy_command;  ///< At most one of the two is set. "none" is given as empty.
  std::string proxy_jump;
  std::vector<std::string> user_known_hosts;    ///< Empty: not configured.
  std::vector<std::string> global_known_hosts;  ///< Empty: not configured.
  std::optional<io::HostKeyPolicy> host_keys;   ///< StrictHostKeyChecking, where "ask" is strict.
  /// Lists of algorithms as written, also with +, - or ^ in front.
  std::string ciphers, macs, key_exchange, host_key_types, user_key_types;
  bool compression = false;
  std::uint64_t rekey_bytes = 0;  ///< RekeyLimit: keys are renewed after so many; 0: libssh's.
  Duration rekey_time{};
  /// "file:line: Match ...": the first block that only OpenSSH's client can decide. All else here
  /// is then a guess, as if such blocks were for the host.
  std::string undecided;
  /// "StrictHostKeyChecking ask" stands somewhere in the files, whether for this host or not.
  bool asks_somewhere = false;
  /// Keywords that would matter for this host and are not honoured, each "file:line: ...".
  std::vector<std::string> ignored;
};

/// The settings of host `name`, as the user wrote it, from the files in order of precedence; those
/// that do not exist are skipped. `user` as given elsewhere, or empty. Never fails: what it cannot
/// make sense of is a note.
[[nodiscard]] SshHostConfig read_ssh_config(const std::vector<std::string>& files,
                                            std::string_view name, std::string_view user);

/// The same from what `ssh -G` prints for the host. `defaults`: what it prints without any file, so
/// that a value that nobody configured is not taken for one. `from_files`: what our own parser made
/// of the files.
[[nodiscard]] SshHostConfig read_openssh_answer(const std::string& answer,
                                                const std::string& defaults, std::string_view name,
                                                std::string_view user,
                                                const SshHostConfig& from_files);

/// A list of algorithms of the ssh config, where +, - or ^ in front changes `defaults`; empty if
/// `configured` is.
[[nodiscard]] std::string choose_algorithms(std::string_view configured, std::string_view defaults);

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
