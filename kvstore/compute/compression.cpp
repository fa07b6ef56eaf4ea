#include "kvstore/compute/compression.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/number.h"
#include "core/base/words.h"
#include "kvstore/compute/kernels/kernels.h"

namespace dt::kv {

namespace {

using data::Codec;

/// A residual has outgrown its gradients if it is this many times as large for this many gradients.
constexpr double kTooMany = 10;
constexpr std::uint32_t kTooLong = 100;
constexpr std::uint32_t kCompareEvery = 10;

struct TwoBitHead {
  float threshold = 0;
  std::uint32_t nonfinite = 0;
};
static_assert(sizeof(TwoBitHead) == kTwoBitHeadBytes);

TwoBitHead head_of(const std::byte* payload) {
  TwoBitHead head;
  std::memcpy(&head, payload, sizeof head);
  return head;
}

bool is_threshold(float value) { return std::isfinite(value) && value > 0; }

const HalfCodec& half_codec(Codec codec) {
  return codec == Codec::kFp16 ? kernels().fp16 : kernels().bf16;
}

const std::uint16_t* half_codes(const std::byte* payload) {
  return reinterpret_cast<const std::uint16_t*>(payload);
}

}  // namespace

Result<Compression> parse_compression(std::string_view text) {
  const auto name = next_word(text);
  if (name == "1bit")
    return fail(ErrorKind::kInvalid,
                "gradient compression: 1bit is gone since 0.1.0: take 2bit or fp16");
  const auto known = std::ranges::find(kCodecs, name, &NamedCodec::first);
  if (known == std::end(kCodecs))
    return fail(ErrorKind::kInvalid, "gradient compression: '{}' is none of none, 2bit, fp16, bf16",
                name);
  Compression how{.codec = known->second};
  for (auto option = next_word(text); !option.empty(); option = next_word(text)) {
    constexpr std::string_view kThreshold = "threshold=";
    if (how.codec != Codec::kTwoBit || !option.starts_with(kThreshold))
      return fail(ErrorKind::kInvalid, "gradient compression: '{}' is not an option of {}", option,
                  name);
    const auto threshold = parse_number<decltype(how.threshold)>(option.substr(kThreshold.size()));
    if (!threshold || !is_threshold(*threshold))
      return fail(ErrorKind::kInvalid, "gradient compression: '{}' needs a number above 0", option);
    how.threshold = *threshold;
  }
  return how;
}

std::string_view name_of(Codec codec) {
  const auto known = std::ranges::find(kCodecs, codec, &NamedCodec::second);
  return known != std::end(kCodecs) ? known->first : "?";
}

std::size_t compressed_bytes(Codec codec, std::size_t n) {
  if (codec == Codec::kTwoBit) return kTwoBitHeadBytes + two_bit_bytes(n);
  if (codec == Codec::kFp16 || codec == Codec::kBf16) return n * sizeof(std::uint16_t);
  return codec == Codec::kNone ? n * sizeof(float) : 0;
}

std::string_view payload_error(Codec codec, const std::byte* payload) {
  if (codec != Codec::kTwoBit || is_threshold(head_of(payload).threshold)) return {};
  return "its threshold is not a number above 0";
}

float two_bit_threshold(const std::byte* payload) { return head_of(payload).threshold; }

std::size_t count_nonfinite(Codec codec, const std::byte* payload, std::size_t n) {
  if (codec == Codec::kTwoBit) return std::min<std::size_t>(head_of(payload).nonfinite, n);
  const unsigned exponent = codec == Codec::kFp16 ? 0x7c00 : 0x7f80;
  std::size_t count = 0;
  for (std::size_t i = 0; i < n; ++i) {
    std::uint16_t code = 0;
    std::memcpy(&code, payload + i * sizeof code, sizeof code);
    count += (code & exponent) == exponent ? 1 : 0;
  }
  return count;
}

void decode(Codec codec, float* out, const std::byte* payload, std::size_t n) {
  if (codec != Codec::kTwoBit) return half_codec(codec).decode(out, half_codes(payload), n);
  const auto head = head_of(payload);
  kernels().two_bit.decode(out, payload + sizeof head, head.threshold, n);
}

void decode_add(Codec codec, float* into, const std::byte* payload, float weight, std::size_t n) {
  if (codec == Codec::kTwoBit) {
    const auto head = head_of(payload);
    kernels().two_bit.decode_add(into, payload + sizeof head, head.threshold, weight, n);
  } else {
    half_codec(codec).decode_add(into, half_codes(payload), weight, n);
  }
}

std::span<const std::byte> GradientEncoder::encode(const Compression& how, const float* gradient,
                                                   std::size_t n, bool adds) {
  if (!payload_) {
    residual_ = std::make_unique<float[]>(n);
    // Never replaced: a connection that broke may still point to it.
    payload_ = std::make_unique_for_overwrite<std::byte[]>(
        std::max(compressed_bytes(Codec::kTwoBit, n), compressed_bytes(Codec::kFp16, n)));
  }
  std::byte* out = payload_.get();
  const std::span<const std::byte> payload(out, compressed_bytes(how.codec, n));
  if (!adds) std::memset(out, 0, payload.size());
  float* const residual = residual_.get();
  std::size_t nonfinite = 0;
  if (adds && how.codec == Codec::kTwoBit)
    nonfinite =
        kernels().two_bit.encode(out + kTwoBitHeadBytes, residual, gradient, how.threshold, n);
  else if (adds)
    half_codec(how.codec).encode(reinterpret_cast<std::uint16_t*>(out), residual, gradient, n);
  if (nonfinite > 0)
    std::replace_if(
        residual, residual + n, [](float r) { return !std::isfinite(r); }, 0.0f);
  const TwoBitHead head{how.threshold, static_cast<std::uint32_t>(nonfinite)};
  if (how.codec == Codec::kTwoBit) std::memcpy(out, &head, sizeof head);
  if (adds && how.codec == Codec::kTwoBit && ++encoded_ % kCompareEvery == 0)
    compare(how, gradient, n);
  return payload;
}

/// Compares a few thousand elements: a sufficient sample at little cost.
void GradientEncoder::compare(const Compression& how, const float* gradient, std::size_t n) {
  constexpr std::size_t kLookedAt = 4096;
  const std::size_t stride = std::max<std::size_t>(1, n / kLookedAt);
  double kept = 0;
  double given = 0;
  double codes = 0;
  for (std::size_t i = 0; i < n; i += stride) {
    const auto r = static_cast<double>(residual_[i]);
    const auto g = std::isfinite(gradient[i]) ? static_cast<double>(gradient[i]) : 0;
    kept += r * r;
    given += g * g;
    codes += static_cast<double>(how.threshold) * static_cast<double>(how.threshold);
  }
  const bool is_above = given > 0 && kept > kTooMany * kTooMany * given && kept > codes;
  above_ = is_above ? above_ + 1 : 0;
  if (is_above) times_ = std::sqrt(kept / given);
}

double GradientEncoder::outgrown() {
  if (is_said_ || above_ * kCompareEvery < kTooLong) return 0;
  is_said_ = true;
  return times_;
}

}  // namespace dt::kv
