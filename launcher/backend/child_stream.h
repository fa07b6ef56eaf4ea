/// A program of this machine whose stdin and stdout are the way to a command: srun, mpirun, or
/// dtagent itself.
#pragma once

#include <string>
#include <vector>

#include "io/asio.h"
#include "io/subprocess.h"
#include "launcher/backend/exec.h"

namespace dt::launcher {

struct ChildProgram {
  std::string path = {};  ///< Or a name in PATH; empty: argv[0].
  std::vector<std::string> argv;
  io::Without is_without = {};
  std::vector<std::string> with = {};  ///< NAME=VALUE: further ones, which win over this process's.
  bool dies_with_us = true;            ///< The kernel kills it when this process ends.
};

/// Starts the program in a session of its own: Ctrl-C at the terminal does not reach it. When the
/// stream goes, the program reads the end of its stdin; two seconds later it and its process group
/// are killed. Its exit is taken whenever it comes. kInvalid: there is no such program.
[[nodiscard]] Result<ExecStreamPtr> child_stream(io::asio::any_io_executor executor,
                                                 const ChildProgram& program);

}  // namespace dt::launcher
