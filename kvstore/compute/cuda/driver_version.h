/// The NVIDIA driver that a machine has, beside the one that a release of CUDA needs.
#pragma once

#include <cctype>
#include <sstream>
#include <string>

namespace dt::kv::cuda {

/// Why a release of CUDA (13000 is 13.0) finds no driver that it can use. `said`: the first line of
/// /proc/driver/nvidia/version; empty: there is no driver. `needed`: the oldest that it works with.
[[nodiscard]] inline std::string why_no_driver(const std::string& said, int release, int needed) {
  std::istringstream words(said);
  std::string version;
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 ..."
  while (words >> version)
    if (std::isdigit(static_cast<unsigned char>(version.front())) &&
        version.find('.') != version.npos)
      break;
  return (words ? "the NVIDIA driver is " + version : "no NVIDIA driver on this machine") +
         ", CUDA " + std::to_string(release / 1000) + "." + std::to_string(release % 1000 / 10) +
         " needs " + std::to_string(needed) + " or later";
}

}  // namespace dt::kv::cuda
