#include <rapidcheck.h>

#include <array>
#include <bit>

#include "kvstore/compute/kernels/kernels.h"
#include "test/kvstore/compute/kernel_support.h"
#include "test/support/catch.h"

using namespace dt::kv;

namespace {

// ---------------------------------------------------------------- references, one by one

/// The codec as DESIGN has it: r += g; r >= t: 11, r -= t; r <= -t: 10, r += t; else 00.
std::vector<std::uint8_t> plain_encode(std::vector<float>& residual,
                                       const std::vector<float>& gradient, float t) {
  std::vector<std::uint8_t> bytes(two_bit_bytes(gradient.size()));
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    float& r = residual[i];
    r += gradient[i];
    unsigned code = 0;
    if (r >= t) {
      code = 3;
      r -= t;
    } else if (r <= -t) {
      code = 2;
      r += t;
    }
    bytes[i / 4] = static_cast<std::uint8_t>(bytes[i / 4] | code << (6 - 2 * (i % 4)));
  }
  return bytes;
}

/// -1, 0 or 1.
int plain_code(const std::vector<std::uint8_t>& bytes, std::size_t i) {
  switch (bytes[i / 4] >> (6 - 2 * (i % 4)) & 3) {
    case 3:
      return 1;
    case 2:
      return -1;
    default:
      return 0;
  }
}

/// A 16-bit float with these bits of exponent and mantissa, in double arithmetic.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  HalfCodec Kernels::*codec;

  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  /// Exponent of the smallest subnormal.
  [[nodiscard]] int lowest() const { return 1 - bias() - mantissa_bits; }
  [[nodiscard]] std::uint16_t infinity() const {
    return static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  }
  [[nodiscard]] double value(std::uint16_t half) const {
    const int exponent = (half & 0x7fff) >> mantissa_bits;
    const int mantissa = half & ((1 << mantissa_bits) - 1);
    double x = 0;
    if (exponent == (1 << exponent_bits) - 1)
      x = mantissa ? std::nan("") : std::numeric_limits<double>::infinity();
    else if (exponent == 0)
      x = std::ldexp(mantissa, lowest());
    else
      x = std::ldexp((1 << mantissa_bits) + mantissa, exponent - 1 + lowest());
    return half & 0x8000 ? -x : x;
  }
  /// The nearest, ties to even.
  [[nodiscard]] std::uint16_t nearest(float from) const {
    const std::uint16_t sign = std::signbit(from) ? 0x8000 : 0;
    const double x = std::abs(static_cast<double>(from));
    if (std::isnan(x)) return static_cast<std::uint16_t>(sign | infinity() | 1);
    if (std::isinf(x)) return static_cast<std::uint16_t>(sign | infinity());
    if (x == 0) return sign;
    int exponent = 0;
    std::frexp(x, &exponent);
    int unit = std::max(exponent - 1 - mantissa_bits, lowest());
    // nearbyint rounds ties to even.
    double steps = std::nearbyint(std::ldexp(x, -unit));
    if (steps == (1 << (mantissa_bits + 1))) {
      steps /= 2;
      ++unit;
    }
    // Counted from zero, halves are consecutive integers; beyond the last one is infinity.
    const int code = static_cast<int>(steps) + ((unit - lowest()) << mantissa_bits);
    return static_cast<std::uint16_t>(sign | std::min<int>(code, infinity()));
  }
  /// The same, but a finite number becomes no infinity: the largest code is the nearest then.
  [[nodiscard]] std::uint16_t nearest_finite(float from) const {
    const auto code = nearest(from);
    return std::isfinite(from) && (code & 0x7fff) == infinity()
               ? static_cast<std::uint16_t>(code - 1)
               : code;
  }
};

const Format kFp16 = {5, 10, &Kernels::fp16};
const Format kBf16 = {8, 7, &Kernels::bf16};

bool is_nan(const Format& format, std::uint16_t half) {
  return (half & 0x7fff) > format.infinity();
}

/// "" or the first code that is not the wanted one; any NaN of the sign will do.
std::string difference(const Format& format, const std::vector<std::uint16_t>& got,
                       const std::vector<std::uint16_t>& wanted) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const bool both_nan = is_nan(format, got[i]) && is_nan(format, wanted[i]) &&
                          (got[i] & 0x8000) == (wanted[i] & 0x8000);
    if (got[i] != wanted[i] && !both_nan)
      return "element " + std::to_string(i) + ": " + std::to_string(got[i]) + " instead of " +
             std::to_string(wanted[i]);
  }
  return {};
}

std::vector<std::uint16_t> all_halves() {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  return all;
}

/// Every half, the middle between each two, the floats next to both, and floats of every kind.
std::vector<float> dense_floats(const Format& format) {
  std::vector<float> all;
  const float infinity = std::numeric_limits<float>::infinity();
  for (std::uint32_t half = 0; half <= format.infinity(); ++half) {
    const auto here = static_cast<float>(format.value(static_cast<std::uint16_t>(half)));
    const auto next = static_cast<float>(format.value(static_cast<std::uint16_t>(half + 1)));
    const float middle = half + 1 < format.infinity() ? here / 2 + next / 2 : here;
    for (const float x : {here, middle})
      for (const float y : {x, std::nextafter(x, infinity), std::nextafter(x, -infinity)}) {
        all.push_back(y);
        all.push_back(-y);
      }
  }
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 10007)
    all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  // The first that becomes infinite, and its neighbour.
  for (const float x : {65519.996F, 65520.0F, 65504.0F, 65535.0F, 3.3961776e38F})
    all.insert(all.end(), {x, -x});
  return all;
}

}  // namespace

// ---------------------------------------------------------------- 2bit

TEST_CASE("2bit: three steps worked out by hand, byte for byte", "[codec]") {
  const std::vector<std::vector<float>> gradients = {
      {0.5F, -0.5F, 0.25F, -0.25F, 1.25F, 0.4375F, -2, 0, -0.0F},
      {0.25F, 0.25F, 0.25F, -0.25F, 0, 0.0625F, 0, -0.5F, 0.125F},
      {0, 0, 0, 0, 0, 0, 0, 0, 0}};
  const std::vector<std::array<std::uint8_t, 4>> bytes = {
      {0b11100000, 0b11001000, 0, 0}, {0b00001110, 0b11111010, 0, 0}, {0, 0b00001000, 0, 0}};
  const std::vector<std::vector<float>> residuals = {
      {0, 0, 0.25F, -0.25F, 0.75F, 0.4375F, -1.5F, 0, 0},
      {0.25F, 0.25F, 0, 0, 0.25F, 0, -1, 0, 0.125F},
      {0.25F, 0.25F, 0, 0, 0.25F, 0, -0.5F, 0, 0.125F}};
  const std::vector<std::vector<float>> decoded = {{0.5F, -0.5F, 0, 0, 0.5F, 0, -0.5F, 0, 0},
                                                   {0, 0, 0.5F, -0.5F, 0.5F, 0.5F, -0.5F, -0.5F, 0},
                                                   {0, 0, 0, 0, 0, 0, -0.5F, 0, 0}};
  // One word, and enough words for every level's widest loop.
  for (const auto& level : levels())
    for (const std::size_t words : {1U, 10U}) {
      INFO(level.name << ", " << words << " words");
      const auto& codec = level.kernels->two_bit;
      const std::size_t n = 16 * (words - 1) + 9;
      const auto repeated = [&](const std::vector<float>& nine) {
        std::vector<float> all(n);
        for (std::size_t i = 0; i < n; ++i) all[i] = i % 16 < 9 ? nine[i % 16] : 0;
        return all;
      };
      REQUIRE(two_bit_bytes(n) == 4 * words);
      std::vector<float> residual(n);
      for (std::size_t step = 0; step < gradients.size(); ++step) {
        INFO("step " << step);
        std::vector<std::array<std::uint8_t, 4>> codes(words, {0xff, 0xff, 0xff, 0xff});
        const auto gradient = repeated(gradients[step]);
        CHECK(codec.encode(codes.data(), residual.data(), gradient.data(), 0.5F, n) == 0);
        for (const auto& word : codes) CHECK(word == bytes[step]);
        CHECK(difference(residual, repeated(residuals[step])) == "");
        std::vector<float> out(n, 7);
        codec.decode(out.data(), codes.data(), 0.5F, n);
        CHECK(difference(out, repeated(decoded[step])) == "");
      }
    }
}

TEST_CASE("2bit: every level, size and address has the bytes and residuals of the reference",
          "[codec]") {
  for (const auto& level : levels())
    for (const std::size_t n : kSizes)
      for (const std::size_t offset : kOffsets) {
        INFO(level.name << ", " << n << " elements, " << offset << " bytes off");
        const auto& codec = level.kernels->two_bit;
        const float t = 0.3F;
        std::vector<float> residual(n);
        Array<float> got_residual(residual, offset);
        for (std::uint32_t step = 0; step < 3; ++step) {
          const auto gradient = numbers<float>(n, 70 + step);
          const auto bytes = plain_encode(residual, gradient, t);
          Array<float> from(gradient, offset);
          Array<std::uint8_t> codes(std::vector<std::uint8_t>(two_bit_bytes(n), 0x55), offset);
          CHECK(codec.encode(codes.data(), got_residual.data(), from.data(), t, n) ==
                count_nonfinite(residual));
          CHECK(codes.values() == bytes);
          CHECK(difference(got_residual.values(), residual) == "");
          CHECK(codes.is_whole());
          CHECK(got_residual.is_whole());
        }
      }
}

TEST_CASE("2bit: any bytes decode, and where nothing was sent nothing changes", "[codec]") {
  std::mt19937 random(1);
  for (const auto& level : levels())
    for (const std::size_t n : kSizes)
      for (const std::size_t offset : kOffsets) {
        INFO(level.name << ", " << n << " elements, " << offset << " bytes off");
        const auto& codec = level.kernels->two_bit;
        const float t = 0.3F;
        const float weight = 7;
        std::vector<std::uint8_t> bytes(two_bit_bytes(n));
        for (auto& b : bytes) b = static_cast<std::uint8_t>(random());
        const auto before = numbers<float>(n, 5);
        std::vector<float> out(n);
        auto sum = before;
        for (std::size_t i = 0; i < n; ++i) {
          const int code = plain_code(bytes, i);
          out[i] = code > 0 ? t : code < 0 ? -t : 0;
          const float product = weight * t;
          if (code != 0) sum[i] = code > 0 ? before[i] + product : before[i] - product;
        }
        Array<std::uint8_t> codes(bytes, offset);
        Array<float> got(n, offset);
        codec.decode(got.data(), codes.data(), t, n);
        CHECK(difference(got.values(), out) == "");
        CHECK(got.is_whole());
        got = Array<float>(before, offset);
        codec.decode_add(got.data(), codes.data(), t, weight, n);
        CHECK(difference(got.values(), sum) == "");
        CHECK(got.is_whole());
      }
}

TEST_CASE("2bit: what was sent and what is left over make up all gradients", "[codec][property]") {
  const bool holds =
      rc::check("sent + residual = sum of gradients", [](const std::vector<std::int8_t>& steps) {
        // Multiples of 1/16 below 2^11: all of the arithmetic is exact.
        const std::size_t n = 21;
        for (const auto& level : levels()) {
          std::vector<float> total(n), residual(n), received(n);
          std::vector<std::uint8_t> codes(two_bit_bytes(n));
          for (const std::int8_t step : steps) {
            std::vector<float> gradient(n);
            for (std::size_t i = 0; i < n; ++i) {
              gradient[i] = static_cast<float>(step * (static_cast<int>(i) - 10)) / 16;
              total[i] += gradient[i];
            }
            level.kernels->two_bit.encode(codes.data(), residual.data(), gradient.data(), 0.5F, n);
            level.kernels->two_bit.decode_add(received.data(), codes.data(), 0.5F, 1, n);
          }
          for (std::size_t i = 0; i < n; ++i) RC_ASSERT(received[i] + residual[i] == total[i]);
        }
      });
  CHECK(holds);
}

// ---------------------------------------------------------------- fp16, bf16

TEST_CASE("half: all 65536 codes decode to the value they stand for", "[codec]") {
  const auto codes = all_halves();
  for (const Format& format : {kFp16, kBf16}) {
    std::vector<float> first;
    for (const auto& level : levels()) {
      INFO(level.name << ", " << format.mantissa_bits << " bits of mantissa");
      std::vector<float> out(codes.size());
      (level.kernels->*format.codec).decode(out.data(), codes.data(), codes.size());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < codes.size(); ++i) {
        const double value = format.value(codes[i]);
        if (!same(out[i], static_cast<float>(value)) || std::signbit(out[i]) != (i >= 0x8000))
          ++wrong;
      }
      CHECK(wrong == 0);
      // NaNs too, bit for bit.
      if (first.empty()) first = out;
      CHECK(std::memcmp(first.data(), out.data(), out.size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("half: encoding takes the nearest code, ties to even, too large to the largest",
          "[codec]") {
  for (const Format& format : {kFp16, kBf16}) {
    const auto values = dense_floats(format);
    std::vector<std::uint16_t> wanted(values.size());
    std::size_t bad = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float sum = 0.0F + values[i];  // what -0 becomes on top of no residual
      wanted[i] = format.nearest_finite(sum);
      if ((wanted[i] & format.infinity()) == format.infinity()) ++bad;
    }
    std::vector<std::uint16_t> first;
    for (const auto& level : levels()) {
      INFO(level.name << ", " << format.mantissa_bits << " bits of mantissa");
      const auto& codec = level.kernels->*format.codec;
      std::vector<std::uint16_t> codes(values.size());
      std::vector<float> residual(values.size());
      CHECK(codec.encode(codes.data(), residual.data(), values.data(), values.size()) == bad);
      CHECK(difference(format, codes, wanted) == "");
      if (first.empty()) first = codes;
      CHECK((codes == first));  // one bit of answer: Catch would print 400 KB
    }
  }
}

TEST_CASE("half: a value becomes the nearest code, ties to even, too large infinite", "[codec]") {
  for (const Format& format : {kFp16, kBf16}) {
    const auto values = dense_floats(format);
    std::vector<std::uint16_t> wanted(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) wanted[i] = format.nearest(values[i]);
    std::vector<std::uint16_t> first;
    for (const auto& level : levels()) {
      INFO(level.name << ", " << format.mantissa_bits << " bits of mantissa");
      const auto& codec = level.kernels->*format.codec;
      std::vector<std::uint16_t> halves(values.size());
      codec.narrow(halves.data(), values.data(), values.size());
      CHECK(difference(format, halves, wanted) == "");
      if (first.empty()) first = halves;
      CHECK((halves == first));  // NaNs too, bit for bit
    }
  }
}

TEST_CASE("half: every size and address, and a residual keeps what a code could not say",
          "[codec]") {
  for (const Format& format : {kFp16, kBf16})
    for (const auto& level : levels())
      for (const std::size_t n : kSizes)
        for (const std::size_t offset : kOffsets) {
          INFO(level.name << ", " << format.mantissa_bits << " bits of mantissa, " << n
                          << " elements, " << offset << " bytes off");
          const auto& codec = level.kernels->*format.codec;
          std::vector<float> residual(n);
          Array<float> got_residual(n, offset);
          for (std::uint32_t step = 0; step < 3; ++step) {
            const auto gradient = numbers<float>(n, 90 + step);
            const auto before = numbers<float>(n, 80);
            const float weight = 0.7F;
            std::vector<std::uint16_t> sent(n);
            std::vector<float> decoded(n), sum(n);
            std::size_t bad = 0;
            for (std::size_t i = 0; i < n; ++i) {
              const float r = residual[i] + gradient[i];
              sent[i] = format.nearest_finite(r);
              decoded[i] = static_cast<float>(format.value(sent[i]));
              const bool is_finite = std::isfinite(decoded[i]);
              residual[i] = is_finite ? r - decoded[i] : 0;
              if (!is_finite) ++bad;
              const float product = weight * decoded[i];
              sum[i] = before[i] + product;
            }
            Array<float> from(gradient, offset);
            Array<std::uint16_t> codes(n, offset + 1);
            CHECK(codec.encode(codes.data(), got_residual.data(), from.data(), n) == bad);
            CHECK(difference(format, codes.values(), sent) == "");
            CHECK(difference(got_residual.values(), residual) == "");
            CHECK(codes.is_whole());
            CHECK(got_residual.is_whole());
            Array<float> out(n, offset);
            codec.decode(out.data(), codes.data(), n);
            CHECK(difference(out.values(), decoded) == "");
            CHECK(out.is_whole());
            out = Array<float>(before, offset);
            codec.decode_add(out.data(), codes.data(), weight, n);
            CHECK(difference(out.values(), sum) == "");
            CHECK(out.is_whole());
            std::vector<std::uint16_t> narrowed(n);
            for (std::size_t i = 0; i < n; ++i) narrowed[i] = format.nearest(gradient[i]);
            codes = Array<std::uint16_t>(n, offset + 1);
            codec.narrow(codes.data(), from.data(), n);
            CHECK(difference(format, codes.values(), narrowed) == "");
            CHECK(codes.is_whole());
          }
        }
}

TEST_CASE("half: what is too large for a code is sent as the largest, the rest in later rounds",
          "[codec]") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> spikes = {65504,  65519,      65520,   65536,     -70000, 200000,
                                     -65505, -kInfinity, 3.4e38F, kInfinity, NAN,    1};
  for (const std::size_t copies : {std::size_t{1}, std::size_t{5}}) {  // alone, and in vectors
    std::vector<float> gradient;
    for (std::size_t c = 0; c < copies; ++c)
      gradient.insert(gradient.end(), spikes.begin(), spikes.end());
    const std::size_t n = gradient.size();
    for (const auto& level : levels()) {
      INFO(level.name << ", " << n);
      const auto& codec = level.kernels->fp16;
      std::vector<float> residual(n);
      std::vector<float> sum(n);
      std::vector<std::uint16_t> codes(n);
      CHECK(codec.encode(codes.data(), residual.data(), gradient.data(), n) == 3 * copies);
      const std::vector<float> nothing(n);
      for (int round = 0; round < 4; ++round) {
        codec.decode_add(sum.data(), codes.data(), 1, n);
        CHECK(codec.encode(codes.data(), residual.data(), nothing.data(), n) == 0);
      }
      for (std::size_t i = 0; i < n; ++i) {
        CAPTURE(i, gradient[i], sum[i], residual[i]);
        if (gradient[i] > 1e38F)
          CHECK((std::isinf(sum[i]) || sum[i] == 4 * 65504.0F));
        else if (std::isfinite(gradient[i]))
          CHECK(sum[i] == gradient[i]);
      }
    }
  }
}
