#include "core/protocol/control_messages.h"

#include <array>

namespace dt {

std::string to_string(ProcessId id) {
  static constexpr std::array<std::string_view, 3> kNames{"server", "worker", "prepare-data"};
  const auto role = static_cast<std::size_t>(id.role);
  return fmt::format("{} {}", role < kNames.size() ? kNames[role] : "process", id.id);
}

std::string to_string(const ExitStatus& status) {
  if (status.signal == 0) return fmt::format("exit code {}", status.code);
  static constexpr std::array<std::string_view, 16> kNames{
      "", "HUP",  "INT", "QUIT", "ILL", "", "ABRT", "BUS",
      "", "KILL", "",    "SEGV", "",    "", "",     "TERM"};
  const auto number = static_cast<std::size_t>(status.signal);
  if (number >= kNames.size() || kNames[number].empty())
    return fmt::format("killed by signal {}", status.signal);
  return fmt::format("killed by signal {} ({})", status.signal, kNames[number]);
}

}  // namespace dt
