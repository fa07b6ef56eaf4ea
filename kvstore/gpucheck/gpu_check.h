/// Tests whether the GPUs of this host work: the driver's health report, a matrix product and a
/// copy on each, and a sum over all of them.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kvstore/compute/cuda/nccl.h"

namespace dt::kv {

/// Exit codes of dtgpucheck.
enum class GpuVerdict : int {
  kWell = 0,
  kUsage = 2,
  kUnwell = 3,   ///< A GPU is missing, computes wrongly, or its driver reports it unhealthy.
  kTimeout = 4,  ///< A part did not end in its time.
  kNoLink = 5,   ///< Each GPU is well, but they cannot exchange arrays.
  kNoGpu = 77,   ///< There is no GPU that this program can use.
};

struct GpuCheckOptions {
  std::vector<int> devices;  ///< CUDA's numbers of the visible GPUs; empty: all.
  std::optional<int> count;  ///< The required number of GPUs.
  std::string nvml;          ///< The driver's library; empty: io::Nvml::open finds it.
  const cuda::NcclFunctions* nccl = nullptr;  ///< Instead of libnccl.so.2.
  int matrix = 2048;                          ///< Rows and columns.
  std::size_t copied_bytes = std::size_t{256} << 20;
  std::size_t ring_elements = std::size_t{1} << 22;
  std::chrono::milliseconds deadline{30'000};  ///< For each part.
};

/// The measurements of a GPU.
struct GpuFigures {
  int device = 0;
  std::string name;
  double teraflops = 0;
  double copy_gb_s = 0;  ///< Bytes read and written.
};

struct GpuFindings {
  GpuVerdict verdict = GpuVerdict::kWell;
  std::string why;  ///< The error, one sentence; empty: all GPUs work.
  std::vector<GpuFigures> gpus{};
  std::optional<double> ring_gb_s{};  ///< Array bytes summed and gathered; none: not measured.
  std::string ring_skipped{};         ///< Why it was not measured.
};

/// Ends at the first error. Calls `begins` with the name of each part: "a matrix product on GPU 1".
/// A call may hang in the driver: to enforce a deadline, run it in a child process.
[[nodiscard]] GpuFindings check_gpus(const GpuCheckOptions& options,
                                     const std::function<void(const std::string&)>& begins);

}  // namespace dt::kv
