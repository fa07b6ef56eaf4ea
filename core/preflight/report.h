/// A check's verdict for people and for programs. Pure.
#pragma once

#include <string>

#include "core/preflight/findings.h"
#include "core/preflight/judge.h"

namespace dt::preflight {

/// A table of hosts by checks, equal lines as one, and below it a line for each thing that is
/// wrong, with its remedy.
[[nodiscard]] std::string table_text(const Verdict& verdict);

/// What is wrong, a line each, as below the table.
[[nodiscard]] std::string remarks_text(const Verdict& verdict);

/// One JSON object: hosts with their marks and facts, remarks, ways and speeds.
[[nodiscard]] std::string json_text(const Findings& findings, const Verdict& verdict,
                                    int exit_code);

}  // namespace dt::preflight
