/// What an agent reports about its machine.
#pragma once

#include <cstdint>
#include <string>

namespace dt::launcher {

struct Machine {
  std::string boot_id;
  std::string name;         ///< The same for "hosts" that are one machine.
  std::uint32_t cores = 0;  ///< That this process may use.
};

[[nodiscard]] Machine this_machine();

}  // namespace dt::launcher
