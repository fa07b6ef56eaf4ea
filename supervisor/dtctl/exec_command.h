/// `dtctl exec`: a command on many hosts.
#pragma once

#include <string>

#include "io/flags.h"

namespace dt::supervisor {

/// `program` has name and synopsis; `words`: those after "exec". The exit code; why a command line
/// is refused is printed.
[[nodiscard]] int exec_main(io::Program program, const std::string& job_dir,
                            const io::Words& words);

}  // namespace dt::supervisor
