/// Memory with its place, and copies between any two places in the order of the caller's streams.
/// Nothing here waits for a whole device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kvstore/compute/cuda/device.h"

namespace dt::kv::cuda {

struct Place {
  enum class Kind : std::uint8_t {
    kHost,    ///< ordinary memory
    kPinned,  ///< host memory that devices can access
    kDevice,
  };
  Kind kind = Kind::kHost;
  int device = 0;  ///< the device's number for kDevice; else 0
};
inline bool operator==(Place a, Place b) { return a.kind == b.kind && a.device == b.device; }
inline bool operator!=(Place a, Place b) { return !(a == b); }

/// "host", "pinned", "cuda:1".
[[nodiscard]] std::string to_string(Place place);

/// A caller's memory. Work that is on `stream` at the call may still be writing it; null if no work
/// is, and for host memory that only the host writes.
struct Area {
  void* data = nullptr;
  std::size_t bytes = 0;
  Place place;
  Stream stream = nullptr;
};

/// Memory at a place, aligned to 64 bytes at least.
class Buffer {
 public:
  /// Replaces the memory, which is kept if this fails. The content is undefined. The calling
  /// thread's current device is the same afterwards.
  Status allocate(Place place, std::size_t bytes);
  [[nodiscard]] Area area(Stream stream = nullptr) const;

 private:
  struct FreeHost {
    void operator()(void* data) const;
  };
  Place place_;
  std::size_t bytes_ = 0;
  std::unique_ptr<void, FreeHost> host_;
  PinnedMemory pinned_;
  DeviceMemory device_;
};

/// One copy at a time, on the stream that start() gets, which is on the current device.
class Transfer {
 public:
  Transfer() = default;

  /// to = from, after the work that is on both areas' streams now. Leave both memories unchanged
  /// until it is done. Between ordinary memories the caller's thread copies at once, without CUDA.
  /// Not while an earlier copy is under way.
  Status start(const Area& to, const Area& from, Stream own);
  /// Makes `stream` wait for the copy; the caller does not wait.
  Status make_wait(Stream stream) const;
  /// The caller waits for the copy.
  Status wait() const;

 private:
  /// Makes `own` wait for what is on the area's stream now.
  Status after(const Area& area, Stream own);

  std::unique_ptr<Event> before_;
  std::unique_ptr<Event> done_;
  bool is_under_way_ = false;
};

}  // namespace dt::kv::cuda
