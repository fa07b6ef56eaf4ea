#include "test/bench/kv/stream.h"

#include <algorithm>

#include "kvstore/protocol/layout.h"

namespace dt::bench {

void Stream::add(std::size_t offset, std::size_t bytes) {
  if (bytes == 0) return;
  const std::size_t end = this->bytes() + bytes;
  const bool goes_on =
      !ends_.empty() &&
      offsets_.back() + (ends_.back() - (ends_.size() > 1 ? ends_[ends_.size() - 2] : 0)) == offset;
  if (goes_on) {
    ends_.back() = end;
    return;
  }
  offsets_.push_back(offset);
  ends_.push_back(end);
}

std::size_t Stream::slice_at(std::size_t position) const {
  return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), position) -
                                  ends_.begin());
}

std::size_t Stream::gather(std::byte* base, std::size_t position, std::size_t most,
                           std::span<iovec> pieces) const {
  std::size_t count = 0;
  most = std::min(most, bytes() - position);
  for (std::size_t i = slice_at(position); most > 0 && count < pieces.size(); ++i) {
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    const std::size_t take = std::min(most, ends_[i] - position);
    pieces[count].iov_base = base + offsets_[i] + (position - begin);
    pieces[count].iov_len = take;
    ++count;
    position += take;
    most -= take;
  }
  return count;
}

std::vector<Stream> streams_of(std::span<const std::uint64_t> elements, std::uint32_t servers,
                               std::uint64_t chunk_bytes) {
  Layout layout(std::vector<std::uint32_t>(servers, 1), chunk_bytes);
  std::vector<Stream> streams(servers);
  std::size_t offset = 0;
  for (const std::uint64_t count : elements) {
    for (const auto& place : layout.add_key(count, sizeof(float)))
      streams[place.owner.server].add(offset + place.first * sizeof(float),
                                      place.count * sizeof(float));
    offset += count * sizeof(float);
  }
  return streams;
}

}  // namespace dt::bench
