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

/// Encodes whole blocks, and then words, of which the last is filled up with zeros, whose code
/// has to be 0. Returns the non-finite residuals.
template <std::size_t kBlock, std::size_t kWord, auto kEncodeBlock, auto kEncodeWord>
std::size_t encode_words(void* codes, float* residual, const float* gradient, float threshold,
                         std::size_t n) {
  auto* words = reinterpret_cast<LooseWord*>(codes);
  auto* r = loose(residual);
  const auto* g = loose(gradient);
  std::size_t bad = 0;
  std::size_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    prefetch_next_page<kBlock>(r + i);
    prefetch_next_page<kBlock>(g + i);
    bad += kEncodeBlock(words + i / kWord, r + i, g + i, threshold);
  }
  for (; i < n; i += kWord) {
    Loose<float> last_residual[kWord] = {};
    Loose<float> last_gradient[kWord] = {};
    for (std::size_t k = 0; k < kWord && i + k < n; ++k) {
      last_residual[k] = r[i + k];
      last_gradient[k] = g[i + k];
    }
    bad += kEncodeWord(words + i / kWord, last_residual, last_gradient, threshold);
    for (std::size_t k = i; k < n && k < i + kWord; ++k) r[k] = last_residual[k - i];
  }
  return bad;
}

/// Decodes whole blocks, and then words; `value` is what a code stands for. kAdds: to what is in
/// `into`.
template <bool kAdds, std::size_t kBlock, std::size_t kWord, auto kDecodeBlock, auto kDecodeWord>
void decode_words(float* into, const void* codes, float value, std::size_t n) {
  const auto* words = reinterpret_cast<const LooseWord*>(codes);
  auto* o = loose(into);
  std::size_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    if constexpr (kAdds) prefetch_next_page<kBlock>(o + i);
    kDecodeBlock(o + i, words + i / kWord, value);
  }
  for (; i < n; i += kWord) {
    Loose<float> last[kWord] = {};
    if constexpr (kAdds)
      for (std::size_t k = i; k < n && k < i + kWord; ++k) last[k - i] = o[k];
    kDecodeWord(last, words + i / kWord, value);
    for (std::size_t k = i; k < n && k < i + kWord; ++k) o[k] = last[k - i];
  }
}

}  // namespace
}  // namespace dt::kv
