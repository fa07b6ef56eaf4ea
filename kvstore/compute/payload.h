/// A frame's bytes: allocated without being cleared, and reused for the next frame of that size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "kvstore/compute/cuda/device.h"

namespace dt::kv {

/// The kind of memory.
enum class Memory : std::uint8_t {
  kHost,
  kPinned,  ///< Host memory that devices copy by themselves.
  kDevice,  ///< Memory of the thread's device at allocation. The host may not touch it.
};

class Payload {
 public:
  Payload() = default;
  /// Uninitialised.
  explicit Payload(std::size_t size)
      : bytes_(std::make_unique_for_overwrite<std::byte[]>(size)),
        begin_(bytes_.get()),
        size_(size) {}
  explicit Payload(std::string_view text) : Payload(text.size()) {
    if (!text.empty()) std::memcpy(bytes_.get(), text.data(), text.size());
  }
  /// Uninitialised. If no more memory can be pinned it is ordinary memory; if the device has no
  /// more, it is empty.
  Payload(std::size_t size, Memory memory) {
    if (memory != Memory::kHost) elsewhere_ = Elsewhere::of(memory, size);
    if (elsewhere_)
      begin_ = static_cast<std::byte*>(elsewhere_->data());
    else if (memory != Memory::kDevice)
      *this = Payload(size);
    if (begin_) size_ = size;
  }
  Payload(Payload&& other) noexcept { *this = std::move(other); }
  Payload& operator=(Payload&& other) noexcept {
    bytes_ = std::move(other.bytes_);
    elsewhere_ = std::move(other.elsewhere_);
    begin_ = std::exchange(other.begin_, nullptr);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  [[nodiscard]] std::byte* data() { return begin_; }
  [[nodiscard]] const std::byte* data() const { return begin_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::string_view text() const {
    return {reinterpret_cast<const char*>(begin_), size_};
  }
  [[nodiscard]] Memory memory() const {
    if (!elsewhere_) return Memory::kHost;
    return elsewhere_->device.data() ? Memory::kDevice : Memory::kPinned;
  }

 private:
  /// Allocated apart, to keep Payload small: small messages' payloads are moved by the thousand.
  struct Elsewhere {
    cuda::PinnedMemory pinned;  // one of the two
    cuda::DeviceMemory device;

    /// Null: the allocation failed.
    static std::unique_ptr<Elsewhere> of(Memory memory, std::size_t size) {
      auto made = std::make_unique<Elsewhere>();
      const auto status =
          memory == Memory::kPinned ? made->pinned.allocate(size) : made->device.allocate(size);
      return status.ok() ? std::move(made) : nullptr;
    }
    [[nodiscard]] void* data() const { return device.data() ? device.data() : pinned.data(); }
  };

  std::unique_ptr<std::byte[]> bytes_;    ///< The memory if it is kHost.
  std::unique_ptr<Elsewhere> elsewhere_;  ///< The memory of the other kinds.
  std::byte* begin_ = nullptr;
  std::size_t size_ = 0;
};

/// Large payloads recur in the same few sizes: fresh memory for each costs more in page faults than
/// the sum, and a device stands still while its memory is freed. One thread.
class PayloadPool {
 public:
  explicit PayloadPool(Memory memory = Memory::kHost,
                       std::size_t max_bytes = std::size_t{256} << 20)
      : memory_(memory), max_bytes_(max_bytes) {}
  Payload take(std::size_t size) {
    const auto it = spare_.find(size);
    if (it == spare_.end() || it->second.empty()) return fresh(size);
    Payload payload = std::move(it->second.back());
    it->second.pop_back();
    bytes_ -= size;
    return payload;
  }
  void give(Payload payload) {
    if (payload.empty() || bytes_ + payload.size() > max_bytes_ || payload.memory() != memory_)
      return;
    bytes_ += payload.size();
    spare_[payload.size()].push_back(std::move(payload));
  }

 private:
  Payload fresh(std::size_t size) {
    Payload payload(size, memory_);
    if (payload.size() == size || bytes_ == 0) return payload;
    spare_.clear();  // spare memory of other sizes makes room for this one
    bytes_ = 0;
    return {size, memory_};
  }

  Memory memory_;
  std::size_t max_bytes_;
  std::size_t bytes_ = 0;
  std::map<std::size_t, std::vector<Payload>> spare_;
};

/// The payload; returned to the pool, if that still exists, when the last reference to it ends.
[[nodiscard]] inline std::shared_ptr<Payload> share(Payload payload,
                                                    const std::shared_ptr<PayloadPool>& pool) {
  auto back_to_pool = [pool = std::weak_ptr(pool)](Payload* shared) {
    const std::unique_ptr<Payload> owner(shared);
    if (const auto alive = pool.lock()) alive->give(std::move(*shared));
  };
  return {std::make_unique<Payload>(std::move(payload)).release(), std::move(back_to_pool)};
}

}  // namespace dt::kv
