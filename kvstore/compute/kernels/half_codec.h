/// The 16-bit codecs, fp16 (IEEE binary16) and bf16 (the upper half of a float32). Part of level.h.
///
/// Rounding is to nearest, ties to even, in integers as in the processor's own instructions;
/// numbers that are too large become infinite, a NaN stays a NaN and is made quiet. With a
/// residual, finite numbers that are too large become the largest code, and the rest stays in the
/// residual.
#pragma once

#include "kvstore/compute/kernels/elements.h"
#include "kvstore/compute/kernels/vectors.h"

namespace dt::kv {
namespace {

using LooseHalf = Loose<std::uint16_t>;

std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

/// Without branches, so that the compiler does many at once. The method is Fabian Giesen's ("float
/// to half", public domain): adding the right power of two lets the adder round a subnormal.
struct Fp16 {
  static constexpr std::uint32_t kExponent = 0x7c00;
  static constexpr std::uint32_t kLargest = 0x477f'e000;  // 65504, as a float32

  static std::uint16_t narrow(float value) {
    constexpr std::uint32_t kInfinity32 = 0x7f80'0000;
    constexpr std::uint32_t kTooLarge = 0x4780'0000;   // 65536
    constexpr std::uint32_t kSubnormal = 0x3880'0000;  // below 2^-14
    const std::uint32_t sign = bits_of(value) & 0x8000'0000;
    const std::uint32_t x = bits_of(value) ^ sign;
    const std::uint32_t odd = (x >> 13) & 1;
    const std::uint32_t normal = (x - (std::uint32_t{112} << 23) + 0xfff + odd) >> 13;
    const std::uint32_t subnormal = bits_of(float_of(x) + 0.5F) - bits_of(0.5F);
    const std::uint32_t nan = 0x7e00 | ((x >> 13) & 0x3ff);
    const std::uint32_t special = x > kInfinity32 ? nan : 0x7c00;
    const std::uint32_t finite = x < kSubnormal ? subnormal : normal;
    return static_cast<std::uint16_t>((x >= kTooLarge ? special : finite) | (sign >> 16));
  }
  static float widen(std::uint16_t half) {
    constexpr std::uint32_t kSpecial = kExponent << 13;
    constexpr std::uint32_t kRebias = std::uint32_t{112} << 23;
    const std::uint32_t x = (half & 0x7fffu) << 13;
    const std::uint32_t exponent = x & kSpecial;
    const std::uint32_t quiet = x > kSpecial ? 0x0040'0000 : 0;
    const std::uint32_t normal = x + kRebias;
    const std::uint32_t special = (normal + kRebias) | quiet;
    const std::uint32_t lowest = std::uint32_t{113} << 23;
    const std::uint32_t subnormal = bits_of(float_of(x + lowest) - float_of(lowest));
    const std::uint32_t finite = exponent == 0 ? subnormal : normal;
    return float_of((exponent == kSpecial ? special : finite) | ((half & 0x8000u) << 16));
  }
};

struct Bf16 {
  static constexpr std::uint32_t kExponent = 0x7f80;
  static constexpr std::uint32_t kLargest = 0x7f7f'0000;

  static std::uint16_t narrow(float value) {
    const std::uint32_t x = bits_of(value);
    const std::uint32_t rounded = (x + 0x7fff + ((x >> 16) & 1)) >> 16;
    const std::uint32_t nan = (x >> 16) | 0x40;
    return static_cast<std::uint16_t>((x & 0x7fff'ffff) > 0x7f80'0000 ? nan : rounded);
  }
  static float widen(std::uint16_t half) {
    return float_of(static_cast<std::uint32_t>(half) << 16);
  }
};

/// One element at a time; the compiler vectorizes it.
template <class Half>
struct OneByOne {
  static constexpr std::size_t kLanes = 1;
  static float load(const Loose<float>* from) { return *from; }
  static void store(Loose<float>* to, float x) { *to = x; }
  static float all(float x) { return x; }
  static std::uint16_t load(const LooseHalf* from) { return *from; }
  static void store(LooseHalf* to, std::uint16_t half) { *to = half; }
  static std::uint16_t narrow(float x) { return Half::narrow(x); }
  /// Limits finite numbers to the largest code.
  static float saturate(float value) {
    const std::uint32_t sign = bits_of(value) & 0x8000'0000;
    const std::uint32_t x = bits_of(value) ^ sign;
    const bool is_too_large = x > Half::kLargest && x < 0x7f80'0000;
    return float_of((is_too_large ? Half::kLargest : x) | sign);
  }
  static float widen(std::uint16_t half) { return Half::widen(half); }
  static std::uint32_t nonfinite(std::uint16_t half) {
    return (half & Half::kExponent) == Half::kExponent;
  }
  static std::uint32_t count(std::uint32_t found) { return found; }
  static float zero_where(std::uint32_t found, float x) { return found ? 0.0F : x; }
};

#if defined(__AVX512F__)
/// fp16 by the processor's own conversion, which the compiler does not put into a loop by itself.
struct Vectors {
  static constexpr std::size_t kLanes = 16;
  static __m512 load(const Loose<float>* from) { return kv::load(from); }
  static void store(Loose<float>* to, __m512 x) { kv::store(to, x); }
  static __m512 all(float x) { return _mm512_set1_ps(x); }
  static __m256i load(const LooseHalf* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from));
  }
  static void store(LooseHalf* to, __m256i halves) {
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), halves);
  }
  static __m256i narrow(__m512 x) {
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static __m512 saturate(__m512 x) {
    const __m512 largest = all(65504);
    const __m512 within = _mm512_max_ps(_mm512_min_ps(x, largest), all(-65504));
    const __mmask16 finite = _mm512_cmp_ps_mask(_mm512_abs_ps(x), all(__FLT_MAX__), _CMP_LE_OQ);
    return _mm512_mask_mov_ps(x, finite, within);
  }
  static __m512 widen(__m256i halves) { return _mm512_cvtph_ps(halves); }
  static __mmask16 nonfinite(__m256i halves) {
    const __m256i exponent = _mm256_set1_epi16(Fp16::kExponent);
    return _mm256_cmpeq_epi16_mask(_mm256_and_si256(halves, exponent), exponent);
  }
  static std::uint32_t count(__mmask16 found) {
    return static_cast<std::uint32_t>(__builtin_popcount(found));
  }
  static __m512 zero_where(__mmask16 found, __m512 x) {
    return _mm512_maskz_mov_ps(static_cast<__mmask16>(~found), x);
  }
};
#elif defined(__F16C__)
/// fp16 by the processor's own conversion, which the compiler does not put into a loop by itself.
struct Vectors {
  static constexpr std::size_t kLanes = 8;
  static __m256 load(const Loose<float>* from) { return kv::load(from); }
  static void store(Loose<float>* to, __m256 x) { kv::store(to, x); }
  static __m256 all(float x) { return _mm256_set1_ps(x); }
  static __m128i load(const LooseHalf* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from));
  }
  static void store(LooseHalf* to, __m128i halves) {
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(to), halves);
  }
  static __m128i narrow(__m256 x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }
  static __m256 saturate(__m256 x) {
    const __m256 largest = all(65504);
    const __m256 within = _mm256_max_ps(_mm256_min_ps(x, largest), all(-65504));
    const __m256 size = _mm256_andnot_ps(all(-0.0F), x);
    const __m256 finite = _mm256_cmp_ps(size, all(__FLT_MAX__), _CMP_LE_OQ);
    return _mm256_blendv_ps(x, within, finite);
  }
  static __m256 widen(__m128i halves) { return _mm256_cvtph_ps(halves); }
  static __m128i nonfinite(__m128i halves) {
    const __m128i exponent = _mm_set1_epi16(Fp16::kExponent);
    return _mm_cmpeq_epi16(_mm_and_si128(halves, exponent), exponent);
  }
  static std::uint32_t count(__m128i found) {
    const int bytes = _mm_movemask_epi8(found);  // two for each
    return static_cast<std::uint32_t>(__builtin_popcount(static_cast<unsigned>(bytes))) / 2;
  }
  static __m256 zero_where(__m128i found, __m256 x) {
    return _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_cvtepi16_epi32(found)), x);
  }
};
#endif

// n is a multiple of the lanes.

/// Returns the non-finite codes.
template <class L>
std::uint32_t encode_lanes(LooseHalf* codes, Loose<float>* residual, const Loose<float>* gradient,
                           std::size_t n) {
  std::uint32_t bad = 0;
  DT_INDEPENDENT
  for (std::size_t i = 0; i < n; i += L::kLanes) {
    const auto r = L::load(residual + i) + L::load(gradient + i);
    const auto code = L::narrow(L::saturate(r));
    const auto found = L::nonfinite(code);
    L::store(codes + i, code);
    L::store(residual + i, L::zero_where(found, r - L::widen(code)));
    bad += L::count(found);
  }
  return bad;
}

template <class L>
void narrow_lanes(LooseHalf* out, const Loose<float>* from, std::size_t n) {
  DT_INDEPENDENT
  for (std::size_t i = 0; i < n; i += L::kLanes) L::store(out + i, L::narrow(L::load(from + i)));
}

template <class L>
void decode_lanes(Loose<float>* out, const LooseHalf* codes, std::size_t n) {
  DT_INDEPENDENT
  for (std::size_t i = 0; i < n; i += L::kLanes) L::store(out + i, L::widen(L::load(codes + i)));
}

template <class L>
void decode_add_lanes(Loose<float>* into, const LooseHalf* codes, float weight, std::size_t n) {
  const auto w = L::all(weight);
  DT_INDEPENDENT
  for (std::size_t i = 0; i < n; i += L::kLanes)
    L::store(into + i, L::load(into + i) + w * L::widen(L::load(codes + i)));
}

/// The vectors for most of the elements; the rest are computed one by one.
template <class Half>
struct WidestOf {
  using Lanes = OneByOne<Half>;
};
#if defined(__F16C__)
template <>
struct WidestOf<Fp16> {
  using Lanes = Vectors;
};
#endif

template <class Half>
std::size_t encode_half(std::uint16_t* codes, float* residual, const float* gradient,
                        std::size_t n) {
  using Widest = typename WidestOf<Half>::Lanes;
  return in_pieces(n, kCountable, [&](std::size_t at, std::size_t piece) -> std::size_t {
    const std::size_t whole = piece - piece % Widest::kLanes;
    auto* c = loose(codes) + at;
    auto* r = loose(residual) + at;
    const auto* g = loose(gradient) + at;
    return encode_lanes<Widest>(c, r, g, whole) +
           encode_lanes<OneByOne<Half>>(c + whole, r + whole, g + whole, piece - whole);
  });
}

template <class Half>
void narrow_half(std::uint16_t* out, const float* from, std::size_t n) {
  using Widest = typename WidestOf<Half>::Lanes;
  const std::size_t whole = n - n % Widest::kLanes;
  auto* o = loose(out);
  const auto* f = loose(from);
  narrow_lanes<Widest>(o, f, whole);
  narrow_lanes<OneByOne<Half>>(o + whole, f + whole, n - whole);
}

template <class Half>
void decode_half(float* out, const std::uint16_t* codes, std::size_t n) {
  using Widest = typename WidestOf<Half>::Lanes;
  const std::size_t whole = n - n % Widest::kLanes;
  auto* o = loose(out);
  const auto* c = loose(codes);
  decode_lanes<Widest>(o, c, whole);
  decode_lanes<OneByOne<Half>>(o + whole, c + whole, n - whole);
}

template <class Half>
void decode_add_half(float* into, const std::uint16_t* codes, float weight, std::size_t n) {
  using Widest = typename WidestOf<Half>::Lanes;
  const std::size_t whole = n - n % Widest::kLanes;
  auto* a = loose(into);
  const auto* c = loose(codes);
  decode_add_lanes<Widest>(a, c, weight, whole);
  decode_add_lanes<OneByOne<Half>>(a + whole, c + whole, weight, n - whole);
}

}  // namespace
}  // namespace dt::kv
