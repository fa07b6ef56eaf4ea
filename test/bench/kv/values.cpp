#include "test/bench/kv/values.h"

#include <sys/mman.h>

#include <cstring>

#include "core/base/result.h"

namespace dt::bench {

namespace {

/// Calls each(position, value_at(position, round)); counts instead of dividing.
template <class Each>
void for_each_value(std::size_t size, std::uint32_t round, Each each) {
  std::size_t step = std::size_t{7} * round % 251;
  for (std::size_t i = 0; i < size; ++i) {
    each(i, static_cast<float>(step + 1));
    if (++step == 251) step = 0;
  }
}

}  // namespace

void fill(std::span<float> values, std::uint32_t rank, std::uint32_t round) {
  const auto weight = static_cast<float>(rank + 1);
  for_each_value(values.size(), round,
                 [&](std::size_t i, float value) { values[i] = weight * value; });
}

std::uint64_t count_wrong(std::span<const float> values, float weight, std::uint32_t round) {
  std::uint64_t wrong = 0;
  for_each_value(values.size(), round,
                 [&](std::size_t i, float value) { wrong += values[i] == weight * value ? 0 : 1; });
  return wrong;
}

Buffer::Buffer(std::size_t elements, bool shared) : elements_(elements) {
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  const std::size_t bytes = (elements * sizeof(float) + kHuge - 1) / kHuge * kHuge;
  void* at = ::mmap(nullptr, bytes + kHuge, PROT_READ | PROT_WRITE,
                    (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);
  DT_CHECK(at != MAP_FAILED, "no memory for the tensors");
  // Unmap the ends that the alignment does not need.
  auto* first = static_cast<std::byte*>(at);
  const std::size_t ahead = (kHuge - reinterpret_cast<std::uintptr_t>(first) % kHuge) % kHuge;
  if (ahead > 0) ::munmap(first, ahead);
  if (ahead < kHuge) ::munmap(first + ahead + bytes, kHuge - ahead);
  data_ = {reinterpret_cast<float*>(first + ahead), Unmap{bytes}};
  (void)::madvise(data_.get(), bytes, MADV_HUGEPAGE);
  std::memset(data_.get(), 0, bytes);
}

void Buffer::Unmap::operator()(float* data) const { ::munmap(data, bytes); }

}  // namespace dt::bench
