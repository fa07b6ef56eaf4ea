/// The programs that start a command on a host, one row each: which words, with which environment,
/// and how the program treats bytes and processes. Pure.
///
/// What every row starts on the host is `/bin/sh`, which reads its script from stdin: a single word
/// that reaches execve() unchanged whether the program passes words on as they are (srun, mpirun,
/// kubectl, docker) or joins them for a shell on the other side (ssh, qrsh, blaunch, pbs_tmrsh). So
/// nothing is quoted twice, and no script is too long for a command line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/files/kind.h"

namespace dt {

/// The shell that a starter starts on a host.
inline constexpr const char* kHostShell = "/bin/sh";

/// A way of starting, with what it has to know.
struct Starter {
  StarterKind kind = StarterKind::kLocal;
  std::string job;  ///< kSlurm: the allocation's job id; empty: srun's environment has it.
  /// kSlurm: the dtlaunch job, which has holders (holders.h) for further hosts; empty: there can be
  /// none.
  std::string holders_of;
  std::vector<std::string> nodes;  ///< kSlurm: those of `job`, which need no holder.
  std::string here;           ///< kSge: the host that this machine is; empty: none of the job's.
  std::string rsh;            ///< kCommand: the template.
  bool rsh_binary = false;    ///< kCommand: it passes every byte on at once.
  std::string pod_namespace;  ///< kKubernetes; empty: that of kubectl's context.
  std::string container;      ///< kKubernetes; empty: the pod's first one.

  friend bool operator==(const Starter&, const Starter&) = default;
};

/// The words that start kHostShell on a host.
struct StarterCommand {
  std::vector<std::string> argv;
  /// Variables that are taken from the program's environment; "*" stands for any text. They are
  /// options of the program, meant for the user's own use of it.
  std::vector<std::string> without;
  /// NAME=VALUE: what is added to it.
  std::vector<std::string> with;
};

/// How a kind treats what it starts.
struct StarterTraits {
  bool passes_lines;  ///< Output is passed on at the end of a line only: lines.h is needed.
  /// What the command leaves behind may be killed when it ends: it stays as long as its agent.
  bool ends_daemons;
  /// Its job fails with a command that a signal ends, as one is whose starter has died: it stands
  /// aside.
  bool fails_with_command;
  const char* package;  ///< Debian's, where the program is missing; empty: not known.
};
[[nodiscard]] StarterTraits traits_of(const Starter& starter);

/// `host`: its name alone. An error is one of the template.
[[nodiscard]] Result<StarterCommand> starter_command(const Starter& starter, std::string_view host);

/// Whether a variable's name matches one of StarterCommand::without.
[[nodiscard]] bool is_without(const StarterCommand& command, std::string_view name);

/// The words of a template such as "docker exec -i {host} {command}"; quotes and backslashes as in
/// a shell, which is not run. Errors say what is missing.
[[nodiscard]] Result<std::vector<std::string>> rsh_words(std::string_view text);

/// Whether the mpirun that prints this for --version is one that can be used.
[[nodiscard]] Result<void> check_mpirun(std::string_view version_text);

/// What a person can do about a program's last words; empty: nothing is known.
[[nodiscard]] std::string remedy(StarterKind kind, std::string_view last_words);
/// Whether these words of a program that has not ended mean that it waits for a busy host.
[[nodiscard]] bool waits_for_host(StarterKind kind, std::string_view last_words);

}  // namespace dt
