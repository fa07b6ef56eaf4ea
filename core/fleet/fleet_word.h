/// The word by which a fleet's provider is named: "slurm"; "command:PROGRAM", a discovery script;
/// a program with a "/" in its path, which speaks the provider's protocol; or "NAME:ARGUMENTS" for
/// such a program of ours. /bin/sh runs all three with their arguments.
#pragma once

#include <string>

#include "core/base/result.h"

namespace dt {

struct FleetWord {
  enum class Kind { kSlurm, kCommand, kProgram } kind = Kind::kSlurm;
  std::string words = {};  ///< The program and its arguments.
  std::string ours = {};   ///< A kProgram of ours ("aws"); then `words` has its arguments.
};
/// kInvalid, in words of who wrote it: it names none.
[[nodiscard]] Result<FleetWord> parse_fleet(const std::string& word);

}  // namespace dt
