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
/// function(argument) is called once, when what was put on the stream before is done, by a thread
/// of CUDA's, which may call nothing of this folder; what is put there later waits for its return.
/// After a failure of the device it is never called: who waits for it asks for the stream's error.
Status call_back(Stream stream, void (*function)(void*), void* argument);
/// What the device of the calling thread has and has left, in bytes.
Status device_memory(std::size_t& free, std::size_t& total);

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

/// Makes existing memory of the host pinned, for all devices, as long as this lives, which is less
/// long than the memory. It takes about as long as touching the memory's pages.
class PinnedRegistration {
 public:
  PinnedRegistration() = default;
  PinnedRegistration(PinnedRegistration&& other) noexcept { swap(other); }
  PinnedRegistration& operator=(PinnedRegistration&& other) noexcept {
    swap(other);
    return *this;
  }
  ~PinnedRegistration();

  /// Instead of what it had. No page is registered twice.
  Status add(void* data, std::size_t bytes);

 private:
  void swap(PinnedRegistration& other) noexcept;
  void* data_ = nullptr;
};

/// Names an allocation of device memory to another process of the host.
struct MemoryHandle {
  unsigned char bytes[64] = {};
};
/// `memory`, of the calling thread's device, is not freed as long as anybody has it open.
Status export_memory(const DeviceMemory& memory, MemoryHandle& handle);

/// Another process's device memory, as the calling thread's device reaches it: its own, or that of
/// another device which it has peer access to. A process cannot open what it exported itself. What
/// was put on streams about it is done before it is closed.
class ForeignMemory {
 public:
  ForeignMemory() = default;
  ForeignMemory(ForeignMemory&& other) noexcept { swap(other); }
  ForeignMemory& operator=(ForeignMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~ForeignMemory();

  /// Instead of what it had.
  Status open(const MemoryHandle& handle);
  /// The allocation's begin.
  [[nodiscard]] void* data() const { return data_; }
  /// At least the allocation's bytes; 0: the driver does not tell.
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  void swap(ForeignMemory& other) noexcept;
  void* data_ = nullptr;
  std::size_t size_ = 0;
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
  /// Whether it has been passed; the caller does not wait. An event that was never recorded has.
  Status query(bool& is_done) const;
  /// From an earlier event to this one, both of them passed.
  Status milliseconds_since(const Event& earlier, float& milliseconds) const;

 private:
  [[maybe_unused]] CUevent_st* event_ = nullptr;  ///< An emulated device has no use for it.
};

}  // namespace dt::kv::cuda
