/// The newcomers' gate: what the preflight of a launch leaves for hosts that are added later, and
/// what is wrong with such a host. Pure.
#pragma once

#include <string>
#include <vector>

#include "core/preflight/findings.h"
#include "core/preflight/judge.h"
#include "core/preflight/reference.h"

namespace dt::preflight {

/// Facts of the host with the fewest remarks, the first of several. `findings` are of one host at
/// least.
[[nodiscard]] Reference reference_of(const Findings& findings, const Verdict& verdict);

/// A sentence each, with its row and remedy: "command: tool: 2 kinds: ... (remedy: ...)".
struct NewcomerVerdict {
  std::vector<std::string> failed;  ///< Empty: it may join.
  std::vector<std::string> warnings;
};

/// `found`: the newcomer's host first, then those that it was to reach.
[[nodiscard]] NewcomerVerdict judge_newcomer(const Reference& reference, Findings found);

}  // namespace dt::preflight
