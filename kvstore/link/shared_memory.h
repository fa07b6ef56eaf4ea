/// Memory that a worker and the servers of its host share: a server reads the gradient and writes
/// the result in place; no bytes are copied through a socket.
///
/// It is an anonymous file (memfd) without a name: the kernel frees it with the last process that
/// maps it. The other process opens it through /proc and compares its token with the one that came
/// over the authenticated connection. If that fails (another machine, user or pid namespace), the
/// connection carries the bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "core/base/result.h"
#include "io/fd.h"
#include "kvstore/compute/cuda/device.h"
#include "kvstore/link/forks.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

class SharedMemory {
 public:
  /// `size` bytes, zeroed, page-aligned, sealed against shrinking. The kernel assigns pages when
  /// they are touched; with `reserve` at once, so that a lack of memory is an error here.
  [[nodiscard]] static Result<std::shared_ptr<SharedMemory>> create(std::size_t size, bool reserve);
  /// The same for this process and those it forks: it needs no descriptor, and nobody opens it.
  [[nodiscard]] static Result<std::shared_ptr<SharedMemory>> anonymous(std::size_t size);
  /// Another process's memory; the error is why it cannot be opened.
  [[nodiscard]] static Result<std::shared_ptr<SharedMemory>> open(const data::ShareMemory& told);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Registers it with CUDA, so that devices copy from and to it by themselves; if that fails,
  /// copies work as before and are slower. Makes all pages resident.
  void pin();
  [[nodiscard]] std::span<std::byte> bytes() const { return {begin_, size_}; }
  /// Gives the whole pages in this part back to the system; they are zero afterwards, in all
  /// processes that map them.
  void discard(std::uint64_t offset, std::uint64_t size);
  /// True if [data, data + size) lies inside.
  [[nodiscard]] bool holds(const void* data, std::size_t size) const;
  /// What open() in another process needs; for memory from create(). `number` is the creator's
  /// number for it.
  [[nodiscard]] data::ShareMemory describe(std::uint32_t number) const;

 private:
  SharedMemory(io::Fd fd, std::byte* begin, std::size_t size);

  io::Fd fd_;  ///< Only memory from create() has one.
  std::optional<ClosedInChild> closed_in_child_;
  std::byte* begin_;
  std::size_t size_;  ///< Without the token's page after it.
  cuda::PinnedRegistration pinned_;
};

}  // namespace dt::kv
