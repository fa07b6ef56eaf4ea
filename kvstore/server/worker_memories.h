/// The memories that a worker shares with a loop of its host: opened when the loop is told of them,
/// and looked up for each frame that names a place in them.
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
  /// `device`: what the loop computes on; null: its host.
  WorkerMemories(WorkerId worker, std::shared_ptr<DeviceEngine> device)
      : worker_(worker), device_(std::move(device)) {}

  /// A memory of the host or of a device, whose token proves that it is the worker's.
  Result<void> open(const data::ShareMemory& told);
  /// Who uses a place in it still has it until then.
  void forget(std::uint32_t number) { memories_.erase(number); }
  void clear() { memories_.clear(); }

  /// The places that a frame names for a chunk of `size` bytes, which has to lie inside. Those on a
  /// device are for chunks that it computes. `has_values`: the frame brings some. kProtocol.
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
