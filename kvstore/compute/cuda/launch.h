/// Operations on a device: one launch for one tensor or for a table of them. Needs no CUDA headers.
///
/// A launch puts work on the caller's stream and returns. `nonfinite` is memory the device can
/// write to, or null: the count is added to it. What the operation of a tensor is given belongs to
/// it until the stream is past it.
#pragma once

#include <cstdint>
#include <vector>

#include "kvstore/compute/cuda/device.h"
#include "kvstore/compute/cuda/operation.h"

namespace dt::kv::cuda {

/// A tile of a table: which tensor, and which of its tiles.
struct Tile {
  std::uint32_t tensor = 0;
  std::uint32_t tile = 0;
};

/// Tensors that one launch goes over, in device memory: made once, for as long as their arrays stay
/// where they are; the operation's constants may change from launch to launch.
template <class Operation>
class Table {
 public:
  using Tensor = typename Operation::Tensor;

  /// Returns when the table is there. Not while a launch of it is under way.
  Status make(const std::vector<Tensor>& tensors, Stream stream) {
    std::vector<Tile> tiles;
    for (std::uint32_t t = 0; t < tensors.size(); ++t)
      for (std::uint64_t k = 0; k < tiles_of<Operation>(tensors[t]); ++k)
        tiles.push_back({t, static_cast<std::uint32_t>(k)});
    tile_count_ = tiles.size();
    if (const Status s = tensors_.allocate(tensors.size() * sizeof(Tensor)); !s.ok()) return s;
    if (const Status s = tiles_.allocate(tiles.size() * sizeof(Tile)); !s.ok()) return s;
    if (tiles.empty()) return {};
    if (const Status s = copy(tensors_.data(), tensors.data(), tensors_.size(), stream); !s.ok())
      return s;
    if (const Status s = copy(tiles_.data(), tiles.data(), tiles_.size(), stream); !s.ok())
      return s;
    return wait(stream);
  }

  [[nodiscard]] const Tensor* tensors() const { return static_cast<Tensor*>(tensors_.data()); }
  [[nodiscard]] const Tile* tiles() const { return static_cast<Tile*>(tiles_.data()); }
  [[nodiscard]] std::uint64_t tile_count() const { return tile_count_; }

 private:
  DeviceMemory tensors_;
  DeviceMemory tiles_;
  std::uint64_t tile_count_ = 0;
};

/// Those of launch_*.cu; a linker's error names what is missing there.
template <class Operation>
Status launch(const Operation& operation, const typename Operation::Tensor& tensor,
              std::uint64_t* nonfinite, Stream stream);
template <class Operation>
Status launch(const Operation& operation, const Table<Operation>& table, std::uint64_t* nonfinite,
              Stream stream);

}  // namespace dt::kv::cuda
