/// Device memory that a worker and the servers of its host share by CUDA IPC: a gradient is summed
/// and the value written in place, and neither crosses the bus to the host.
///
/// It begins with a token. The process that opens it compares the token with the one that came over
/// the authenticated connection: if they are equal, it is the announced memory.
///
/// CUDA does not define what happens to memory that is freed while others have it open. So its
/// owner keeps it until all of them have closed it, or their connections have ended.
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

/// This process's memory, for others to open. Any thread, whichever its current device.
class SharedDeviceMemory {
 public:
  /// `size` bytes on device `number`, uninitialised; the error is why they cannot be allocated or
  /// exported.
  [[nodiscard]] static Result<std::unique_ptr<SharedDeviceMemory>> create(int number,
                                                                          std::size_t size);

  /// Aligned to 256 bytes.
  [[nodiscard]] std::byte* begin() const;
  [[nodiscard]] std::size_t size() const { return size_; }
  /// What another process needs to open it. `number` is the owner's number for it.
  [[nodiscard]] data::ShareMemory describe(std::uint32_t number) const;

 private:
  SharedDeviceMemory() = default;
  cuda::Status start(std::size_t size);

  cuda::DeviceMemory memory_;
  cuda::MemoryHandle handle_;
  std::string token_;
  std::size_t size_ = 0;
};

/// A worker's memory, opened for an engine's device.
class OpenedDeviceMemory {
 public:
  /// On the engine's thread; the error is why the memory cannot be opened.
  [[nodiscard]] static Result<std::shared_ptr<OpenedDeviceMemory>> open(
      const data::ShareMemory& told, DeviceEngine& engine);
  /// Closes it. Any thread, once the engine's stream no longer uses it.
  ~OpenedDeviceMemory();
  OpenedDeviceMemory(const OpenedDeviceMemory&) = delete;
  OpenedDeviceMemory& operator=(const OpenedDeviceMemory&) = delete;

  /// Device memory.
  [[nodiscard]] std::span<std::byte> bytes() const;

 private:
  explicit OpenedDeviceMemory(int number) : number_(number) {}

  int number_;
  cuda::IpcMemory memory_;
  std::size_t size_ = 0;
};

}  // namespace dt::kv
