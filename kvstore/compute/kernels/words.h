/// The common part of the codecs of a few bits: words of codes. Part of level.h.
#pragma once

#include "kvstore/compute/kernels/elements.h"

namespace dt::kv {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are loaded and stored as they lie");

using LooseWord = Loose<std::uint32_t>;
/// At once, without special instructions; in the first-level cache.
constexpr std::size_t kPlainElements = 512;

/// Asks for kElements floats one page on. The processor's own prefetching stops at the end of a
/// page: this gains 15 % of decode_add and 3 % of encode on memory outside the caches, and costs
/// little inside. (It gains nothing for sums and optimizer steps, which walk more arrays.)
template <std::size_t kElements>
void prefetch_next_page(const Loose<float>* array) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kCacheLine = 64;
  const auto* ahead = reinterpret_cast<const std::byte*>(array) + kPage;
  for (std::size_t i = 0; i < kElements * sizeof(float); i += kCacheLine)
    __builtin_prefetch(ahead + i);
}

}  // namespace
}  // namespace dt::kv
