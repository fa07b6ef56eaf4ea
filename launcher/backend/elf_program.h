/// What dtlaunch needs to know of a program's ELF file (elf(5)) before it copies it to a host.
/// Byte order and word size are this machine's: the program is in the running program's folder.
#pragma once

#include <string>
#include <string_view>

namespace dt::launcher {

struct ProgramNeeds {
  std::string machine;  ///< As `uname -m` prints it.
  std::string loader;   ///< The program interpreter; both empty if it is no ELF program.
};

/// Never fails: a file that is no ELF program, or a damaged one, needs nothing.
[[nodiscard]] ProgramNeeds needs_of(std::string_view program);

/// The program without what only a debugger and a linker read: symbols, debug information, section
/// headers. Anything but an ELF program or library comes back as it is.
[[nodiscard]] std::string without_symbols(std::string program);

}  // namespace dt::launcher
