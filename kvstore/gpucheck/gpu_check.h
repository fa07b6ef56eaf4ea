/// Whether the GPUs of this host are fit for work: what their driver says of them, a matrix product
/// and a copy on each, and a sum over all of them.
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
  kUnwell = 3,   ///< A GPU is missing, computes wrongly, or its driver says it is unwell.
  kTimeout = 4,  ///< A part did not end in its time.
  kNoLink = 5,   ///< Each GPU is well, but they cannot exchange arrays.
  kNoGpu = 77,   ///< There is none that this program could use.
};

struct GpuCheckOptions {
  std::vector<int> devices;  ///< As CUDA counts those that it sees; empty: all.
  std::optional<int> count;  ///< So many there must be.
  std::string nvml;          ///< The driver's library; empty: as io::Nvml::open finds it.
  const cuda::NcclFunctions* nccl = nullptr;  ///< Instead of libnccl.so.2.
  int matrix = 2048;                          ///< Rows and columns.
  std::size_t copied_bytes = std::size_t{256} << 20;
  std::size_t ring_elements = std::size_t{1} << 22;
  std::chrono::milliseconds deadline{30'000};  ///< Of each part.
};

/// What was measured of a GPU.
struct GpuFigures {
  int device = 0;
  std::string name;
  double teraflops = 0;
  double copy_gb_s = 0;  ///< Bytes read and written.
};

struct GpuFindings {
  GpuVerdict verdict = GpuVerdict::kWell;
  std::string why;  ///< One sentence; empty: all is well.
  std::vector<GpuFigures> gpus;
  std::optional<double> ring_gb_s;  ///< Of the array, there and back; none: not tried.
  std::string ring_skipped;         ///< Why it was not.
};

/// Ends at the first thing that is wrong. `begins` is told each part: "a matrix product on GPU 1".
/// Whoever must not wait for ever watches over it from another process.
[[nodiscard]] GpuFindings check_gpus(const GpuCheckOptions& options,
                                     const std::function<void(const std::string&)>& begins);

}  // namespace dt::kv
