/// The device on which servers keep and compute their values, as --server-device names it.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/result.h"

namespace dt {

struct DeviceChoice {
  enum class Kind : std::uint8_t {
    kCpu,
    kAuto,  ///< CUDA device `number`, counted in turn over those there are, else the CPU.
    kCuda,  ///< CUDA device `number` and nothing else.
  };
  Kind kind = Kind::kCpu;
  int number = 0;
};

/// "cpu", "auto", "cuda:N"; between parts also "auto:N". The error names what would be understood.
[[nodiscard]] Result<DeviceChoice> parse_device(std::string_view text);

}  // namespace dt
