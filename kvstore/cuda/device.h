/// CUDA devices, their memory, streams and events, without CUDA's headers. Calls go to the calling
/// thread's current device. Nothing here is linked to libcuda when a program is loaded: without a
/// driver every call fails with a sentence, and so it does in a build without CUDA (no_device.cpp).
#pragma once

#include <cstddef>
#include <string>

// cudaStream_t and cudaEvent_t.
struct CUstream_st;
struct CUevent_st;

namespace dt::kv::cuda {

using Stream = CUstream_st*;

/// Exit code of programs that need a device where there is none, for which ctest says "skipped".
constexpr int kNoDeviceExit = 77;

/// Null: it went well. Else CUDA's own words, which live for ever.
struct [[nodiscard]] Status {
  const char* error = nullptr;
  [[nodiscard]] bool ok() const { return error == nullptr; }
};

/// "" where device `number` can be used; else one sentence that says why not.
[[nodiscard]] std::string why_no_device(int number = 0);
/// Name, compute capability, memory: "NVIDIA H200, sm_90, 140 GB".
[[nodiscard]] std::string describe_device(int number = 0);

Status use_device(int number);
/// The calling thread's current device.
Status current_device(int& number);
/// Waits for what was put on the stream before.
Status wait(Stream stream);
/// Copies between any two places; the memory stays untouched until the stream is there.
Status copy(void* to, const void* from, std::size_t bytes, Stream stream);
/// Every byte becomes `value`.
Status fill(void* to, int value, std::size_t bytes, Stream stream);

/// Device memory, aligned to 256 bytes at least. Freeing it waits for the device.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceMemory();

  /// Instead of what it had; 0 bytes are none. Its content is not defined.
  Status allocate(std::size_t bytes);
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  void swap(DeviceMemory& other) noexcept;
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Host memory that devices read and write themselves, for all of them. Freeing it waits for them.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(PinnedMemory&& other) noexcept { swap(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~PinnedMemory();

  /// Instead of what it had; 0 bytes are none. Its content is not defined.
  Status allocate(std::size_t bytes);
  [[nodiscard]] void* data() const { return data_; }

 private:
  void swap(PinnedMemory& other) noexcept;
  void* data_ = nullptr;
};

/// A stream of its own, which does not wait for the default one.
class OwnStream {
 public:
  OwnStream() = default;
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream();
  Status create();
  [[nodiscard]] Stream get() const { return stream_; }

 private:
  Stream stream_ = nullptr;
};

/// A point in a stream's work.
class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();
  Status create();
  Status record(Stream stream);
  /// What is put on `stream` from now on waits for the recorded point; the caller does not.
  Status hold_back(Stream stream) const;
  /// The caller waits for it.
  Status wait() const;
  /// From an earlier event to this one, both of them passed.
  Status milliseconds_since(const Event& earlier, float& milliseconds) const;

 private:
  CUevent_st* event_ = nullptr;
};

}  // namespace dt::kv::cuda
