/// NVML, the NVIDIA driver's library that reports the state of GPUs. It is opened at run time: no
/// program needs it to build, link or start.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/protocol/control_messages.h"

namespace dt::io {

/// Names another file than libnvidia-ml.so.1.
inline constexpr const char* kNvmlVariable = "NVML_LIBRARY";

/// The GPUs of this host. One thread. Each call may take long, or never return if a GPU is broken:
/// a caller that must not block runs it in a separate process.
class Nvml {
 public:
  /// kUnavailable: no library, driver or GPU, so there is nothing to watch. Another kind: there may
  /// be GPUs, but the driver does not work. `library`: a path; if empty, the one in $NVML_LIBRARY,
  /// else the driver's.
  [[nodiscard]] static Result<std::unique_ptr<Nvml>> open(const std::string& library = {});
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Reports of all GPUs, in the driver's order; a GPU that was there at the start stays listed.
  [[nodiscard]] std::vector<GpuReport> read();
  /// Waits until the driver reports an error (Xid), which the next read() counts, or until `limit`
  /// is over. If the driver reports no errors, sleeps.
  void wait(std::chrono::milliseconds limit);

 private:
  struct Library;
  struct Gpu;
  explicit Nvml(std::unique_ptr<Library> library);
  [[nodiscard]] Result<void> find_gpus();
  void identify(Gpu& gpu);
  void ask_of_errors();

  std::unique_ptr<Library> library_;
  std::vector<Gpu> gpus_;
  void* events_ = nullptr;  ///< Null if the driver reports no errors.
};

}  // namespace dt::io
