#include "core/protocol/control_messages.h"

#include <array>
#include <utility>

namespace dt {

std::string to_string(ProcessId id) {
  switch (id.role) {
    case Role::kServer:
      return fmt::format("server {}", id.id);
    case Role::kWorker:
      return fmt::format("worker {}", id.id);
    case Role::kPrepare:
      return fmt::format("prepare-data {}", id.id);
  }
  return fmt::format("process {}", id.id);
}

std::string to_string(const ExitStatus& status) {
  if (status.signal == 0) return fmt::format("exit code {}", status.code);
  static constexpr std::array<std::pair<int, std::string_view>, 9> kNames{{{1, "HUP"},
                                                                           {2, "INT"},
                                                                           {3, "QUIT"},
                                                                           {4, "ILL"},
                                                                           {6, "ABRT"},
                                                                           {7, "BUS"},
                                                                           {9, "KILL"},
                                                                           {11, "SEGV"},
                                                                           {15, "TERM"}}};
  for (const auto& [number, name] : kNames)
    if (number == status.signal)
      return fmt::format("killed by signal {} ({})", status.signal, name);
  return fmt::format("killed by signal {}", status.signal);
}

}  // namespace dt
