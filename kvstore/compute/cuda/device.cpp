#include "kvstore/compute/cuda/device.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "kvstore/compute/cuda/driver_version.h"

namespace dt::kv::cuda {

namespace {

Status status_of(cudaError_t error) {
  if (error == cudaSuccess) return {};
  cudaGetLastError();  // clears the error, which is reported once
  return {cudaGetErrorString(error)};
}

/// Null: there is none. Nothing is linked to libcuda, but CUDA's runtime knows its functions.
template <class Function>
Function driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult how{};
#if CUDART_VERSION >= 12050
  const Status status =
      status_of(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &how));
#else
  const Status status = status_of(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &how));
#endif
  const bool is_there = status.ok() && how == cudaDriverEntryPointSuccess;
  return is_there ? reinterpret_cast<Function>(found) : nullptr;
}

}  // namespace

std::string why_no_device(int number) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    std::ifstream file("/proc/driver/nvidia/version");
    std::string said;
    std::getline(file, said);
    return "no CUDA device: " + why_no_driver(said, CUDART_VERSION, DT_NVIDIA_DRIVER);
  }
  if (error != cudaSuccess) return std::string("no CUDA device: ") + status_of(error).error;
  if (count == 0) return "no CUDA device on this machine";
  if (number < 0 || number >= count)
    return "no CUDA device " + std::to_string(number) + ": this machine has " +
           std::to_string(count);
  cudaDeviceProp properties{};
  if (const auto asked = cudaGetDeviceProperties(&properties, number); asked != cudaSuccess)
    return std::string("no CUDA device: ") + status_of(asked).error;
  if (properties.major < 8)
    return "no CUDA device: " + std::string(properties.name) + " is older than sm_80";
  return {};
}

std::string describe_device(int number) {
  cudaDeviceProp properties{};
  if (const auto error = cudaGetDeviceProperties(&properties, number); error != cudaSuccess)
    return status_of(error).error;
  return std::string(properties.name) + ", sm_" + std::to_string(properties.major) +
         std::to_string(properties.minor) + ", " +
         std::to_string(properties.totalGlobalMem / 1'000'000'000) + " GB";
}

Status use_device(int number) { return status_of(cudaSetDevice(number)); }
Status current_device(int& number) { return status_of(cudaGetDevice(&number)); }
bool has_context(int number) {
  static const auto state =
      driver_function<PFN_cuDevicePrimaryCtxGetState_v7000>("cuDevicePrimaryCtxGetState");
  unsigned flags = 0;
  int is_active = 0;
  return state && state(number, &flags, &is_active) == CUDA_SUCCESS && is_active != 0;
}
Status wait(Stream stream) { return status_of(cudaStreamSynchronize(stream)); }
Status copy(void* to, const void* from, std::size_t bytes, Stream stream) {
  return status_of(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}
Status fill(void* to, int value, std::size_t bytes, Stream stream) {
  return status_of(cudaMemsetAsync(to, value, bytes, stream));
}
Status add_callback(Stream stream, void (*function)(void*), void* argument) {
  return status_of(cudaLaunchHostFunc(stream, function, argument));
}
Status device_memory(std::size_t& free, std::size_t& total) {
  return status_of(cudaMemGetInfo(&free, &total));
}

Status DeviceMemory::allocate(std::size_t bytes) {
  void* fresh = nullptr;
  const Status status = bytes > 0 ? status_of(cudaMalloc(&fresh, bytes)) : Status{};
  if (!status.ok()) return status;
  data_ = {fresh, [](void* data) { cudaFree(data); }};
  size_ = bytes;
  return {};
}

Status PinnedMemory::allocate(std::size_t bytes) {
  void* fresh = nullptr;
  const Status status =
      bytes > 0 ? status_of(cudaHostAlloc(&fresh, bytes, cudaHostAllocPortable)) : Status{};
  if (status.ok()) data_ = {fresh, [](void* data) { cudaFreeHost(data); }};
  return status;
}

Status PinnedRegistration::add(void* data, std::size_t bytes) {
  const Status status =
      bytes > 0 ? status_of(cudaHostRegister(data, bytes, cudaHostRegisterPortable)) : Status{};
  if (status.ok()) data_ = {bytes > 0 ? data : nullptr, [](void* old) { cudaHostUnregister(old); }};
  return status;
}

static_assert(sizeof(MemoryHandle) == sizeof(cudaIpcMemHandle_t));

Status export_memory(const DeviceMemory& memory, MemoryHandle& handle) {
  cudaIpcMemHandle_t exported{};
  const Status status = status_of(cudaIpcGetMemHandle(&exported, memory.data()));
  if (status.ok()) std::memcpy(handle.bytes, &exported, sizeof exported);
  return status;
}

namespace {

/// Bytes of the allocation from `data` on; 0: the driver does not report them.
std::size_t bytes_from(void* data) {
  const auto range = driver_function<PFN_cuMemGetAddressRange_v3020>("cuMemGetAddressRange");
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  CUdeviceptr begin = 0;
  std::size_t size = 0;
  if (!range || range(&begin, &size, address) != CUDA_SUCCESS || address < begin) return 0;
  return size - std::min<std::size_t>(size, address - begin);
}

}  // namespace

Status IpcMemory::open(const MemoryHandle& handle) {
  cudaIpcMemHandle_t told{};
  std::memcpy(&told, handle.bytes, sizeof told);
  void* fresh = nullptr;
  const Status status =
      status_of(cudaIpcOpenMemHandle(&fresh, told, cudaIpcMemLazyEnablePeerAccess));
  if (!status.ok()) return status;
  data_ = {fresh, [](void* data) { cudaIpcCloseMemHandle(data); }};
  size_ = bytes_from(fresh);
  return {};
}

UniqueStream::~UniqueStream() {
  if (stream_) cudaStreamDestroy(stream_);
}
Status UniqueStream::create() {
  return status_of(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

Event::~Event() {
  if (event_) cudaEventDestroy(event_);
}
Status Event::create() { return status_of(cudaEventCreate(&event_)); }
Status Event::record(Stream stream) { return status_of(cudaEventRecord(event_, stream)); }
Status Event::make_wait(Stream stream) const {
  return status_of(cudaStreamWaitEvent(stream, event_, 0));
}
Status Event::wait() const { return status_of(cudaEventSynchronize(event_)); }
Status Event::query(bool& is_done) const {
  const cudaError_t error = cudaEventQuery(event_);
  is_done = error != cudaErrorNotReady;
  return error == cudaErrorNotReady ? Status{} : status_of(error);
}
Status Event::milliseconds_since(const Event& earlier, float& milliseconds) const {
  return status_of(cudaEventElapsedTime(&milliseconds, earlier.event_, event_));
}

}  // namespace dt::kv::cuda
