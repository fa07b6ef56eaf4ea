/// Compression of gradients that are sent to a server: the payload of each codec, and the worker's
/// encoder, which keeps the rest that a payload cannot represent (the residual) for the next round.
/// The arithmetic is in kernels/.
///
///     2bit          f32 threshold | u32 number of infinite or NaN elements | codes of two bits
///     fp16, bf16    codes of 16 bits
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "core/base/result.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

/// The user's setting.
struct Compression {
  data::Codec codec = data::Codec::kNone;
  float threshold = 0.5f;  ///< What a 2bit code adds or takes; above 0.
};

/// "none", "2bit threshold=0.5" (or "2bit"), "fp16", "bf16".
[[nodiscard]] Result<Compression> parse_compression(std::string_view text);
using NamedCodec = std::pair<const char*, data::Codec>;
inline constexpr NamedCodec kCodecs[] = {{"none", data::Codec::kNone},
                                         {"2bit", data::Codec::kTwoBit},
                                         {"fp16", data::Codec::kFp16},
                                         {"bf16", data::Codec::kBf16}};
[[nodiscard]] std::string_view name_of(data::Codec codec);

/// Only float32 gradients of parameters are compressed.
[[nodiscard]] constexpr bool is_compressible(data::Dtype dtype, bool auxiliary) {
  return dtype == data::Dtype::kFloat32 && !auxiliary;
}
/// The bytes of a payload of `n` float32 elements; 0: the codec is unknown.
[[nodiscard]] std::size_t compressed_bytes(data::Codec codec, std::size_t n);

/// Why a payload of the right size is malformed; empty: it is valid.
[[nodiscard]] std::string_view payload_error(data::Codec codec, const std::byte* payload);
/// The threshold in a 2bit payload.
[[nodiscard]] float two_bit_threshold(const std::byte* payload);
/// Bytes before the codes.
constexpr std::size_t kTwoBitHeadBytes = 8;
/// How many of the gradient's `n` elements were infinite or NaN.
[[nodiscard]] std::size_t count_nonfinite(data::Codec codec, const std::byte* payload,
                                          std::size_t n);
/// out = the payload's values
void decode(data::Codec codec, float* out, const std::byte* payload, std::size_t n);
/// into += weight * the payload's values, in one pass
void decode_add(data::Codec codec, float* into, const std::byte* payload, float weight,
                std::size_t n);

/// Encodes the gradients of one array: keeps its residual, which begins at 0, and the payload that
/// is being sent.
class GradientEncoder {
 public:
  /// The payload of a gradient of `n` elements, the same `n` at each call; valid until the next
  /// call. 2bit cannot represent infinities and NaN: it counts them, and their residual becomes
  /// 0. `adds`: false for a contribution without samples: it is not decoded, and does not
  /// change the residual.
  [[nodiscard]] std::span<const std::byte> encode(const Compression& how, const float* gradient,
                                                  std::size_t n, bool adds);
  /// The ratio of the norms of 2bit's residual and gradient, if the residual has been more than 10
  /// times as large for 100 gradients, and larger than a code can represent: the threshold is too
  /// small to keep up. Else 0. Returned once; later calls return 0.
  [[nodiscard]] double outgrown();

 private:
  void compare(const Compression& how, const float* gradient, std::size_t n);

  std::uint64_t encoded_ = 0;  ///< Number of encoded gradients with `adds`.
  std::uint32_t above_ = 0;    ///< Comparisons in a row with a residual that is too large.
  double times_ = 0;           ///< The last comparison's ratio.
  bool is_said_ = false;
  std::unique_ptr<float[]> residual_;
  std::unique_ptr<std::byte[]> payload_;  ///< Large enough for every codec.
};

}  // namespace dt::kv
