/// Memory that says where it is, and copies between any two places that keep to the order of the
/// caller's streams. Nothing here waits for a whole device.
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
    kPinned,  ///< of the host, and devices reach it
    kDevice,
  };
  Kind kind = Kind::kHost;
  int device = 0;  ///< of kDevice; else 0
};
inline bool operator==(Place a, Place b) { return a.kind == b.kind && a.device == b.device; }
inline bool operator!=(Place a, Place b) { return !(a == b); }

/// "host", "pinned", "cuda:1".
[[nodiscard]] std::string to_string(Place place);

/// Somebody's memory. What was put on `stream` before it is handed over may still be writing it;
/// null where nothing is, and for memory of the host that only the host writes.
struct Area {
  void* data = nullptr;
  std::size_t bytes = 0;
  Place place;
  Stream stream = nullptr;
};

/// Memory at a place, aligned to 64 bytes at least.
class Buffer {
 public:
  /// Instead of what it had; it keeps that if this fails. The content is not defined. The calling
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

/// One copy at a time, on a stream that the caller of start gives, of the current device.
class Transfer {
 public:
  Transfer() = default;

  /// to = from, after what is on both areas' streams now. Both memories stay untouched until it is
  /// done. Between ordinary memories it is done at once, by the caller, without CUDA. Not while an
  /// earlier one is under way.
  Status start(const Area& to, const Area& from, Stream own);
  /// What is put on `stream` from now on comes after the copy; the caller goes on.
  Status hold_back(Stream stream) const;
  /// The caller waits for the copy.
  Status wait() const;

 private:
  /// `own` comes after what is on the area's stream now.
  Status after(const Area& area, Stream own);

  std::unique_ptr<Event> before_;
  std::unique_ptr<Event> done_;
  bool is_under_way_ = false;
};

}  // namespace dt::kv::cuda
