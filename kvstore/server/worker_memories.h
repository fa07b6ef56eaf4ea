/// The memories that a worker shares with a loop of its host: opened when the worker announces
/// them, and looked up for each frame that names a place in them.
///
/// The loop's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "core/base/result.h"
#include "kvstore/compute/device_engine.h"
#include "kvstore/protocol/messages.h"
#include "kvstore/server/chunk_value.h"

namespace dt::kv {

class WorkerMemories {
 public:
  /// `device`: the loop's device; null: the loop computes on the host.
  WorkerMemories(WorkerId worker, std::shared_ptr<DeviceEngine> device)
      : worker_(worker), device_(std::move(device)) {}

  /// Opens host or device memory, whose token proves that it is the worker's.
  Result<void> open(const data::ShareMemory& told);
  /// A place that is still in use keeps the memory open until it is released.
  void forget(std::uint32_t number) { memories_.erase(number); }
  void clear() { memories_.clear(); }

  /// The places that a frame names for a chunk of `size` bytes, all within the memory. Places on a
  /// device are for chunks that it computes. `has_values`: the frame has a gradient. Error:
  /// kProtocol.
  [[nodiscard]] Result<SharedBuffers> find(const data::SharedPlaces& where, std::size_t size,
                                           bool is_on_device, bool has_values) const;

 private:
  struct Memory {
    std::span<std::byte> bytes;
    bool is_on_device = false;
    std::shared_ptr<const void> owner;  ///< Null: there is none.
  };
  [[nodiscard]] Result<Memory> opened(const data::ShareMemory& told) const;
  [[nodiscard]] Result<Memory> place(std::uint32_t number, std::uint64_t offset, std::size_t size,
                                     bool is_on_device) const;

  WorkerId worker_;
  std::shared_ptr<DeviceEngine> device_;
  std::map<std::uint32_t, Memory> memories_;
};

}  // namespace dt::kv
