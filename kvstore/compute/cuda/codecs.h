/// Compressed gradients: 1bit, 2bit and 16-bit codes with what was not sent kept as a residual, bit
/// by bit those of kvstore/compute/kernels (kernels.h, OneBitCodec and its neighbours, has the
/// rules).
#pragma once

#include "kvstore/compute/cuda/formats.h"
#include "kvstore/compute/cuda/operation.h"

namespace dt::kv::cuda {

/// Eight floats side by side in two accesses.
struct Halves {
  Pack<float, 4> half[2];
  DT_HOST_DEVICE float& at(unsigned k) { return half[k / 4].at[k % 4]; }
};
/// Number `item` of an array of `elements`; as load has it.
template <bool kWhole>
DT_HOST_DEVICE Halves load_halves(const float* array, std::uint64_t item, std::uint64_t elements) {
  return {
      {load<kWhole, 4>(array, 2 * item, elements), load<kWhole, 4>(array, 2 * item + 1, elements)}};
}
template <bool kWhole>
DT_HOST_DEVICE void store_halves(float* array, std::uint64_t item, std::uint64_t elements,
                                 const Halves& halves) {
  store<kWhole, 4>(array, 2 * item, elements, halves.half[0]);
  store<kWhole, 4>(array, 2 * item + 1, elements, halves.half[1]);
}

constexpr std::uint8_t kPositiveCode = 3;
constexpr std::uint8_t kNegativeCode = 2;

/// Code number k (0 to 3) of a byte: the first is in bits 7 and 6.
DT_HOST_DEVICE unsigned code_of(std::uint8_t codes, unsigned k) {
  return (codes >> (6 - 2 * k)) & 3u;
}

/// residual += gradient; what reaches the threshold is sent and taken off the residual. Writes all
/// two_bit_bytes(elements) of the codes. Counts the non-finite residuals.
struct EncodeTwoBit {
  struct Tensor {
    std::uint8_t* codes = nullptr;
    float* residual = nullptr;
    const float* gradient = nullptr;
    std::uint64_t elements = 0;
  };
  /// An item makes one byte of codes, so that neighbouring threads write neighbouring bytes.
  static constexpr unsigned kLanes = 4;
  static constexpr unsigned kAtOnce = 4;
  struct Loaded {
    Pack<float, kLanes> residual, gradient;
  };

  float threshold = 0.5F;

  /// As many as bytes, those of the padding too: two_bit_bytes.
  DT_HOST_DEVICE static std::uint64_t items(const Tensor& t) { return (t.elements + 15) / 16 * 4; }
  DT_HOST_DEVICE bool is_wide(const Tensor& t) const {
    return is_aligned<kLanes>(t.residual) && is_aligned<kLanes>(t.gradient);
  }
  template <bool kWhole>
  DT_HOST_DEVICE Loaded read(const Tensor& t, std::uint64_t item) const {
    return {load<kWhole, kLanes>(t.residual, item, t.elements),
            load<kWhole, kLanes>(t.gradient, item, t.elements)};
  }
  template <bool kWhole>
  DT_HOST_DEVICE unsigned write(const Tensor& t, std::uint64_t item, Loaded loaded) const {
    unsigned codes = 0;
    unsigned nonfinite = 0;
    DT_UNROLL
    for (unsigned k = 0; k < kLanes; ++k) {  // past the end lie zeros, which are not sent
      const auto r = rounded(loaded.residual.at[k]) + rounded(loaded.gradient.at[k]);
      const bool is_positive = r.value >= threshold;
      const bool is_negative = r.value <= -threshold;
      const float sent = is_positive ? threshold : is_negative ? -threshold : 0.0F;
      const auto left = r - rounded(sent);  // less +0 is the number itself, -0 and NaN too
      loaded.residual.at[k] = left.value;
      codes = codes << 2 | (is_positive ? kPositiveCode : is_negative ? kNegativeCode : 0u);
      nonfinite += is_nonfinite(left) ? 1 : 0;
    }
    store<kWhole, kLanes>(t.residual, item, t.elements, loaded.residual);
    t.codes[item] = static_cast<std::uint8_t>(codes);
    return nonfinite;
  }
};

/// out = what was sent.
struct DecodeTwoBit {
  struct Tensor {
    float* out = nullptr;
    const std::uint8_t* codes = nullptr;
    std::uint64_t elements = 0;
  };
  static constexpr unsigned kLanes = 4;
  static constexpr unsigned kAtOnce = 4;
  struct Loaded {
    std::uint8_t codes;
  };

  float threshold = 0.5F;

  DT_HOST_DEVICE static std::uint64_t items(const Tensor& t) {
    return (t.elements + kLanes - 1) / kLanes;
  }
  DT_HOST_DEVICE bool is_wide(const Tensor& t) const { return is_aligned<kLanes>(t.out); }
  template <bool kWhole>
  DT_HOST_DEVICE Loaded read(const Tensor& t, std::uint64_t item) const {
    return {t.codes[item]};
  }
  template <bool kWhole>
  DT_HOST_DEVICE unsigned write(const Tensor& t, std::uint64_t item, Loaded loaded) const {
    Pack<float, kLanes> out;
    DT_UNROLL
    for (unsigned k = 0; k < kLanes; ++k) {
      const unsigned code = code_of(loaded.codes, k);
      out.at[k] = code == kPositiveCode ? threshold : code == kNegativeCode ? -threshold : 0.0F;
    }
    store<kWhole, kLanes>(t.out, item, t.elements, out);
    return 0;
  }
};

/// into += weight*threshold, or its negative, or nothing at all. Any bytes may be given: the code
/// 01, which nobody sends, means nothing either.
struct AddTwoBit {
  struct Tensor {
    float* into = nullptr;
    const std::uint8_t* codes = nullptr;
    std::uint64_t elements = 0;
  };
  static constexpr unsigned kLanes = 4;
  static constexpr unsigned kAtOnce = 4;
  struct Loaded {
    Pack<float, kLanes> into;
    std::uint8_t codes;
  };

  float threshold = 0.5F;
  float weight = 1;

  DT_HOST_DEVICE static std::uint64_t items(const Tensor& t) {
    return (t.elements + kLanes - 1) / kLanes;
  }
  DT_HOST_DEVICE bool is_wide(const Tensor& t) const { return is_aligned<kLanes>(t.into); }
  template <bool kWhole>
  DT_HOST_DEVICE Loaded read(const Tensor& t, std::uint64_t item) const {
    return {load<kWhole, kLanes>(t.into, item, t.elements), t.codes[item]};
  }
  template <bool kWhole>
  DT_HOST_DEVICE unsigned write(const Tensor& t, std::uint64_t item, Loaded loaded) const {
    const float value = (rounded(weight) * rounded(threshold)).value;
    DT_UNROLL
    for (unsigned k = 0; k < kLanes; ++k) {
      const unsigned code = code_of(loaded.codes, k);
      // Plus -0 is the number itself, -0 too.
      const float sent = code == kPositiveCode ? value : code == kNegativeCode ? -value : -0.0F;
      loaded.into.at[k] = (rounded(loaded.into.at[k]) + rounded(sent)).value;
    }
    store<kWhole, kLanes>(t.into, item, t.elements, loaded.into);
    return 0;
  }
};

/// Whether element number k (0 to 7) of a byte is +1: the first is in bit 7.
DT_HOST_DEVICE bool is_plus_one(std::uint8_t codes, unsigned k) {
  return (codes >> (7 - k) & 1u) != 0;
}

/// residual += gradient; what is above the threshold is sent as +1, all else as -1, and taken off
/// the residual. Writes all one_bit_bytes(elements) of the codes. Counts the non-finite residuals.
struct EncodeOneBit {
  struct Tensor {
    std::uint8_t* codes = nullptr;
    float* residual = nullptr;
    const float* gradient = nullptr;
    std::uint64_t elements = 0;
  };
  /// An item makes one byte of codes: two accesses of each array.
  static constexpr unsigned kLanes = 8;
  static constexpr unsigned kAtOnce = 2;
  struct Loaded {
    Halves residual, gradient;
  };

  float threshold = 0;

  /// As many as bytes, those of the padding too: one_bit_bytes.
  DT_HOST_DEVICE static std::uint64_t items(const Tensor& t) { return (t.elements + 31) / 32 * 4; }
  DT_HOST_DEVICE bool is_wide(const Tensor& t) const {
    return is_aligned<4>(t.residual) && is_aligned<4>(t.gradient);
  }
  template <bool kWhole>
  DT_HOST_DEVICE Loaded read(const Tensor& t, std::uint64_t item) const {
    return {load_halves<kWhole>(t.residual, item, t.elements),
            load_halves<kWhole>(t.gradient, item, t.elements)};
  }
  template <bool kWhole>
  DT_HOST_DEVICE unsigned write(const Tensor& t, std::uint64_t item, Loaded loaded) const {
    unsigned codes = 0;
    unsigned nonfinite = 0;  // past the end lie zeros, which leave 1
    DT_UNROLL
    for (unsigned k = 0; k < kLanes; ++k) {
      const auto r = rounded(loaded.residual.at(k)) + rounded(loaded.gradient.at(k));
      const bool is_positive = r.value > threshold;
      const auto left = r - rounded(is_positive ? 1.0F : -1.0F);
      loaded.residual.at(k) = left.value;
      codes = codes << 1 | (is_positive ? 1u : 0u);
      nonfinite += is_nonfinite(left) ? 1 : 0;
    }
    if constexpr (!kWhole) codes &= 0xffu << (kLanes - lanes_of<kLanes>(item, t.elements));
    store_halves<kWhole>(t.residual, item, t.elements, loaded.residual);
    t.codes[item] = static_cast<std::uint8_t>(codes);
    return nonfinite;
  }
};

/// out = what was sent.
struct DecodeOneBit {
  struct Tensor {
    float* out = nullptr;
    const std::uint8_t* codes = nullptr;
    std::uint64_t elements = 0;
  };
  static constexpr unsigned kLanes = 8;
  static constexpr unsigned kAtOnce = 2;
  struct Loaded {
    std::uint8_t codes;
  };

  DT_HOST_DEVICE static std::uint64_t items(const Tensor& t) {
    return (t.elements + kLanes - 1) / kLanes;
  }
  DT_HOST_DEVICE bool is_wide(const Tensor& t) const { return is_aligned<4>(t.out); }
  template <bool kWhole>
  DT_HOST_DEVICE Loaded read(const Tensor& t, std::uint64_t item) const {
    return {t.codes[item]};
  }
  template <bool kWhole>
  DT_HOST_DEVICE unsigned write(const Tensor& t, std::uint64_t item, Loaded loaded) const {
    Halves out;
    DT_UNROLL
    for (unsigned k = 0; k < kLanes; ++k) out.at(k) = is_plus_one(loaded.codes, k) ? 1.0F : -1.0F;
    store_halves<kWhole>(t.out, item, t.elements, out);
    return 0;
  }
};

/// into += weight, or its negative.
struct AddOneBit {
  struct Tensor {
    float* into = nullptr;
    const std::uint8_t* codes = nullptr;
    std::uint64_t elements = 0;
  };
  static constexpr unsigned kLanes = 8;
  static constexpr unsigned kAtOnce = 2;
  struct Loaded {
    Halves into;
    std::uint8_t codes;
  };

  float weight = 1;

  DT_HOST_DEVICE static std::uint64_t items(const Tensor& t) {
    return (t.elements + kLanes - 1) / kLanes;
  }
  DT_HOST_DEVICE bool is_wide(const Tensor& t) const { return is_aligned<4>(t.into); }
  template <bool kWhole>
  DT_HOST_DEVICE Loaded read(const Tensor& t, std::uint64_t item) const {
    return {load_halves<kWhole>(t.into, item, t.elements), t.codes[item]};
  }
  template <bool kWhole>
  DT_HOST_DEVICE unsigned write(const Tensor& t, std::uint64_t item, Loaded loaded) const {
    DT_UNROLL
    for (unsigned k = 0; k < kLanes; ++k) {
      const float sent = is_plus_one(loaded.codes, k) ? weight : -weight;
      loaded.into.at(k) = (rounded(loaded.into.at(k)) + rounded(sent)).value;
    }
    store_halves<kWhole>(t.into, item, t.elements, loaded.into);
    return 0;
  }
};

/// residual += gradient; codes = residual, what is finite and too large as the largest code;
/// residual -= what the codes say, or 0 where a code is not finite. Counts the non-finite codes.
/// Half is Fp16 or Bf16. (Without a residual: Cast.)
template <class Half>
struct EncodeHalf {
  struct Tensor {
    std::uint16_t* codes = nullptr;
    float* residual = nullptr;
    const float* gradient = nullptr;
    std::uint64_t elements = 0;
  };
  static constexpr unsigned kLanes = 4;
  static constexpr unsigned kAtOnce = 4;
  struct Loaded {
    Pack<float, kLanes> residual, gradient;
  };

  DT_HOST_DEVICE static std::uint64_t items(const Tensor& t) {
    return (t.elements + kLanes - 1) / kLanes;
  }
  DT_HOST_DEVICE bool is_wide(const Tensor& t) const {
    return is_aligned<kLanes>(t.codes) && is_aligned<kLanes>(t.residual) &&
           is_aligned<kLanes>(t.gradient);
  }
  template <bool kWhole>
  DT_HOST_DEVICE Loaded read(const Tensor& t, std::uint64_t item) const {
    return {load<kWhole, kLanes>(t.residual, item, t.elements),
            load<kWhole, kLanes>(t.gradient, item, t.elements)};
  }
  /// Finite numbers no larger than a code may be.
  DT_HOST_DEVICE static float saturate(float value) {
    const std::uint32_t sign = bits_of(value) & 0x8000'0000u;
    const std::uint32_t size = bits_of(value) ^ sign;
    const bool is_too_large = size > Half::kLargest && size < 0x7f80'0000u;
    return float_of((is_too_large ? Half::kLargest : size) | sign);
  }
  template <bool kWhole>
  DT_HOST_DEVICE unsigned write(const Tensor& t, std::uint64_t item, Loaded loaded) const {
    Pack<std::uint16_t, kLanes> codes;
    unsigned nonfinite = 0;  // past the end lie zeros
    DT_UNROLL
    for (unsigned k = 0; k < kLanes; ++k) {
      const auto r = rounded(loaded.residual.at[k]) + rounded(loaded.gradient.at[k]);
      const std::uint16_t code = Half::narrow(saturate(r.value));
      const bool is_bad = Half::is_nonfinite(code);
      codes.at[k] = code;
      loaded.residual.at[k] = is_bad ? 0.0F : (r - rounded(Half::widen(code))).value;
      nonfinite += is_bad ? 1 : 0;
    }
    store<kWhole, kLanes>(t.codes, item, t.elements, codes);
    store<kWhole, kLanes>(t.residual, item, t.elements, loaded.residual);
    return nonfinite;
  }
};

}  // namespace dt::kv::cuda
