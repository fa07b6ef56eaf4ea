/// Decodes 2bit gradients, with the same bits as kvstore/compute/kernels (the rules are in
/// kernels.h, TwoBitCodec). Codes of 16 bits are numbers: Sum and Add decode them.
#pragma once

#include "kvstore/compute/cuda/formats.h"
#include "kvstore/compute/cuda/operation.h"

namespace dt::kv::cuda {

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

}  // namespace dt::kv::cuda
