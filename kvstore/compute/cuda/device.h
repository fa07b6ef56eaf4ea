/// CUDA devices, their memory, streams and events, without CUDA's headers. Calls go to the calling
/// thread's current device. Nothing here is linked to libcuda when a program is loaded: without a
/// driver every call fails with an error text, as in a build without CUDA (no_device.cpp).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

// cudaStream_t and cudaEvent_t.
struct CUstream_st;
struct CUevent_st;

namespace dt::kv::cuda {

using Stream = CUstream_st*;

/// Exit code of programs that need a device if there is none; ctest reports it as "skipped".
constexpr int kNoDeviceExit = 77;

/// Null: success. Else CUDA's error text, which is static.
struct [[nodiscard]] Status {
  const char* error = nullptr;
  [[nodiscard]] bool ok() const { return error == nullptr; }
};

/// "" if device `number` can be used; else one sentence with the reason.
[[nodiscard]] std::string why_no_device(int number = 0);
/// Name, compute capability, memory: "NVIDIA H200, sm_90, 140 GB".
[[nodiscard]] std::string describe_device(int number = 0);

/// The thread's calls go there from now on.
Status use_device(int number);
/// The calling thread's current device.
Status current_device(int& number);
/// Whether this process has a context on the device: some hundred MB of its memory, and
/// use_device() makes one.
[[nodiscard]] bool has_context(int number);
/// Waits for the work that is on the stream.
Status wait(Stream stream);
/// Copies between any two places; leave the memory unchanged until the stream has passed the copy.
Status copy(void* to, const void* from, std::size_t bytes, Stream stream);
/// Every byte becomes `value`.
Status fill(void* to, int value, std::size_t bytes, Stream stream);
/// Calls function(argument) once, when the work now on the stream is done, on one of CUDA's
/// threads, which may not call functions of this folder; later work on the stream waits for its
/// return. After a failure of the device it is never called: a caller that waits for it must query
/// the stream.
Status add_callback(Stream stream, void (*function)(void*), void* argument);
/// Free and total memory of the calling thread's device, in bytes.
Status device_memory(std::size_t& free, std::size_t& total);

/// Memory, and what ends the hold on it.
using OwnedMemory = std::unique_ptr<void, void (*)(void*)>;

/// Device memory, aligned to 256 bytes at least. Freeing it waits for the device.
class DeviceMemory {
 public:
  /// Instead of what it had; 0 bytes are none. Its content is not defined.
  Status allocate(std::size_t bytes);
  [[nodiscard]] void* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return data_ ? size_ : 0; }

 private:
  OwnedMemory data_{nullptr, nullptr};
  std::size_t size_ = 0;
};

/// Host memory that devices read and write themselves, for all of them. Freeing it waits for them.
class PinnedMemory {
 public:
  /// Instead of what it had; 0 bytes are none. Its content is not defined.
  Status allocate(std::size_t bytes);
  [[nodiscard]] void* data() const { return data_.get(); }

 private:
  OwnedMemory data_{nullptr, nullptr};
};

/// Keeps existing host memory pinned for all devices while this object lives; the memory must
/// outlive it. Pinning takes about as long as touching the memory's pages.
class PinnedRegistration {
 public:
  /// Replaces the registration. No page may be registered twice.
  Status add(void* data, std::size_t bytes);

 private:
  OwnedMemory data_{nullptr, nullptr};
};

/// Names an allocation of device memory to another process of the host.
struct MemoryHandle {
  unsigned char bytes[64] = {};
};
/// `memory` is on the calling thread's device. Do not free it while another process has it open.
Status export_memory(const DeviceMemory& memory, MemoryHandle& handle);

/// Another process's device memory, opened for the calling thread's device: on that device, or on
/// another one to which it has peer access. A process cannot open memory that it exported itself.
/// Close it only when work on streams no longer uses it.
class IpcMemory {
 public:
  /// Closes the memory that was open before.
  Status open(const MemoryHandle& handle);
  /// The allocation's begin.
  [[nodiscard]] void* data() const { return data_.get(); }
  /// At least the allocation's bytes; 0: the driver does not report them.
  [[nodiscard]] std::size_t size() const { return data_ ? size_ : 0; }

 private:
  OwnedMemory data_{nullptr, nullptr};
  std::size_t size_ = 0;
};

/// Owns a stream that does not synchronise with the default stream.
class UniqueStream {
 public:
  UniqueStream() = default;
  UniqueStream(const UniqueStream&) = delete;
  UniqueStream& operator=(const UniqueStream&) = delete;
  ~UniqueStream();
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
  /// Makes `stream` wait for the recorded point; the caller does not wait.
  Status make_wait(Stream stream) const;
  /// The caller waits for it.
  Status wait() const;
  /// Whether it has passed; the caller does not wait. True for an event that was never recorded.
  Status query(bool& is_done) const;
  /// From an earlier event to this one; both must have passed.
  Status milliseconds_since(const Event& earlier, float& milliseconds) const;

 private:
  [[maybe_unused]] CUevent_st* event_ = nullptr;  ///< Unused by an emulated device.
};

}  // namespace dt::kv::cuda
