/// Bytes of a frame: taken without being cleared, given back for the next frame of that size.
#pragma once

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace dt::kv {

class Payload {
 public:
  Payload() = default;
  /// Uninitialised.
  explicit Payload(std::size_t size)
      : bytes_(std::make_unique_for_overwrite<std::byte[]>(size)), size_(size) {}
  explicit Payload(std::string_view text) : Payload(text.size()) {
    if (!text.empty()) std::memcpy(bytes_.get(), text.data(), text.size());
  }
  Payload(Payload&& other) noexcept
      : bytes_(std::move(other.bytes_)), size_(std::exchange(other.size_, 0)) {}
  Payload& operator=(Payload&& other) noexcept {
    bytes_ = std::move(other.bytes_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  [[nodiscard]] std::byte* data() { return bytes_.get(); }
  [[nodiscard]] const std::byte* data() const { return bytes_.get(); }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.get()), size_};
  }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_ = 0;
};

/// Large payloads recur in the same few sizes: fresh memory for each costs more in page faults than
/// the sum. One thread.
class PayloadPool {
 public:
  explicit PayloadPool(std::size_t max_bytes = std::size_t{256} << 20) : max_bytes_(max_bytes) {}
  Payload take(std::size_t size) {
    const auto it = spare_.find(size);
    if (it == spare_.end() || it->second.empty()) return Payload(size);
    Payload payload = std::move(it->second.back());
    it->second.pop_back();
    bytes_ -= size;
    return payload;
  }
  void give(Payload payload) {
    if (payload.empty() || bytes_ + payload.size() > max_bytes_) return;
    bytes_ += payload.size();
    spare_[payload.size()].push_back(std::move(payload));
  }

 private:
  std::size_t max_bytes_;
  std::size_t bytes_ = 0;
  std::map<std::size_t, std::vector<Payload>> spare_;
};

}  // namespace dt::kv
