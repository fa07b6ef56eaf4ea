/// Decodes 1bit and 2bit gradients, with the same bits as kvstore/compute/kernels (the rules are in
/// kernels.h, OneBitCodec and TwoBitCodec). Codes of 16 bits are numbers: Sum and Add decode them.
#pragma once

#include "kvstore/compute/cuda/formats.h"
#include "kvstore/compute/cuda/operation.h"

namespace dt::kv::cuda {

/// Eight floats side by side in two accesses.
struct Halves {
  Pack<float, 4> half[2];
  DT_HOST_DEVICE float& at(unsigned k) { return half[k / 4].at[k % 4]; }
};
/// Item number `item` of an array of `elements`; kWhole as for load.
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

/// into += weight*threshold, or its negative, or nothing. Any bytes are valid: the code 01, which
/// no encoder sends, adds nothing either.
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

}  // namespace dt::kv::cuda
