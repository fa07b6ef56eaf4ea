/// Where the bytes of a headerless stream lie: a worker's slices for one server, one after another.
/// Both ends know the list, so a byte's position in the stream identifies it. Pure.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dt::bench {

class Stream {
 public:
  void add(std::size_t offset, std::size_t bytes);
  [[nodiscard]] std::size_t bytes() const { return ends_.empty() ? 0 : ends_.back(); }

  /// Fills `pieces` with the memory from `position` on, at most `most` bytes; `base` is where the
  /// list begins. Returns the number of pieces.
  std::size_t gather(std::byte* base, std::size_t position, std::size_t most,
                     std::span<iovec> pieces) const;

  /// Calls each(offset in the list, bytes) for the slices from `position` on, `bytes` in all.
  template <class Each>
  void for_each(std::size_t position, std::size_t bytes, Each each) const {
    for (std::size_t i = slice_at(position); bytes > 0; ++i) {
      const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
      const std::size_t take = std::min(bytes, ends_[i] - position);
      each(offsets_[i] + (position - begin), take);
      position += take;
      bytes -= take;
    }
  }

 private:
  [[nodiscard]] std::size_t slice_at(std::size_t position) const;

  std::vector<std::size_t> offsets_;  ///< Offsets in the list.
  std::vector<std::size_t> ends_;     ///< Ends in the stream.
};

/// The slices of every server: tensors cut into chunks, placed as the kvstore places them.
[[nodiscard]] std::vector<Stream> streams_of(std::span<const std::uint64_t> elements,
                                             std::uint32_t servers, std::uint64_t chunk_bytes);

}  // namespace dt::bench
