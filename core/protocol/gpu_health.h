/// The GPUs of a host: which reported values are trouble, and which process sees which GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/protocol/control_messages.h"

namespace dt {

/// The faults of a GPU, a sentence each, the worst first; none if it works. Reduced clocks are a
/// fault if heat or the board's power supply is the cause, not a set power limit.
[[nodiscard]] std::vector<std::string> troubles_of(const GpuReport& gpu);

/// Whether an error of the driver is of the program that used the GPU: the GPU has no fault.
[[nodiscard]] bool is_programs_xid(std::uint64_t xid);
/// The last such error, if there was no other; empty: none.
[[nodiscard]] std::string programs_error_of(const GpuReport& gpu);

/// The numbers (GpuReport::index) of the GPUs that a process with this CUDA_VISIBLE_DEVICES sees,
/// in its order: numbers, or unique beginnings of unique ids; the first entry that is none ends the
/// list, as CUDA has it. None set: all of them. CUDA counts as we do where CUDA_DEVICE_ORDER is
/// PCI_BUS_ID or all GPUs of the host are of one kind.
[[nodiscard]] std::vector<std::uint32_t> visible_gpus(
    const std::optional<std::string>& cuda_visible_devices, const std::vector<GpuReport>& gpus);

/// Which of those a job uses: all, or what gpus= of a hosts file lists, in its order. An error,
/// with those that are seen, if one of the list is not.
[[nodiscard]] Result<std::vector<std::uint32_t>> chosen_gpus(
    const std::string& list, const std::optional<std::string>& cuda_visible_devices,
    const std::vector<GpuReport>& gpus);

/// How many GPUs each worker of a host gets.
struct GpuShare {
  std::uint32_t per_worker = 0;  ///< 0: all, divided by `workers`; at least one.
  std::uint32_t workers = 1;     ///< The host has so many at its start.
};

/// The GPUs of the worker with this slot, of those with these numbers, as its CUDA_VISIBLE_DEVICES:
/// unique ids. Where there are not enough they begin again with the first one. Empty: there is
/// none.
[[nodiscard]] std::string deal_gpus(const std::vector<GpuReport>& gpus,
                                    const std::vector<std::uint32_t>& numbers, GpuShare share,
                                    std::uint32_t slot);

}  // namespace dt
