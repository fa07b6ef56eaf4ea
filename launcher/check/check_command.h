/// dtlaunch --check and --preflight: the checks from beginning to end, with what is printed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/files/hosts.h"
#include "core/preflight/newcomer.h"
#include "io/job/spec.h"

namespace dt::launcher {

struct CheckRequest {
  bool is_full = false;
  std::vector<HostLine> lines;     ///< Hosts to check, as the user has them.
  std::vector<std::string> files;  ///< --check-file
  std::string write_good;          ///< File for the lines of the hosts that pass; or empty.
  bool as_json = false;
  /// A job is started afterwards: where nothing is wrong, one line says so.
  bool is_before_launch = false;
};

struct CheckOutcome {
  /// kExitOk, kExitUnreachable, kExitCheckFailed, or kExitFailure where it cannot be done.
  int exit_code = 0;
  std::optional<preflight::Reference> reference;  ///< For hosts that are added later.
};

/// Prints the result to stdout; before a launch, to stderr. Blocks until it is done; see
/// run_checks().
CheckOutcome run_check(const io::JobSpec& spec, const CheckRequest& request);

}  // namespace dt::launcher
