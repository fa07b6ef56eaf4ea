/// What the preflight of a launch leaves for hosts that are added later.
#pragma once

#include <cstdint>

#include "core/files/hosts.h"
#include "core/preflight/messages.h"

namespace dt::preflight {

/// What most base hosts have. Part of the job's spec.
struct Reference {
  Host host;             ///< The base host that has it.
  CommandFacts command;  ///< Without a path and files: there is no command to compare.
  GpuFacts gpus;
  std::uint32_t cores = 0;
  friend bool operator==(const Reference&, const Reference&) = default;
};

}  // namespace dt::preflight
