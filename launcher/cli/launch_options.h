/// The command line of dtlaunch: words in, what is to be done out. Reads no file and starts
/// nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/launch/allocation.h"
#include "io/flags.h"
#include "io/job/spec.h"
#include "launcher/placement/placement.h"

namespace dt::launcher {

/// What the user wants done.
enum class Action { kRun, kResume, kDryRun, kCheck };

/// What its flags set, and what parse_options() makes of it.
struct Options {
  Options();  ///< What dtlaunch does without options.

  Action action = Action::kRun;
  std::optional<std::string> answer;         ///< What --help, --completion or the like print.
  std::uint32_t num_workers = 0;             ///< 0: as many as the allocation was asked for.
  std::optional<std::uint32_t> num_servers;  ///< Not given: one per base host.
  std::string hostfile;                      ///< Empty: this machine.
  std::string launcher;                      ///< The value of --launcher; empty: not given.
  io::Words env, env_server, env_worker;     ///< NAME or NAME=VALUE.
  std::string resume;                        ///< kResume: the job folder; absolute.
  bool take_over = false;                    ///< kResume: from a master that is gone.
  bool again = false;                        ///< kResume: though the job has finished.
  bool auto_resume = false;  ///< kRun: go on with the folder's last job if that fits.
  bool requeue = false;      ///< kRun: ask Slurm for another allocation when the hosts go away.
  std::string env_file;      ///< kResume: values of --env's names; or empty.
  bool dry_run = false;
  std::string check;       ///< kCheck: "quick" or "full".
  std::string preflight;   ///< kRun: the same before the job; empty: none.
  io::Words check_files;   ///< Further files that have to be the same on all hosts.
  std::string write_good;  ///< File for the hosts that pass; or empty.
  bool json = false;       ///< The check's result as JSON.
  std::string completion;  ///< The shell whose completion is to be printed.
  /// Everything that options alone decide. Job name, folders, workers and servers are filled in by
  /// plan() and by the caller.
  io::JobSpec spec;
};

/// The world outside that a command line refers to.
struct Environment {
  std::string cwd;  ///< Absolute.
  VariableOf variable;
  std::string version;     ///< What --version prints.
  bool has_input = false;  ///< Standard input comes from a file or another program.
};

/// Understands the words after the program's name. Options end at the first word that is neither an
/// option nor an option's value: from there on everything is the command, untouched. Errors are
/// kInvalid and say what to write instead.
[[nodiscard]] Result<Options> parse_options(const io::Words& words, const Environment& env);

/// What a command line without words is answered with: what is missing, and examples.
extern const char* const kFirstWords;
/// What bash sources to complete the words of dtlaunch and dtctl: the text of packaging/completions
/// from when it was configured.
extern const char* const kBashCompletion;

/// The job's spec: who runs where.
[[nodiscard]] Result<io::JobSpec> plan(const Options& options, const Placement& placement);

}  // namespace dt::launcher
