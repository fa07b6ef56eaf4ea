#include "kvstore/link/ipc_memory.h"

#include <cstring>
#include <utility>

#include "kvstore/compute/cuda/device_guard.h"
#include "kvstore/link/handshake.h"

namespace dt::kv {

namespace {

/// Bytes before begin(): the token, padded so that the rest is aligned.
constexpr std::size_t kHead = 256;
static_assert(data::kNonceBytes <= kHead);
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 46;

}  // namespace

// ---------------------------------------------------------------- the owner's

Result<std::unique_ptr<SharedDeviceMemory>> SharedDeviceMemory::create(int number,
                                                                       std::size_t size) {
  std::unique_ptr<SharedDeviceMemory> made(new SharedDeviceMemory);
  const cuda::DeviceGuard here(number);
  if (const auto status = made->start(size); !status.ok())
    return fail(ErrorKind::kUnavailable, "CUDA device {}: {} bytes for others: {}", number, size,
                status.error);
  return made;
}

cuda::Status SharedDeviceMemory::start(std::size_t size) {
  size_ = size;
  token_ = fresh_nonce();
  cuda::UniqueStream stream;
  auto status = memory_.allocate(kHead + size);
  if (status.ok()) status = cuda::export_memory(memory_, handle_);
  if (status.ok()) status = stream.create();
  if (!status.ok()) return status;
  status = cuda::copy(memory_.data(), token_.data(), token_.size(), stream.get());
  const auto waited = cuda::wait(stream.get());
  return status.ok() ? waited : status;
}

std::byte* SharedDeviceMemory::begin() const {
  return static_cast<std::byte*>(memory_.data()) + kHead;
}

data::ShareMemory SharedDeviceMemory::describe(std::uint32_t number) const {
  return {.number = number,
          .size = size_,
          .token = token_,
          .handle = {reinterpret_cast<const char*>(handle_.bytes), sizeof handle_.bytes}};
}

// ---------------------------------------------------------------- others'

Result<std::shared_ptr<OpenedDeviceMemory>> OpenedDeviceMemory::open(const data::ShareMemory& told,
                                                                     DeviceEngine& engine) {
  cuda::MemoryHandle handle;
  const bool good = told.handle.size() == sizeof handle.bytes && told.size > 0 &&
                    told.size <= kMostBytes && told.token.size() == data::kNonceBytes;
  if (!good) return fail(ErrorKind::kProtocol, "no memory of a device is like that");
  std::memcpy(handle.bytes, told.handle.data(), sizeof handle.bytes);
  std::shared_ptr<OpenedDeviceMemory> opened(new OpenedDeviceMemory(engine.number()));
  if (const auto status = opened->memory_.open(handle); !status.ok())
    return fail(ErrorKind::kUnavailable, "CUDA device {} does not open it: {}", engine.number(),
                status.error);
  const std::size_t there = opened->memory_.size();
  if (there > 0 && there < kHead + told.size)
    return fail(ErrorKind::kDenied, "the device's memory is not of {} bytes", told.size);
  opened->size_ = told.size;
  std::string token(data::kNonceBytes, '\0');
  engine.copy(reinterpret_cast<std::byte*>(token.data()),
              static_cast<const std::byte*>(opened->memory_.data()), token.size());
  engine.wait();
  if (auto why = engine.take_failure(); !why.empty())
    return fail(ErrorKind::kUnavailable, "{}", why);
  if (!same_mac(token, told.token)) return fail(ErrorKind::kDenied, "it is another memory");
  return opened;
}

OpenedDeviceMemory::~OpenedDeviceMemory() {
  const cuda::DeviceGuard here(number_);
  memory_ = cuda::IpcMemory();
}

std::span<std::byte> OpenedDeviceMemory::bytes() const {
  return {static_cast<std::byte*>(memory_.data()) + kHead, size_};
}

}  // namespace dt::kv
