/// What the preflight of a launch leaves for hosts that are added later.
#pragma once

#include <cstdint>

#include "core/files/hosts.h"
#include "core/preflight/preflight_messages.h"

namespace dt::preflight {

/// Facts of one base host, which the others were like. Part of the job's spec.
struct Reference {
  Host host;
  CommandFacts command;  ///< Without a path and files: there is no command to compare.
  GpuFacts gpus;
  std::uint32_t cores = 0;
  friend bool operator==(const Reference&, const Reference&) = default;
};

}  // namespace dt::preflight
