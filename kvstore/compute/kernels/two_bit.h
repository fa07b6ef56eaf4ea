/// The 2bit codec. Part of level.h.
///
/// A word of 32 bits holds 16 elements: byte b the elements 4b to 4b+3, the first of them in bits 7
/// and 6. The high bit of a code means that a value is sent, the low one that it is positive.
#pragma once

#include "kvstore/compute/kernels/elements.h"
#include "kvstore/compute/kernels/vectors.h"

namespace dt::kv {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are loaded and stored as they lie");

using LooseWord = Loose<std::uint32_t>;
constexpr std::size_t kWordElements = 16;
/// At once, without special instructions; in the first-level cache.
constexpr std::size_t kPlainElements = 512;

constexpr std::uint8_t kPositive = 3;
constexpr std::uint8_t kNegative = 2;

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

// The reference, which also computes the remaining elements. Each loop does one kind of work, so
// that the compiler vectorizes it.

/// Packs kCodes codes, a byte each, into words.
template <std::size_t kCodes>
void pack(LooseWord* words, const std::uint8_t* codes) {
  std::uint8_t bytes[kCodes / 4];
  for (std::size_t b = 0; b < kCodes / 4; ++b)
    bytes[b] = static_cast<std::uint8_t>(codes[4 * b] << 6 | codes[4 * b + 1] << 4 |
                                         codes[4 * b + 2] << 2 | codes[4 * b + 3]);
  __builtin_memcpy(words, bytes, sizeof bytes);
}

template <std::size_t kCodes>
void unpack(std::uint8_t* codes, const LooseWord* words) {
  std::uint8_t bytes[kCodes / 4];
  __builtin_memcpy(bytes, words, sizeof bytes);
  for (std::size_t b = 0; b < kCodes / 4; ++b) {
    codes[4 * b] = bytes[b] >> 6;
    codes[4 * b + 1] = (bytes[b] >> 4) & 3;
    codes[4 * b + 2] = (bytes[b] >> 2) & 3;
    codes[4 * b + 3] = bytes[b] & 3;
  }
}

/// Returns the non-finite residuals.
template <std::size_t kCodes>
std::uint32_t encode_plain(LooseWord* words, Loose<float>* residual, const Loose<float>* gradient,
                           float threshold) {
  std::uint8_t codes[kCodes];
  std::uint32_t bad = 0;
  DT_INDEPENDENT
  for (std::size_t i = 0; i < kCodes; ++i) {
    const float r = residual[i] + gradient[i];
    const std::uint32_t code = r >= threshold ? kPositive : r <= -threshold ? kNegative : 0;
    const float sent = r >= threshold ? threshold : r <= -threshold ? -threshold : 0.0F;
    const float left = r - sent;  // less +0 is the number itself, -0 and NaN too
    residual[i] = left;
    codes[i] = static_cast<std::uint8_t>(code);
    bad += is_nonfinite(left);
  }
  pack<kCodes>(words, codes);
  return bad;
}

template <std::size_t kCodes>
void decode_plain(Loose<float>* out, const LooseWord* words, float threshold) {
  std::uint8_t codes[kCodes];
  unpack<kCodes>(codes, words);
  for (std::size_t i = 0; i < kCodes; ++i)
    out[i] = codes[i] == kPositive ? threshold : codes[i] == kNegative ? -threshold : 0.0F;
}

template <std::size_t kCodes>
void decode_add_plain(Loose<float>* into, const LooseWord* words, float value) {
  std::uint8_t codes[kCodes];
  unpack<kCodes>(codes, words);
  for (std::size_t i = 0; i < kCodes; ++i) {
    // Plus -0 is the number itself, -0 too.
    const float sent = codes[i] == kPositive ? value : codes[i] == kNegative ? -value : -0.0F;
    into[i] = into[i] + sent;
  }
}

#if defined(__AVX512BW__)

constexpr std::size_t kEncodeElements = 64;

/// 64 elements into four words.
std::uint32_t encode_block(LooseWord* words, Loose<float>* residual, const Loose<float>* gradient,
                           float threshold) {
  const __m512 t = _mm512_set1_ps(threshold);
  const __m512 minus_t = _mm512_set1_ps(-threshold);
  constexpr int kNanOrInfinity = 0x01 | 0x80 | 0x08 | 0x10;
  __mmask64 sent = 0;
  __mmask64 positive = 0;
  __mmask64 bad = 0;
  for (std::size_t i = 0; i < kEncodeElements; i += 16) {
    __m512 r = _mm512_add_ps(load(residual + i), load(gradient + i));
    const __mmask16 p = _mm512_cmp_ps_mask(r, t, _CMP_GE_OQ);
    const __mmask16 m = _mm512_cmp_ps_mask(r, minus_t, _CMP_LE_OQ);
    r = _mm512_mask_sub_ps(r, p, r, t);
    r = _mm512_mask_add_ps(r, m, r, t);
    store(residual + i, r);
    positive |= static_cast<__mmask64>(p) << i;
    sent |= static_cast<__mmask64>(p | m) << i;
    bad |= static_cast<__mmask64>(_mm512_fpclass_ps_mask(r, kNanOrInfinity)) << i;
  }
  // Each code as a byte with its bits where they will be, then four bytes added to one.
  const __m512i sent_bits = _mm512_set1_epi32(0x02082080);
  const __m512i positive_bits = _mm512_set1_epi32(0x01041040);
  __m512i codes = _mm512_maskz_mov_epi8(sent, sent_bits);
  codes = _mm512_mask_add_epi8(codes, positive, codes, positive_bits);
  const __m512i pairs = _mm512_maddubs_epi16(codes, _mm512_set1_epi8(1));
  const __m512i bytes = _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
  _mm_storeu_si128(reinterpret_cast<__m128i_u*>(words), _mm512_cvtepi32_epi8(bytes));
  return static_cast<std::uint32_t>(__builtin_popcountll(bad));
}

#elif defined(__AVX2__)

constexpr std::size_t kEncodeElements = 32;

/// 32 elements into two words.
std::uint32_t encode_block(LooseWord* words, Loose<float>* residual, const Loose<float>* gradient,
                           float threshold) {
  const __m256 t = _mm256_set1_ps(threshold);
  const __m256 minus_t = _mm256_set1_ps(-threshold);
  const __m256i exponent = _mm256_set1_epi32(Format<float>::kExponent);
  __m256i sent[4];
  __m256i positive[4];
  __m256i bad = _mm256_setzero_si256();
  for (std::size_t k = 0; k < 4; ++k) {
    const std::size_t i = 8 * k;
    __m256 r = _mm256_add_ps(load(residual + i), load(gradient + i));
    const __m256 p = _mm256_cmp_ps(r, t, _CMP_GE_OQ);
    const __m256 m = _mm256_cmp_ps(r, minus_t, _CMP_LE_OQ);
    r = _mm256_sub_ps(r, _mm256_or_ps(_mm256_and_ps(p, t), _mm256_and_ps(m, minus_t)));
    store(residual + i, r);
    positive[k] = _mm256_castps_si256(p);
    sent[k] = _mm256_castps_si256(_mm256_or_ps(p, m));
    const __m256i bits = _mm256_and_si256(_mm256_castps_si256(r), exponent);
    bad = _mm256_sub_epi32(bad, _mm256_cmpeq_epi32(bits, exponent));
  }
  // To bytes; the packs leave each half of a vector in its half: first all low quads, then all
  // high.
  const auto to_bytes = [](const __m256i* masks) {
    return _mm256_packs_epi16(_mm256_packs_epi32(masks[0], masks[1]),
                              _mm256_packs_epi32(masks[2], masks[3]));
  };
  // Each code as a byte with its bits where they will be, then four bytes added to one.
  const __m256i codes =
      _mm256_or_si256(_mm256_and_si256(to_bytes(sent), _mm256_set1_epi32(0x02082080)),
                      _mm256_and_si256(to_bytes(positive), _mm256_set1_epi32(0x01041040)));
  const __m256i pairs = _mm256_maddubs_epi16(codes, _mm256_set1_epi8(1));
  const __m256i quads = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  const __m256i halves = _mm256_packus_epi32(quads, quads);
  const __m256i bytes = _mm256_packus_epi16(halves, halves);
  const __m128i woven =
      _mm_unpacklo_epi8(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i_u*>(words), woven);
  __m128i few = _mm_add_epi32(_mm256_castsi256_si128(bad), _mm256_extracti128_si256(bad, 1));
  few = _mm_add_epi32(few, _mm_shuffle_epi32(few, 0x4e));
  few = _mm_add_epi32(few, _mm_shuffle_epi32(few, 0xb1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(few));
}

#else

constexpr std::size_t kEncodeElements = kPlainElements;
constexpr auto encode_block = encode_plain<kPlainElements>;

#endif

/// Whole blocks, and then words, of which the last is filled up with zeros, which are not sent.
std::size_t encode_two_bit(void* codes, float* residual, const float* gradient, float threshold,
                           std::size_t n) {
  auto* words = reinterpret_cast<LooseWord*>(codes);
  auto* r = loose(residual);
  const auto* g = loose(gradient);
  std::size_t bad = 0;
  std::size_t i = 0;
  for (; i + kEncodeElements <= n; i += kEncodeElements) {
    prefetch_next_page<kEncodeElements>(r + i);
    prefetch_next_page<kEncodeElements>(g + i);
    bad += encode_block(words + i / kWordElements, r + i, g + i, threshold);
  }
  for (; i < n; i += kWordElements) {
    Loose<float> last_residual[kWordElements] = {};
    Loose<float> last_gradient[kWordElements] = {};
    for (std::size_t k = 0; k < kWordElements && i + k < n; ++k) {
      last_residual[k] = r[i + k];
      last_gradient[k] = g[i + k];
    }
    bad += encode_plain<kWordElements>(words + i / kWordElements, last_residual, last_gradient,
                                       threshold);
    for (std::size_t k = i; k < n && k < i + kWordElements; ++k) r[k] = last_residual[k - i];
  }
  return bad;
}

#if defined(__AVX512BW__)

constexpr std::size_t kDecodeElements = kWordElements;

/// The value of each of a word's codes; `values` has the values of 00, 01, 10 and 11, four times.
__m512 look_up(std::uint32_t word, __m512 values) {
  const __m512i shifts =
      _mm512_setr_epi32(6, 4, 2, 0, 14, 12, 10, 8, 22, 20, 18, 16, 30, 28, 26, 24);
  const __m512i codes = _mm512_srlv_epi32(_mm512_set1_epi32(static_cast<int>(word)), shifts);
  return _mm512_permutevar_ps(values, codes);  // uses two bits only
}

void decode_block(Loose<float>* out, const LooseWord* word, float threshold) {
  const __m512 values = _mm512_broadcast_f32x4(_mm_setr_ps(0.0F, 0.0F, -threshold, threshold));
  store(out, look_up(*word, values));
}

void decode_add_block(Loose<float>* into, const LooseWord* word, float value) {
  const __m512 values = _mm512_broadcast_f32x4(_mm_setr_ps(-0.0F, -0.0F, -value, value));
  store(into, _mm512_add_ps(load(into), look_up(*word, values)));
}

#elif defined(__AVX2__)

constexpr std::size_t kDecodeElements = kWordElements;

struct TwoVectors {
  __m256 first, second;
};

TwoVectors look_up(std::uint32_t word, __m128 four) {
  const __m256 values = _mm256_broadcast_ps(&four);
  const __m256i all = _mm256_set1_epi32(static_cast<int>(word));
  const __m256i low = _mm256_setr_epi32(6, 4, 2, 0, 14, 12, 10, 8);
  const __m256i high = _mm256_setr_epi32(22, 20, 18, 16, 30, 28, 26, 24);
  return {_mm256_permutevar_ps(values, _mm256_srlv_epi32(all, low)),
          _mm256_permutevar_ps(values, _mm256_srlv_epi32(all, high))};
}

void decode_block(Loose<float>* out, const LooseWord* word, float threshold) {
  const TwoVectors found = look_up(*word, _mm_setr_ps(0.0F, 0.0F, -threshold, threshold));
  store(out, found.first);
  store(out + 8, found.second);
}

void decode_add_block(Loose<float>* into, const LooseWord* word, float value) {
  const TwoVectors found = look_up(*word, _mm_setr_ps(-0.0F, -0.0F, -value, value));
  store(into, _mm256_add_ps(load(into), found.first));
  store(into + 8, _mm256_add_ps(load(into + 8), found.second));
}

#else

constexpr std::size_t kDecodeElements = kPlainElements;
constexpr auto decode_block = decode_plain<kPlainElements>;
constexpr auto decode_add_block = decode_add_plain<kPlainElements>;

#endif

/// Decodes whole blocks, and then words; `value` is what a code stands for. kAdds: to what is in
/// `into`.
template <bool kAdds, auto kDecodeBlock, auto kDecodeWord>
void decode_words(float* into, const void* codes, float value, std::size_t n) {
  const auto* words = reinterpret_cast<const LooseWord*>(codes);
  auto* o = loose(into);
  std::size_t i = 0;
  for (; i + kDecodeElements <= n; i += kDecodeElements) {
    if constexpr (kAdds) prefetch_next_page<kDecodeElements>(o + i);
    kDecodeBlock(o + i, words + i / kWordElements, value);
  }
  for (; i < n; i += kWordElements) {
    Loose<float> last[kWordElements] = {};
    if constexpr (kAdds)
      for (std::size_t k = i; k < n && k < i + kWordElements; ++k) last[k - i] = o[k];
    kDecodeWord(last, words + i / kWordElements, value);
    for (std::size_t k = i; k < n && k < i + kWordElements; ++k) o[k] = last[k - i];
  }
}

void decode_two_bit(float* out, const void* codes, float threshold, std::size_t n) {
  decode_words<false, decode_block, decode_plain<kWordElements>>(out, codes, threshold, n);
}

void decode_add_two_bit(float* into, const void* codes, float threshold, float weight,
                        std::size_t n) {
  decode_words<true, decode_add_block, decode_add_plain<kWordElements>>(into, codes,
                                                                        weight * threshold, n);
}

}  // namespace
}  // namespace dt::kv
