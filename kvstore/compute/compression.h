/// Gradients in fewer bytes on their way to a server: what a codec's payload looks like, and the
/// worker's side of it, which keeps what a payload could not say for the next round. The arithmetic
/// is in kernels/.
///
///     1bit          u32 how many elements were infinite or NaN | codes of one bit
///     2bit          f32 threshold | u32 how many elements were infinite or NaN | codes of two bits
///     fp16, bf16    codes of 16 bits
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/base/result.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

/// What a person sets.
struct Compression {
  data::Codec codec = data::Codec::kNone;
  float threshold = 0.5f;  ///< Of 2bit, above 0; of 1bit, any finite number.
};

/// "none", "1bit threshold=0" (or "1bit"), "2bit threshold=0.5" (or "2bit"), "fp16", "bf16".
[[nodiscard]] Result<Compression> parse_compression(std::string_view text);
[[nodiscard]] std::string_view name_of(data::Codec codec);

/// Codes of 1bit and 2bit stand for finite numbers alone: who made them counted the others.
[[nodiscard]] constexpr bool is_of_few_bits(data::Codec codec) {
  return codec == data::Codec::kOneBit || codec == data::Codec::kTwoBit;
}

/// Gradients of parameters alone are compressed, and float32 alone.
[[nodiscard]] constexpr bool is_compressible(data::Dtype dtype, bool auxiliary) {
  return dtype == data::Dtype::kFloat32 && !auxiliary;
}
/// The bytes of a payload of `n` float32 elements.
[[nodiscard]] std::size_t compressed_bytes(data::Codec codec, std::size_t n);

/// Why a payload of the right size makes no sense; empty: it does.
[[nodiscard]] std::string_view payload_error(data::Codec codec, const std::byte* payload);
/// Of a 2bit payload.
[[nodiscard]] float two_bit_threshold(const std::byte* payload);
/// What lies before the codes.
constexpr std::size_t kOneBitHeadBytes = 4;
constexpr std::size_t kTwoBitHeadBytes = 8;
/// How many of the gradient's `n` elements were infinite or NaN.
[[nodiscard]] std::size_t count_nonfinite(data::Codec codec, const std::byte* payload,
                                          std::size_t n);
/// out = what the payload says
void decode(data::Codec codec, float* out, const std::byte* payload, std::size_t n);
/// into += weight * what the payload says, in one pass
void decode_add(data::Codec codec, float* into, const std::byte* payload, float weight,
                std::size_t n);

/// The worker's side of one array: its residual, from 0, and the bytes that are being sent.
class GradientEncoder {
 public:
  /// The payload of a gradient of `n` elements, always the same `n`; valid until the next call.
  /// 1bit and 2bit cannot carry infinities and NaN: they count them, and their residual becomes 0.
  /// `adds`: false for a contribution without samples, which nobody decodes: it leaves the
  /// residual.
  [[nodiscard]] std::span<const std::byte> encode(const Compression& how, const float* gradient,
                                                  std::size_t n, bool adds);
  /// How many times as large as the gradient the residual of 2bit is (their norms), where it has
  /// been more than 10 times as large for 100 gradients, and larger than what a code can say: the
  /// threshold is too small to keep up. Else 0. Once; then 0 for ever.
  [[nodiscard]] double outgrown();

 private:
  void compare(const Compression& how, const float* gradient, std::size_t n);

  std::uint64_t encoded_ = 0;  ///< Gradients that add.
  std::uint32_t above_ = 0;    ///< Comparisons in a row with a residual that is too large.
  double times_ = 0;           ///< That of the last one.
  bool is_said_ = false;
  std::unique_ptr<float[]> residual_;
  std::unique_ptr<std::byte[]> payload_;  ///< Large enough for every codec.
};

}  // namespace dt::kv
