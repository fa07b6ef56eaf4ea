/// Device memory that a worker and the servers of its host both reach, by CUDA IPC: a gradient is
/// summed where it lies and its value written there, and neither crosses the bus to the host.
///
/// It begins with a token. Who opens it believes that it is the memory that was spoken of when it
/// finds there what came over the authenticated connection.
///
/// CUDA leaves open what becomes of memory that is freed while others have it open. So its owner
/// keeps it until all of them have closed it, or said nothing any more.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "core/base/result.h"
#include "kvstore/compute/cuda/device.h"
#include "kvstore/compute/device_engine.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

/// Ours, for others to open. Any thread, whichever its device.
class SharedDeviceMemory {
 public:
  /// `size` bytes on device `number`, uninitialised; the error says why they are not to be had, or
  /// not for others.
  [[nodiscard]] static Result<std::unique_ptr<SharedDeviceMemory>> create(int number,
                                                                          std::size_t size);

  /// Aligned to 256 bytes.
  [[nodiscard]] std::byte* begin() const;
  [[nodiscard]] std::size_t size() const { return size_; }
  /// What opening it in another process needs. `number` is the owner's own for it.
  [[nodiscard]] data::ShareMemory describe(std::uint32_t number) const;

 private:
  SharedDeviceMemory() = default;
  cuda::Status start(std::size_t size);

  cuda::DeviceMemory memory_;
  cuda::MemoryHandle handle_;
  std::string token_;
  std::size_t size_ = 0;
};

/// A worker's, as an engine's device reaches it.
class OpenedDeviceMemory {
 public:
  /// By the engine's thread; the error says why it is not shared with us.
  [[nodiscard]] static Result<std::shared_ptr<OpenedDeviceMemory>> open(
      const data::ShareMemory& told, DeviceEngine& engine);
  /// Closes it. Any thread, once the engine's stream is through with it.
  ~OpenedDeviceMemory();
  OpenedDeviceMemory(const OpenedDeviceMemory&) = delete;
  OpenedDeviceMemory& operator=(const OpenedDeviceMemory&) = delete;

  /// The device's.
  [[nodiscard]] std::span<std::byte> bytes() const;

 private:
  explicit OpenedDeviceMemory(int number) : number_(number) {}

  int number_;
  cuda::ForeignMemory memory_;
  std::size_t size_ = 0;
};

}  // namespace dt::kv
