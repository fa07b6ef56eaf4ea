/// Memory that a worker and the servers of its host both see: the gradient is read where it lies
/// and the result written where it is wanted, nothing is copied through a socket.
///
/// It is an anonymous file (memfd), so it leaves no name behind: it is gone with the last process
/// that has it. The other process opens it through /proc and believes that it is the same memory
/// when it finds the token that came over the authenticated connection; where that fails (another
/// machine, another user, another pid namespace) the connection carries the bytes itself.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "core/base/result.h"
#include "io/fd.h"
#include "kvstore/compute/cuda/device.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

class SharedMemory {
 public:
  /// `size` bytes, zeroed, page-aligned, sealed against shrinking. Pages are taken when they are
  /// touched; with `reserve` now, so that a lack of memory is an error here.
  [[nodiscard]] static Result<std::shared_ptr<SharedMemory>> create(std::size_t size, bool reserve);
  /// Another process's memory; the error says why it is not shared with us.
  [[nodiscard]] static Result<std::shared_ptr<SharedMemory>> open(const data::ShareMemory& told);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Devices copy from and to it by themselves from now on, if that can be had; it is all the same
  /// memory otherwise, and slower. Takes its pages.
  void pin();
  [[nodiscard]] std::span<std::byte> bytes() const { return {begin_, size_}; }
  /// True if [data, data + size) lies inside.
  [[nodiscard]] bool holds(const void* data, std::size_t size) const;
  /// What open() in another process needs; for memory that was created here. `number` is the
  /// creator's own for it.
  [[nodiscard]] data::ShareMemory describe(std::uint32_t number) const;

 private:
  SharedMemory(io::Fd fd, std::byte* begin, std::size_t size);

  io::Fd fd_;  ///< Of memory created here.
  std::byte* begin_;
  std::size_t size_;  ///< Without the token's page behind it.
  cuda::PinnedRegistration pinned_;
};

}  // namespace dt::kv
