/// What dtlaunch needs to know of a program's ELF file (elf(5)) before it copies it to a host.
/// Byte order and word size are this machine's: the program is in the running program's folder.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace dt::launcher {

struct ProgramNeeds {
  std::string machine;  ///< As `uname -m` prints it.
  std::string loader;   ///< The program interpreter; both empty if it is no ELF program.
};

/// Never fails: a file that is no ELF program, or a damaged one, needs nothing.
[[nodiscard]] ProgramNeeds needs_of(std::string_view program);

/// How many bytes at its beginning the kernel and the loader read of a program or library of `size`
/// bytes: headers and segments. Nothing: it is neither, is damaged, or `beginning` lacks a header.
[[nodiscard]] std::optional<std::size_t> loaded_size(std::string_view beginning, std::size_t size);

/// The program without what only a debugger and a linker read: symbols, debug information, section
/// headers. Anything but an ELF program or library comes back as it is.
[[nodiscard]] std::string without_symbols(std::string program);

}  // namespace dt::launcher
