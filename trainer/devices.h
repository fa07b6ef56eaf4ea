/// Which devices a process trains on, and how a batch is divided among them. No libtorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace dt::train {

/// -1: the CPU; else a CUDA device.
using DeviceNumber = int;

/// "0,1", "cpu,cpu" (copies of the network on the CPU). Empty: one, the CPU. kInvalid.
[[nodiscard]] Result<std::vector<DeviceNumber>> parse_devices(const std::string& gpus);

/// "2,1": the proportions of the devices' parts of a batch. Empty: all equal. kInvalid, also if
/// their number is not `devices`.
[[nodiscard]] Result<std::vector<double>> parse_loads(const std::string& list, std::size_t devices);

/// The number of samples for each device, in the loads' proportions; their sum is `samples`.
[[nodiscard]] std::vector<std::uint32_t> divide(std::uint32_t samples,
                                                const std::vector<double>& loads);

}  // namespace dt::train
