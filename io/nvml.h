/// NVML, the NVIDIA driver's library that tells how GPUs are, opened at run time: nothing of it is
/// needed to build, link or start a program.
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

/// The GPUs of this host. One thread. Each call may take long, or for ever where a GPU is sick:
/// whoever must not wait asks from a process of its own, which can be left alone.
class Nvml {
 public:
  /// kUnavailable: no library, no driver or no GPU, so that there is nothing to watch. Another
  /// kind: there may be GPUs, but the driver does not work. `library`: empty for the driver's own,
  /// or what $NVML_LIBRARY names.
  [[nodiscard]] static Result<std::unique_ptr<Nvml>> open(const std::string& library = {});
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Of all GPUs, in the driver's order; one that was there at first stays in the list.
  [[nodiscard]] std::vector<GpuReport> read();
  /// Until the driver tells of an error (Xid) or the time is over; the next read() counts it. Where
  /// the driver tells of none, sleeps.
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
  void* events_ = nullptr;  ///< Null: the driver tells of none.
};

}  // namespace dt::io
