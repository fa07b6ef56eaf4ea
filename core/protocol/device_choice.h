/// The device on which servers keep and compute their values, as --server-device names it.
#pragma once

#include <cstdint>
#include <optional>
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

/// The host's number of the CUDA device with this number in a process that sees the GPUs of `list`,
/// as gpus= and CUDA_VISIBLE_DEVICES have it; nothing if the list has no numbers, or not so many.
[[nodiscard]] std::optional<std::uint32_t> gpu_of_host(std::string_view list, int device);

}  // namespace dt
