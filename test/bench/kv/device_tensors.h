/// A list's tensors in the memory of a CUDA device, and whether there is one.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvstore/compute/cuda/device.h"
#include "kvstore/store.h"
#include "test/bench/kv/options.h"
#include "test/bench/kv/tensor_list.h"

namespace dt::bench {

/// Throws the call's error.
void must(kv::cuda::Status status, const std::string& what);

/// Why a device that the options name cannot be used; empty: all can. A child process checks it,
/// since a process that has used CUDA cannot fork any more.
[[nodiscard]] std::string why_no_devices(const KvOptions& options);

/// Each tensor begins at a multiple of 256 bytes, as a framework's do, and has a mirror in the
/// host's memory, where the tensors follow each other without gaps.
class DeviceTensors {
 public:
  DeviceTensors() = default;
  /// Makes `device` the calling thread's current device. `stream` is on that device and outlives
  /// the tensors. The tensors are zero.
  DeviceTensors(int device, const TensorList& list, kv::cuda::Stream stream);

  [[nodiscard]] std::span<float> mirror() const { return mirror_; }
  /// Copies the mirror to the device, or back. The caller waits.
  void to_device() const { copy_all(true); }
  void to_mirror() const { copy_all(false); }

  /// The tensor's array, with the stream.
  [[nodiscard]] kv::Array array(std::size_t tensor) const;
  /// All tensors, with the gaps between them.
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(memory_.data()); }
  [[nodiscard]] std::size_t bytes() const { return memory_.size(); }

 private:
  struct Tensor {
    std::size_t offset = 0;  ///< In bytes, on the device.
    std::size_t first = 0;   ///< Element of the mirror.
    std::size_t count = 0;
  };
  void copy_all(bool to_device) const;

  int device_ = 0;
  kv::cuda::Stream stream_ = nullptr;
  std::vector<Tensor> tensors_;
  kv::cuda::DeviceMemory memory_;
  kv::cuda::PinnedMemory pinned_;
  std::span<float> mirror_;
};

}  // namespace dt::bench
