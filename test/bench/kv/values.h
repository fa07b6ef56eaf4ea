/// The workers' values, with which every element of a result can be checked: small whole numbers
/// that differ by worker, round and position, and whose sums are exact in float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace dt::bench {

/// The value at `position` in round `round`; worker r pushes (r + 1) times this. 251 is prime, so
/// that a value at a chunk's distance from its place is detected.
[[nodiscard]] constexpr float value_at(std::size_t position, std::uint32_t round) {
  return static_cast<float>((position + std::size_t{7} * round) % 251 + 1);
}

/// The sum over workers, in units of value_at().
[[nodiscard]] constexpr float sum_of_ranks(std::uint32_t workers) {
  return static_cast<float>(workers * (workers + 1) / 2);
}

void fill(std::span<float> values, std::uint32_t rank, std::uint32_t round);

/// Elements that are not `weight` times their value_at().
[[nodiscard]] std::uint64_t count_wrong(std::span<const float> values, float weight,
                                        std::uint32_t round);

/// Float32 memory as an optimised program allocates it: zeroed, on 2 MB boundaries, with huge pages
/// if there are any. `shared`: shared with child processes.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t elements, bool shared = false);

  [[nodiscard]] std::span<float> values() const { return {data_.get(), elements_}; }
  [[nodiscard]] std::byte* bytes() const { return reinterpret_cast<std::byte*>(data_.get()); }

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(float* data) const;
  };
  std::unique_ptr<float, Unmap> data_;
  std::size_t elements_ = 0;
};

}  // namespace dt::bench
