/// The formats of numbers in memory, and the types that they are computed in.
#pragma once

#include "kvstore/compute/cuda/host_device.h"

namespace dt::kv::cuda {

/// Each format: Element is the type in memory, Math the type to compute in; widen is exact.
struct Float32 {
  using Element = float;
  using Math = float;
  DT_HOST_DEVICE static float widen(float x) { return x; }
  DT_HOST_DEVICE static bool is_nonfinite(float x) {
    return (bits_of(x) & 0x7f80'0000u) == 0x7f80'0000u;
  }
};

struct Float64 {
  using Element = double;
  using Math = double;
  DT_HOST_DEVICE static double widen(double x) { return x; }
  DT_HOST_DEVICE static bool is_nonfinite(double x) {
    constexpr std::uint64_t kExponent = 0x7ff0'0000'0000'0000u;
    return (bits_of(x) & kExponent) == kExponent;
  }
};

DT_HOST_DEVICE bool is_nonfinite(Rounded<float> x) { return Float32::is_nonfinite(x.value); }
DT_HOST_DEVICE bool is_nonfinite(Rounded<double> x) { return Float64::is_nonfinite(x.value); }

/// IEEE binary16. The device has instructions for it; the host form spells out what they do.
struct Fp16 {
  using Element = std::uint16_t;
  using Math = float;

  DT_HOST_DEVICE static float widen(std::uint16_t half) {
#if defined(__CUDA_ARCH__)
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
    return x;
#else
    const std::uint32_t sign = (half & 0x8000u) << 16;
    const std::uint32_t exponent = (half >> 10) & 0x1fu;
    const std::uint32_t fraction = half & 0x3ffu;
    if (exponent == 0x1f)
      return float_of(sign | 0x7f80'0000u | (fraction ? 0x0040'0000u : 0) | fraction << 13);
    if (exponent != 0) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    const float size = static_cast<float>(fraction) * 0x1p-24F;
    return float_of(sign | bits_of(size));
#endif
  }

  DT_HOST_DEVICE static bool is_nonfinite(std::uint16_t half) {
    return (half & 0x7c00u) == 0x7c00u;
  }
};

/// The upper half of a float32.
struct Bf16 {
  using Element = std::uint16_t;
  using Math = float;

  DT_HOST_DEVICE static float widen(std::uint16_t half) {
    return float_of(static_cast<std::uint32_t>(half) << 16);
  }

  DT_HOST_DEVICE static bool is_nonfinite(std::uint16_t half) {
    return (half & 0x7f80u) == 0x7f80u;
  }
};

}  // namespace dt::kv::cuda
