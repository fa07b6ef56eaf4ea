/// The signals by which schedulers say that a host goes away, and where they mean that.
#pragma once

#include <array>
#include <csignal>
#include <cstdlib>

namespace dt::launcher {

inline constexpr std::array<int, 4> kNoticeSignals{SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};

/// This process was started by a scheduler, in an allocation: Slurm's, or Grid Engine's. Over plain
/// ssh into one it was not.
[[nodiscard]] inline bool is_in_allocation() {
  return std::getenv("SLURM_JOB_ID") != nullptr || std::getenv("PE_HOSTFILE") != nullptr;
}

}  // namespace dt::launcher
