/// The arithmetic of the data plane: sums of gradients, optimizer steps, codecs.
///
/// The same source is compiled once per instruction set, and the best one of this machine is chosen
/// at run time. **Every level gives the same bits**: each element is computed by itself, in the
/// order of operations written here, each operation rounded once (no fused multiply-add, no
/// reordering). Only which NaN results from two NaNs is undefined.
///
/// For all kernels:
/// - Pointers need no alignment, not even that of their element; 64 bytes are fastest.
/// - `n` counts elements and may be 0; then no pointer is used.
/// - Outputs may not overlap other arguments, except where a kernel allows it.
/// - Nothing is allocated, locked, thrown or kept: threads may call at the same time on memory of
///   their own.
/// - A returned count of non-finite elements (infinite or NaN) has no measurable cost for memory
///   outside the first-level cache, so it is always made. The values are computed all the same: to
///   refuse them, call count_nonfinite first.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dt::kv {

enum class SimdLevel : std::uint8_t {
  kBaseline,  ///< what every machine of this architecture has
  kAvx2,      ///< AVX2, F16C
  kAvx512,    ///< AVX-512 F, BW, DQ, VL
};

/// (weights[0]*sources[0][i] + weights[1]*sources[1][i] + ...) / divisor, added from left to right
/// in T. A weight of 1 and a divisor of 1 change nothing, so a sum needs no other form.
template <class T>
struct WeightedSum {
  const T* const* sources = nullptr;
  const T* weights = nullptr;  ///< null: all are 1
  std::size_t count = 0;       ///< number of sources; at least 1
  T divisor = 1;
};

/// torch.optim.SGD:  g += weight_decay*w;  m = momentum*m + g;
///                   w -= learning_rate * (nesterov ? g + momentum*m : m)
template <class T>
struct SgdStep {
  T learning_rate = 0;
  T momentum = 0;  ///< 0: there is no m, and its pointer may be null
  T weight_decay = 0;
  bool nesterov = false;
};

/// torch.optim.Adam and AdamW, bias corrections worked in (see adam_step):
///     w *= keep;  g += weight_decay*w
///     m = beta1*m + rest1*g;  v = beta2*v + rest2*(g*g)
///     w -= step * (m / (sqrt(v)*root_scale + eps))
template <class T>
struct AdamStep {
  T keep = 1;
  T weight_decay = 0;
  T beta1 = 0;
  T rest1 = 1;
  T beta2 = 0;
  T rest2 = 1;
  T step = 0;
  T root_scale = 1;
  T eps = 0;
};

/// The user's settings, and the number of the update of these values.
struct AdamOptions {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;    ///< AdamW: the decay is not part of the gradient
  std::uint64_t update = 1;  ///< from 1
};

/// The constants of one step, computed in double (without libm, whose bits differ between machines)
/// and rounded to T. T is float or double.
template <class T>
[[nodiscard]] AdamStep<T> adam_step(const AdamOptions& options);

/// For T = float and double.
template <class T>
struct Arithmetic {
  /// into += from. Returns the non-finite elements of `from`.
  std::size_t (*add)(T* into, const T* from, std::size_t n);
  /// into += weight*from, the product rounded first. Returns the non-finite elements of `from`.
  std::size_t (*add_weighted)(T* into, const T* from, T weight, std::size_t n);
  /// values *= factor
  void (*scale)(T* values, T factor, std::size_t n);
  std::size_t (*count_nonfinite)(const T* from, std::size_t n);

  /// out = sum, in one pass over memory. `out` may be sources[0]. Returns the non-finite elements
  /// of the result: 0 proves that every source was finite, since no addition heals a NaN or
  /// infinity.
  std::size_t (*sum)(T* out, const WeightedSum<T>& sum, std::size_t n);

  /// One optimizer step in one pass over memory; the gradient is the sum and is not stored. Values
  /// and state are in T. The same bits as `sum` followed by a step of its result. Returns the
  /// non-finite elements of the gradient; values and state are updated with them.
  std::size_t (*sgd)(T* values, T* momentum, const WeightedSum<T>& gradient, const SgdStep<T>& step,
                     std::size_t n);
  std::size_t (*adam)(T* values, T* first, T* second, const WeightedSum<T>& gradient,
                      const AdamStep<T>& step, std::size_t n);
};

/// Gradients in two bits each. Code 11: +threshold, 10: -threshold, 00: nothing; four to a byte,
/// the first element in bits 7 and 6. The threshold is above 0.
struct TwoBitCodec {
  /// residual += gradient; elements that reach the threshold are sent as +-threshold, which is
  /// subtracted from the residual. Writes all two_bit_bytes(n) of `codes`. Returns the non-finite
  /// residuals: these stay so until the caller clears them.
  std::size_t (*encode)(void* codes, float* residual, const float* gradient, float threshold,
                        std::size_t n);
  /// out = what was sent
  void (*decode)(float* out, const void* codes, float threshold, std::size_t n);
  /// into += weight*threshold, or its negative, or nothing. Any bytes are valid: the code 01, which
  /// no encoder sends, adds nothing either.
  void (*decode_add)(float* into, const void* codes, float threshold, float weight, std::size_t n);
};

/// The bytes of n codes of two bits: padded to 4.
[[nodiscard]] constexpr std::size_t two_bit_bytes(std::size_t n) { return (n + 15) / 16 * 4; }

/// Gradients and values in 16 bits each: fp16 (IEEE binary16) or bf16. Rounded to nearest, ties to
/// even; a NaN stays a NaN.
struct HalfCodec {
  /// residual += gradient; codes = residual; residual -= the codes' values. A finite number that is
  /// too large is sent as the largest code, and the rest stays. If a code is not finite the
  /// residual becomes 0, so that one bad gradient is not sent for ever. Returns the non-finite
  /// codes.
  std::size_t (*encode)(std::uint16_t* codes, float* residual, const float* gradient,
                        std::size_t n);
  /// out = from. A number that is too large becomes infinite.
  void (*narrow)(std::uint16_t* out, const float* from, std::size_t n);
  void (*decode)(float* out, const std::uint16_t* codes, std::size_t n);
  /// into += weight*code, the product rounded first.
  void (*decode_add)(float* into, const std::uint16_t* codes, float weight, std::size_t n);
};

struct Kernels {
  SimdLevel level;
  Arithmetic<float> f32;
  Arithmetic<double> f64;
  TwoBitCodec two_bit;
  HalfCodec fp16;
  HalfCodec bf16;
  /// into += from; wraps.
  void (*add_int64)(std::int64_t* into, const std::int64_t* from, std::size_t n);
  /// memcpy with non-temporal stores, for megabytes that this core does not read next.
  void (*copy_streaming)(void* out, const void* from, std::size_t bytes);
};

/// The best level of this machine, or the one DT_SIMD=baseline|avx2|avx512 names if that is lower
/// (for debugging). Chosen at the first call.
[[nodiscard]] const Kernels& kernels();
/// The given level, or null if the machine or the build lacks it.
[[nodiscard]] const Kernels* kernels(SimdLevel level);

}  // namespace dt::kv
