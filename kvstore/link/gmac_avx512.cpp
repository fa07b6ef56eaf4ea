#include "kvstore/link/gmac_avx512.h"

#include <immintrin.h>

#include <cstring>

namespace dt::kv {

namespace {

constexpr std::size_t kBlock = GmacState::kBlock;
constexpr std::size_t kAtOnce = GmacState::kAtOnce;
constexpr std::size_t kLanes = 4;  ///< Blocks of a register.

__m128i load(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
void store(void* to, __m128i value) { _mm_storeu_si128(static_cast<__m128i*>(to), value); }

__m128i reversed_bytes(__m128i x) {
  return _mm_shuffle_epi8(x, _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

__m128i swapped_halves(__m128i x) { return _mm_shuffle_epi32(x, 0x4e); }

/// x * value in POLYVAL's field.
__m128i times_x(__m128i value) {
  const __m128i top = _mm_srai_epi32(_mm_shuffle_epi32(value, 0xff), 31);
  const __m128i shifted =
      _mm_or_si128(_mm_slli_epi64(value, 1), _mm_slli_si128(_mm_srli_epi64(value, 63), 8));
  const __m128i polynomial = _mm_set_epi64x(static_cast<long long>(0xc200000000000000U), 1);
  return _mm_xor_si128(shifted, _mm_and_si128(top, polynomial));
}

/// The product whose 256 bits are low, middle and high, each 64 bits above the one before, modulo
/// POLYVAL's polynomial and divided by x^128.
__m128i reduced(__m128i low, __m128i middle, __m128i high) {
  const __m128i fold = _mm_set1_epi64x(static_cast<long long>(0xc200000000000000U));
  low = _mm_xor_si128(low, _mm_slli_si128(middle, 8));
  high = _mm_xor_si128(high, _mm_srli_si128(middle, 8));
  low = _mm_xor_si128(swapped_halves(low), _mm_clmulepi64_si128(low, fold, 0x00));
  low = _mm_xor_si128(swapped_halves(low), _mm_clmulepi64_si128(low, fold, 0x00));
  return _mm_xor_si128(high, low);
}

__m128i product(__m128i a, __m128i b) {
  const __m128i middle =
      _mm_xor_si128(_mm_clmulepi64_si128(a, b, 0x01), _mm_clmulepi64_si128(a, b, 0x10));
  return reduced(_mm_clmulepi64_si128(a, b, 0x00), middle, _mm_clmulepi64_si128(a, b, 0x11));
}

__m128i sum_of_lanes(__m512i x) {
  const __m256i halves =
      _mm256_xor_si256(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
  return _mm_xor_si128(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
}

/// A sum of products that is not reduced.
struct Products {
  __m512i low = _mm512_setzero_si512();
  __m512i middle = _mm512_setzero_si512();
  __m512i high = _mm512_setzero_si512();

  __attribute__((always_inline)) void add(__m512i blocks, __m512i powers, __m512i sums) {
    const __m512i halves =
        _mm512_xor_si512(blocks, _mm512_shuffle_epi32(blocks, static_cast<_MM_PERM_ENUM>(0x4e)));
    low = _mm512_xor_si512(low, _mm512_clmulepi64_epi128(blocks, powers, 0x00));
    high = _mm512_xor_si512(high, _mm512_clmulepi64_epi128(blocks, powers, 0x11));
    middle = _mm512_xor_si512(middle, _mm512_clmulepi64_epi128(halves, sums, 0x00));
  }
  [[nodiscard]] __m128i reduce() const {
    const __m512i m = _mm512_ternarylogic_epi64(middle, low, high, 0x96);
    return reduced(sum_of_lanes(low), sum_of_lanes(m), sum_of_lanes(high));
  }
};

/// GHASH of `count` more whole blocks, after `sum`.
__m128i hashed(const GmacState& state, __m128i sum, const unsigned char* from, std::size_t count) {
  const __m512i reversal =
      _mm512_broadcast_i32x4(_mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  const auto group = [&](std::size_t at, std::size_t first_power, Products & products,
                         __m512i carried, __mmask8 mask) __attribute__((always_inline)) {
    __m512i blocks = _mm512_maskz_loadu_epi64(mask, from + at * kBlock);
    blocks = _mm512_xor_si512(_mm512_shuffle_epi8(blocks, reversal), carried);
    const std::size_t power = (first_power + at) * kBlock;
    products.add(blocks, _mm512_loadu_si512(state.powers + power),
                 _mm512_loadu_si512(state.sums + power));
  };
  const __m512i none = _mm512_setzero_si512();
  for (; count >= kAtOnce; count -= kAtOnce, from += kAtOnce * kBlock) {
    Products products;
    group(0, 0, products, _mm512_zextsi128_si512(sum), 0xff);
#pragma GCC unroll 8
    for (std::size_t at = kLanes; at < kAtOnce; at += kLanes) group(at, 0, products, none, 0xff);
    sum = products.reduce();
  }
  if (count == 0) return sum;
  Products products;
  __m512i carried = _mm512_zextsi128_si512(sum);
  for (std::size_t at = 0; at < count; at += kLanes) {
    const std::size_t lanes = count - at < kLanes ? count - at : kLanes;
    group(at, kAtOnce - count, products, carried, static_cast<__mmask8>((1U << (2 * lanes)) - 1));
    carried = none;
  }
  return products.reduce();
}

template <int Round>
__m128i next_round_key(__m128i key) {
  __m128i add = _mm_shuffle_epi32(_mm_aeskeygenassist_si128(key, Round), 0xff);
  for (int i = 0; i < 3; ++i) {
    add = _mm_xor_si128(add, key);
    key = _mm_slli_si128(key, 4);
  }
  return _mm_xor_si128(add, key);
}

/// The key, and one more for each round's constant.
template <int... Rounds>
void expand(const char* key, unsigned char* keys) {
  __m128i k = load(key);
  store(keys, k);
  (store(keys += kBlock, k = next_round_key<Rounds>(k)), ...);
}

__m128i encrypted(const GmacState& state, __m128i block) {
  block = _mm_xor_si128(block, load(state.rounds));
  for (std::size_t round = 1; round < 10; ++round)
    block = _mm_aesenc_si128(block, load(state.rounds + round * kBlock));
  return _mm_aesenclast_si128(block, load(state.rounds + 10 * kBlock));
}

void set_key(GmacState& state, const char* key) {
  std::memset(&state, 0, sizeof state);
  expand<0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1b, 0x36>(key, state.rounds);
  const __m128i h = times_x(reversed_bytes(encrypted(state, _mm_setzero_si128())));
  __m128i power = h;
  for (std::size_t i = kAtOnce; i-- > 0; power = product(power, h)) {
    store(state.powers + i * kBlock, power);
    store(state.sums + i * kBlock, _mm_xor_si128(power, swapped_halves(power)));
  }
}

void begin(GmacState& state, const unsigned char* nonce) {
  std::memcpy(state.nonce, nonce, 12);
  state.nonce[15] = 1;
  store(state.sum, _mm_setzero_si128());
  state.size = 0;
}

void add(GmacState& state, const void* bytes, std::size_t size) {
  const auto* from = static_cast<const unsigned char*>(bytes);
  const std::size_t have = state.size % kBlock;
  state.size += size;
  if (have > 0) {
    const std::size_t more = size < kBlock - have ? size : kBlock - have;
    std::memcpy(state.rest + have, from, more);
    from += more;
    size -= more;
    if (have + more < kBlock) return;
    store(state.sum, hashed(state, load(state.sum), state.rest, 1));
  }
  if (size >= kBlock) store(state.sum, hashed(state, load(state.sum), from, size / kBlock));
  std::memcpy(state.rest, from + size / kBlock * kBlock, size % kBlock);
}

void finish(GmacState& state, char* tag) {
  unsigned char last[2 * kBlock] = {};
  const std::size_t have = state.size % kBlock;
  std::memcpy(last, state.rest, have);
  unsigned char* length = last + (have > 0 ? kBlock : 0);
  const unsigned long long bits = __builtin_bswap64(state.size * 8);
  std::memcpy(length, &bits, sizeof bits);
  const __m128i sum = hashed(state, load(state.sum), last, have > 0 ? 2 : 1);
  store(tag, _mm_xor_si128(reversed_bytes(sum), encrypted(state, load(state.nonce))));
}

}  // namespace

const GmacAvx512 kGmacAvx512 = {set_key, begin, add, finish};

}  // namespace dt::kv
