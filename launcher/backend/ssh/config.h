/// The settings of a host in `~/.ssh/config`. No other parser reads these files: libssh's is never
/// called, so that one set of rules decides, and the blocks of a host apply by its name as written.
///
/// OpenSSH's rules (config_text.h has those of its words): the first value of a keyword wins
/// (IdentityFile and CertificateFile add up), `Host` patterns with `*`, `?` and `!`, `Include`,
/// `Match` with all, host, originalhost, user and localuser. A Match block that needs more (exec,
/// localnetwork, tagged, canonical, final) is for OpenSSH's client to decide: see openssh.h. What
/// that client refuses, be it in a block for other hosts, is refused. Two differences: a keyword
/// that is not known is no error, and `~` and %d are $HOME (OpenSSH: of the password file).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/base/time.h"
#include "io/job/spec.h"
#include "launcher/backend/ssh/config_text.h"

namespace dt::launcher {

/// One host's settings; an empty string or 0: not configured.
struct SshHostConfig {
  std::string hostname;  ///< What to connect to: HostName, else the name as written.
  std::uint16_t port = 0;
  std::string user;
  std::vector<std::string> identity_files;     ///< `~`, tokens and variables are expanded.
  std::vector<std::string> certificate_files;  ///< The same.
  bool has_identities = false;                 ///< Some IdentityFile is configured, be it "none".
  bool identities_only = false;
  std::string identity_agent;  ///< Socket; "none": no agent; empty: $SSH_AUTH_SOCK.
  std::string host_key_alias;
  bool forward_agent = false;
  Duration alive_interval{};
  int alive_count_max = 0;
  std::string proxy_command;  ///< At most one of the two is set. "none" is given as empty.
  std::string proxy_jump;
  std::string proxy_written;  ///< proxy_command with its tokens: often the same for many hosts.
  std::vector<std::string> user_known_hosts;    ///< Empty: not configured. None: /dev/null.
  std::vector<std::string> global_known_hosts;  ///< The same.
  std::optional<io::HostKeyPolicy> host_keys;   ///< StrictHostKeyChecking, where "ask" is strict.
  /// Lists of algorithms as written, also with +, - or ^ in front.
  std::string ciphers, macs, key_exchange, host_key_types, user_key_types;
  bool compression = false;
  std::uint64_t rekey_bytes = 0;  ///< RekeyLimit: keys are renewed after so many; 0: libssh's.
  Duration rekey_time{};
  /// "file:line: Match ...": the first block that only OpenSSH's client can decide. All else here
  /// is then a guess, as if such blocks were for the host.
  std::string undecided;
  /// "file:line: keyword: why": the files are not to be used, for this host at least.
  std::string refused;
  /// "StrictHostKeyChecking ask" stands somewhere in the files, whether for this host or not.
  bool asks_somewhere = false;
  /// Keywords that would matter for this host and are not honoured, each "file:line: ...".
  std::vector<std::string> ignored;
};

/// The settings of host `name`, as the user wrote it, from the files in order of precedence; those
/// that do not exist are skipped. `user` and `port` as given elsewhere; or empty, 0.
[[nodiscard]] SshHostConfig read_ssh_config(const std::vector<std::string>& files,
                                            std::string_view name, std::string_view user,
                                            std::uint16_t port = 0);

/// The same from what `ssh -G` prints for the host: HostName, UserKnownHostsFile and IdentityAgent
/// expanded, all else as written. `defaults`: what it prints without any file, so that a value that
/// nobody configured is not taken for one. `from_files`: what our own parser made of the files.
[[nodiscard]] SshHostConfig read_openssh_answer(const std::string& answer,
                                                const std::string& defaults, std::string_view name,
                                                std::string_view user, std::uint16_t port,
                                                const SshHostConfig& from_files);

/// A list of algorithms of the ssh config, where +, - or ^ in front changes `defaults`; empty if
/// `configured` is.
[[nodiscard]] std::string choose_algorithms(std::string_view configured, std::string_view defaults);

}  // namespace dt::launcher
