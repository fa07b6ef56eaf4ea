/// The 1bit codec. Part of level.h.
///
/// A word of 32 bits holds 32 elements: byte b the elements 8b to 8b+7, the first of them in bit 7.
#pragma once

#include "kvstore/compute/kernels/elements.h"
#include "kvstore/compute/kernels/vectors.h"
#include "kvstore/compute/kernels/words.h"

namespace dt::kv {
namespace {

constexpr std::size_t kOneBitWord = 32;

// The reference, which also computes the remaining elements. Each loop does one kind of work, so
// that the compiler vectorizes it.

/// Packs kCodes codes, a byte each, into words.
template <std::size_t kCodes>
void pack_bits(LooseWord* words, const std::uint8_t* codes) {
  std::uint8_t bytes[kCodes / 8];
  for (std::size_t b = 0; b < kCodes / 8; ++b) {
    const std::uint8_t* eight = codes + 8 * b;
    bytes[b] =
        static_cast<std::uint8_t>(eight[0] << 7 | eight[1] << 6 | eight[2] << 5 | eight[3] << 4 |
                                  eight[4] << 3 | eight[5] << 2 | eight[6] << 1 | eight[7]);
  }
  __builtin_memcpy(words, bytes, sizeof bytes);
}

template <std::size_t kCodes>
void unpack_bits(std::uint8_t* codes, const LooseWord* words) {
  std::uint8_t bytes[kCodes / 8];
  __builtin_memcpy(bytes, words, sizeof bytes);
  for (std::size_t b = 0; b < kCodes / 8; ++b)
    for (std::size_t k = 0; k < 8; ++k) codes[8 * b + k] = (bytes[b] >> (7 - k)) & 1;
}

/// Returns the non-finite residuals.
template <std::size_t kCodes>
std::uint32_t encode_bits_plain(LooseWord* words, Loose<float>* residual,
                                const Loose<float>* gradient, float threshold) {
  std::uint8_t codes[kCodes];
  std::uint32_t bad = 0;
  DT_INDEPENDENT
  for (std::size_t i = 0; i < kCodes; ++i) {
    const float r = residual[i] + gradient[i];
    const float left = r - (r > threshold ? 1.0F : -1.0F);
    residual[i] = left;
    codes[i] = r > threshold ? 1 : 0;
    bad += is_nonfinite(left);
  }
  pack_bits<kCodes>(words, codes);
  return bad;
}

template <std::size_t kCodes>
void decode_bits_plain(Loose<float>* out, const LooseWord* words, float value) {
  std::uint8_t codes[kCodes];
  unpack_bits<kCodes>(codes, words);
  for (std::size_t i = 0; i < kCodes; ++i) out[i] = codes[i] != 0 ? value : -value;
}

template <std::size_t kCodes>
void add_bits_plain(Loose<float>* into, const LooseWord* words, float weight) {
  std::uint8_t codes[kCodes];
  unpack_bits<kCodes>(codes, words);
  for (std::size_t i = 0; i < kCodes; ++i) into[i] = into[i] + (codes[i] != 0 ? weight : -weight);
}

#if defined(__AVX2__)

constexpr std::size_t kOneBitBlock = 64;
using TwoWords = Loose<std::uint64_t>;

/// Bit k of each byte becomes bit 7 - k: comparisons give the first element the lowest bit.
std::uint64_t reverse_in_bytes(std::uint64_t bits) {
  bits = (bits >> 1 & 0x5555555555555555) | (bits & 0x5555555555555555) << 1;
  bits = (bits >> 2 & 0x3333333333333333) | (bits & 0x3333333333333333) << 2;
  return (bits >> 4 & 0x0f0f0f0f0f0f0f0f) | (bits & 0x0f0f0f0f0f0f0f0f) << 4;
}

#endif

#if defined(__AVX512BW__)

std::uint32_t encode_bits_block(LooseWord* words, Loose<float>* residual,
                                const Loose<float>* gradient, float threshold) {
  const __m512 t = _mm512_set1_ps(threshold);
  const __m512 one = _mm512_set1_ps(1.0F);
  const __m512 minus_one = _mm512_set1_ps(-1.0F);
  constexpr int kNanOrInfinity = 0x01 | 0x80 | 0x08 | 0x10;
  std::uint64_t positive = 0;
  std::uint64_t bad = 0;
  for (std::size_t i = 0; i < kOneBitBlock; i += 16) {
    const __m512 r = _mm512_add_ps(load(residual + i), load(gradient + i));
    const __mmask16 p = _mm512_cmp_ps_mask(r, t, _CMP_GT_OQ);
    const __m512 left = _mm512_sub_ps(r, _mm512_mask_blend_ps(p, minus_one, one));
    store(residual + i, left);
    positive |= std::uint64_t{p} << i;
    bad |= std::uint64_t{_mm512_fpclass_ps_mask(left, kNanOrInfinity)} << i;
  }
  *reinterpret_cast<TwoWords*>(words) = reverse_in_bytes(positive);
  return static_cast<std::uint32_t>(__builtin_popcountll(bad));
}

void decode_bits_block(Loose<float>* out, const LooseWord* words, float value) {
  const std::uint64_t positive = reverse_in_bytes(*reinterpret_cast<const TwoWords*>(words));
  const __m512 plus = _mm512_set1_ps(value);
  const __m512 minus = _mm512_set1_ps(-value);
  for (std::size_t i = 0; i < kOneBitBlock; i += 16)
    store(out + i,
          _mm512_mask_blend_ps(static_cast<__mmask16>(positive >> i & 0xffff), minus, plus));
}

void add_bits_block(Loose<float>* into, const LooseWord* words, float weight) {
  const std::uint64_t positive = reverse_in_bytes(*reinterpret_cast<const TwoWords*>(words));
  const __m512 plus = _mm512_set1_ps(weight);
  const __m512 minus = _mm512_set1_ps(-weight);
  for (std::size_t i = 0; i < kOneBitBlock; i += 16) {
    const __mmask16 p = static_cast<__mmask16>(positive >> i & 0xffff);
    store(into + i, _mm512_add_ps(load(into + i), _mm512_mask_blend_ps(p, minus, plus)));
  }
}

#elif defined(__AVX2__)

std::uint32_t encode_bits_block(LooseWord* words, Loose<float>* residual,
                                const Loose<float>* gradient, float threshold) {
  const __m256 t = _mm256_set1_ps(threshold);
  const __m256 one = _mm256_set1_ps(1.0F);
  const __m256 minus_one = _mm256_set1_ps(-1.0F);
  const __m256i exponent = _mm256_set1_epi32(Format<float>::kExponent);
  std::uint64_t positive = 0;
  std::uint64_t bad = 0;
  for (std::size_t i = 0; i < kOneBitBlock; i += 8) {
    const __m256 r = _mm256_add_ps(load(residual + i), load(gradient + i));
    const __m256 p = _mm256_cmp_ps(r, t, _CMP_GT_OQ);
    const __m256 left = _mm256_sub_ps(r, _mm256_blendv_ps(minus_one, one, p));
    store(residual + i, left);
    const __m256i bits = _mm256_and_si256(_mm256_castps_si256(left), exponent);
    const __m256 is_bad = _mm256_castsi256_ps(_mm256_cmpeq_epi32(bits, exponent));
    positive |= static_cast<std::uint64_t>(_mm256_movemask_ps(p)) << i;
    bad |= static_cast<std::uint64_t>(_mm256_movemask_ps(is_bad)) << i;
  }
  *reinterpret_cast<TwoWords*>(words) = reverse_in_bytes(positive);
  return static_cast<std::uint32_t>(__builtin_popcountll(bad));
}

/// Eight elements' bits, each moved to the highest bit of its lane, which blendv tests.
__m256 spread(__m256i word, std::size_t byte) {
  const int first = 24 - 8 * static_cast<int>(byte);  // from bit 8*byte + 7 to bit 31
  const __m256i shifts =
      _mm256_add_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  return _mm256_castsi256_ps(_mm256_sllv_epi32(word, shifts));
}

void decode_bits_block(Loose<float>* out, const LooseWord* words, float value) {
  const __m256 plus = _mm256_set1_ps(value);
  const __m256 minus = _mm256_set1_ps(-value);
  for (std::size_t i = 0; i < kOneBitBlock; i += 8) {
    const __m256i word = _mm256_set1_epi32(static_cast<int>(words[i / kOneBitWord]));
    const __m256 p = spread(word, i % kOneBitWord / 8);
    store(out + i, _mm256_blendv_ps(minus, plus, p));
  }
}

void add_bits_block(Loose<float>* into, const LooseWord* words, float weight) {
  const __m256 plus = _mm256_set1_ps(weight);
  const __m256 minus = _mm256_set1_ps(-weight);
  for (std::size_t i = 0; i < kOneBitBlock; i += 8) {
    const __m256i word = _mm256_set1_epi32(static_cast<int>(words[i / kOneBitWord]));
    const __m256 p = spread(word, i % kOneBitWord / 8);
    store(into + i, _mm256_add_ps(load(into + i), _mm256_blendv_ps(minus, plus, p)));
  }
}

#else

constexpr std::size_t kOneBitBlock = kPlainElements;
constexpr auto encode_bits_block = encode_bits_plain<kOneBitBlock>;
constexpr auto decode_bits_block = decode_bits_plain<kOneBitBlock>;
constexpr auto add_bits_block = add_bits_plain<kOneBitBlock>;

#endif

std::size_t encode_one_bit(void* codes, float* residual, const float* gradient, float threshold,
                           std::size_t n) {
  // No threshold is below the lowest number, so that its code is 0.
  return encode_words<kOneBitBlock, kOneBitWord, encode_bits_block, encode_bits_plain<kOneBitWord>>(
      codes, residual, gradient, threshold, -__FLT_MAX__, n);
}

void decode_one_bit(float* out, const void* codes, std::size_t n) {
  decode_words<false, kOneBitBlock, kOneBitWord, decode_bits_block, decode_bits_plain<kOneBitWord>>(
      out, codes, 1, n);
}

void decode_add_one_bit(float* into, const void* codes, float weight, std::size_t n) {
  decode_words<true, kOneBitBlock, kOneBitWord, add_bits_block, add_bits_plain<kOneBitWord>>(
      into, codes, weight, n);
}

}  // namespace
}  // namespace dt::kv
