/// The signals by which schedulers say that a host goes away, and where they mean that.
#pragma once

#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

namespace dt::io {

inline constexpr std::array<int, 4> kNoticeSignals{SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};

/// This process was started by a scheduler, in an allocation: Slurm's, or Grid Engine's. Over plain
/// ssh into one it was not.
[[nodiscard]] inline bool is_in_allocation() {
  return std::getenv("SLURM_JOB_ID") != nullptr || std::getenv("PE_HOSTFILE") != nullptr;
}

/// This process is in a pod whose first process is `dtagent --pod`, which hands a kubelet's signal
/// on.
[[nodiscard]] inline bool is_in_pod() {
  std::ifstream first("/proc/1/cmdline");
  std::string words;
  std::getline(first, words);
  return words.ends_with(std::string_view("dtagent\0--pod\0", 14));
}

/// Grid Engine's alone, which sends its signals to each process of a task.
[[nodiscard]] inline bool is_in_sge_job() { return std::getenv("PE_HOSTFILE") != nullptr; }

/// Of the others of a job in an allocation, before they start or as they begin: Grid Engine sends
/// its notices to each process of the job's script, and most programs would die of them. TERM stays
/// an order. Allowed between fork and exec.
inline void ignore_notices() {
  for (const int number : {SIGUSR1, SIGUSR2, SIGXCPU}) ::signal(number, SIG_IGN);
}

}  // namespace dt::io
