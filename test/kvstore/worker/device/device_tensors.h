/// Arrays on emulated devices, and a caller's stream that can be stopped.
#pragma once

#include <cstring>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kvstore/compute/cuda/device.h"
#include "test/kvstore/cluster.h"
#include "test/support/catch.h"
#include "test/support/emulated_device/emulated_device.h"
#include "test/support/emulated_device/put.h"

namespace dt::test {

/// A new emulated machine for each test, checked for leaks at its end.
struct Fresh {
  explicit Fresh(int devices = 1) { emulated::restart(devices); }
  ~Fresh() {
    const auto left = emulated::leaks();
    if (!left.empty()) FAIL_CHECK(left);
  }
};

inline void must(kv::cuda::Status status) {
  if (!status.ok()) throw std::runtime_error(status.error);
}

/// A caller's stream, which can be stopped: work put on it while it is closed waits.
class CallersStream {
 public:
  CallersStream() { must(stream_.create()); }
  ~CallersStream() { open(); }
  [[nodiscard]] kv::cuda::Stream get() const { return stream_.get(); }
  void close() { open_ = emulated::hold(stream_.get()); }
  void open() {
    if (!open_) return;
    std::exchange(open_, nullptr)();
    (void)kv::cuda::wait(stream_.get());
  }

 private:
  kv::cuda::UniqueStream stream_;
  std::function<void()> open_;
};

/// An array on a device, written and read on the caller's stream, without waiting.
class Tensor {
 public:
  Tensor(std::size_t count, kv::cuda::Stream stream, int device = 0)
      : count_(count), stream_(stream), device_(device) {
    must(kv::cuda::use_device(device));
    must(memory_.allocate(bytes()));
    must(kv::cuda::use_device(0));
    must(pinned_.allocate(bytes()));
  }
  [[nodiscard]] kv::Array array() const {
    return {memory_.data(),
            count_,
            data::Dtype::kFloat32,
            {kv::cuda::Place::Kind::kDevice, device_},
            stream_};
  }
  /// `values` must have the array's size.
  template <class T>
  void put(const std::vector<T>& values) {
    must(kv::cuda::wait(stream_));  // the pinned memory is free again
    if (!values.empty()) std::memcpy(pinned_.data(), values.data(), bytes());
    must(kv::cuda::copy(memory_.data(), pinned_.data(), bytes(), stream_));
  }
  /// The values that a read put on the stream now returns.
  template <class T = float>
  [[nodiscard]] std::vector<T> get() const {
    must(kv::cuda::copy(pinned_.data(), memory_.data(), bytes(), stream_));
    must(kv::cuda::wait(stream_));
    const auto* values = static_cast<const T*>(pinned_.data());
    return {values, values + bytes() / sizeof(T)};
  }
  /// The memory as it is.
  [[nodiscard]] float now(std::size_t i) const { return static_cast<float*>(memory_.data())[i]; }
  [[nodiscard]] kv::Array pinned() const {
    return {pinned_.data(),
            count_,
            data::Dtype::kFloat32,
            {kv::cuda::Place::Kind::kPinned, 0},
            stream_};
  }

 private:
  [[nodiscard]] std::size_t bytes() const { return count_ * sizeof(float); }
  std::size_t count_;
  kv::cuda::Stream stream_;
  int device_;
  kv::cuda::DeviceMemory memory_;
  kv::cuda::PinnedMemory pinned_;
};

inline std::vector<float> gradient_of(std::size_t n, std::uint32_t worker, std::uint64_t round) {
  std::mt19937 engine(static_cast<unsigned>(round * 10 + worker));
  std::normal_distribution<float> normal(0, 0.6F);
  std::vector<float> out(n);
  for (auto& v : out) v = normal(engine);
  return out;
}

inline bool says(const kv::Status& status, kv::Code code, const std::string& words) {
  INFO((status ? "it went well" : status.error().message));
  const bool fits = !status && status.error().code == code &&
                    status.error().message.find(words) != std::string::npos;
  CHECK(fits);
  return fits;
}
inline kv::Status status_of(const kv::StoreResult<kv::Handle>& started) {
  return started ? kv::Status() : kv::Status(tl::unexpected(started.error()));
}

}  // namespace dt::test
