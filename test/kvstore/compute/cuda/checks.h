/// The checks of kvstore/compute/cuda, for any place its operations run: each draws its inputs,
/// poisons its outputs and holds the results against plain loops (every bit) and float64 (a bound).
///
/// The bounds: an operation in T errs by at most u = epsilon/2 of its result, a sum of products by
/// u times the operations an element passes through times the sum of sizes; constants are given
/// to both sides as they are in T, so they have no error.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "kvstore/compute/cuda/codecs.h"
#include "kvstore/compute/cuda/cuda_steps.h"
#include "kvstore/compute/cuda/sum.h"
#include "test/kvstore/compute/cuda/places.h"
#include "test/kvstore/compute/cuda/plain_formats.h"

namespace dt::kv::cuda {

using Random = std::mt19937_64;

/// Collects the checks' errors: the first few sentences are kept.
struct Findings {
  std::vector<std::string> wrong;
  std::uint64_t made = 0;

  void check(bool is_right, const std::string& what) {
    ++made;
    constexpr std::size_t kEnough = 5;
    if (!is_right && wrong.size() < kEnough) wrong.push_back(what);
  }
  void same(const std::string& difference, const std::string& what) {
    check(difference.empty(), what + ": " + difference);
  }
};

/// Around an item, the items of a thread, and tiles of each operation.
inline const std::size_t kLengths[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 1000, 4097, 9001};

/// The largest relative error of rounding normal numbers, and the largest absolute one of
/// subnormal numbers.
template <class T>
constexpr double unit = static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;
template <class T>
constexpr double tiny = static_cast<double>(std::numeric_limits<T>::denorm_min());

template <class T>
std::uint64_t count_nonfinite(const std::vector<T>& values) {
  std::uint64_t count = 0;
  for (const T x : values) count += std::isfinite(x) ? 0 : 1;
  return count;
}

template <class T>
double as_double(T x) {
  return static_cast<double>(x);
}

template <class In, unsigned kMost, class Where>
void check_sum(Findings& findings, Random& random) {
  using Math = typename In::Math;
  for (const std::size_t n : kLengths)
    for (unsigned count = 1; count <= kMost; ++count) {
      const std::size_t shift = random() % 3;  // 0: aligned
      const bool strange = random() % 2 == 0;
      const bool is_mean = random() % 2 == 0;
      const std::string what = std::to_string(count) + " sources of " + std::to_string(n) +
                               (strange ? ", strange" : "") + (is_mean ? ", mean" : "");
      std::vector<std::vector<typename In::Element>> values;
      std::vector<std::vector<Math>> wide;
      std::vector<GuardedArray<typename In::Element, Where>> arrays;
      Sum<In, kMost> operation;
      typename Sum<In, kMost>::Tensor tensor;
      std::vector<Math> weights;
      operation.sum.count = count;
      for (unsigned k = 0; k < count; ++k) {
        values.push_back(Plain<In>::numbers(n, random, strange));
        wide.push_back(Plain<In>::widened(values.back()));
        arrays.emplace_back(values.back(), shift);
        weights.push_back(is_mean ? static_cast<Math>(1 + random() % 300) : Math{1});
        operation.sum.weights[k] = weights.back();
        tensor.sources[k] = arrays.back().data();
      }
      operation.sum.divisor = is_mean ? static_cast<Math>(1 + random() % 999) : Math{1};
      GuardedArray<Math, Where> out(n, random() % 8 == 0 ? 1 : shift);
      tensor.out = out.data();
      tensor.elements = n;
      const std::uint64_t nonfinite = Where::run(operation, {tensor});
      const auto got = out.values();
      const auto wanted = plain_sum(wide, weights, operation.sum.divisor);
      findings.same(difference(got, wanted), what);
      findings.check(out.is_whole(), what + ": written outside");
      findings.check(nonfinite == count_nonfinite(wanted), what + ": non-finite");
      if (strange) continue;
      for (std::size_t i = 0; i < n; ++i) {
        double exact = 0;
        double size = 0;
        for (unsigned k = 0; k < count; ++k) {
          exact += as_double(weights[k]) * as_double(wide[k][i]);
          size += std::fabs(as_double(weights[k]) * as_double(wide[k][i]));
        }
        exact /= as_double(operation.sum.divisor);
        size /= as_double(operation.sum.divisor);
        const double bound = (2 * count + 2) * size * unit<Math> + tiny<Math>;
        if (!(std::fabs(as_double(got[i]) - exact) <= bound)) {
          findings.check(false, what + ": too far from float64");
          break;
        }
      }
    }
}

/// The result may take a source's place.
template <class Where>
void check_sum_in_place(Findings& findings, Random& random) {
  for (const std::size_t n : kLengths) {
    const auto a = dt::kv::numbers<float>(n, static_cast<std::uint32_t>(random()));
    const auto b = dt::kv::numbers<float>(n, static_cast<std::uint32_t>(random()));
    GuardedArray<float, Where> into(a, random() % 2);
    GuardedArray<float, Where> from(b, 0);
    Sum<Float32, 2> operation;
    operation.sum.count = 2;
    Where::run(operation, {{{into.data(), from.data()}, into.data(), n}});
    findings.same(difference(into.values(), plain_sum<float>({a, b}, {}, 1)),
                  std::to_string(n) + " in place");
    findings.check(into.is_whole(), "written outside");
  }
}

template <class In, class Where>
void check_add(Findings& findings, Random& random) {
  using Math = typename In::Math;
  for (const std::size_t n : kLengths) {
    const auto a = dt::kv::numbers<Math>(n, static_cast<std::uint32_t>(random()));
    const auto b = Plain<In>::numbers(n, random, true);
    const Math weight = random() % 2 == 0 ? Math{1} : static_cast<Math>(random() % 1000) / 128;
    GuardedArray<Math, Where> into(a, random() % 2);
    GuardedArray<typename In::Element, Where> from(b, random() % 2);
    Add<In> operation;
    operation.weight = weight;
    const std::uint64_t nonfinite = Where::run(operation, {{into.data(), from.data(), n}});
    auto wanted = a;
    for (std::size_t i = 0; i < n; ++i) {
      const Math product = weight * Plain<In>::widen(b[i]);
      wanted[i] = a[i] + product;
    }
    const std::string what = "adding " + std::to_string(n);
    findings.same(difference(into.values(), wanted), what);
    findings.check(nonfinite == Plain<In>::count_nonfinite(b), what + ": non-finite");
    findings.check(into.is_whole(), what + ": written outside");
  }
}

/// Every 16-bit code is widened to its number.
template <class Half, class Where>
void check_widening(Findings& findings, Random&) {
  std::vector<std::uint16_t> all;
  for (unsigned code = 0; code < 0x10000; ++code) all.push_back(static_cast<std::uint16_t>(code));
  GuardedArray<std::uint16_t, Where> codes(all, 0);
  GuardedArray<float, Where> out(all.size(), 0);
  Where::run(Sum<Half, 1>(), {{{codes.data()}, out.data(), all.size()}});
  findings.same(difference(out.values(), Plain<Half>::widened(all)), "widening");
}

/// Steps over tensors of every length and alignment, and their references.
template <class Operation, class Where>
class StepsCheck {
 public:
  using Math = typename Operation::Math;
  using Tensor = typename Operation::Tensor;

  StepsCheck(Findings& findings, Random& random, bool strange, unsigned count)
      : findings_(findings), random_(random), strange_(strange), count_(count) {
    for (const std::size_t n : kLengths) parts_.emplace_back(*this, n);
  }

  /// plain(w, first, second, gradient): the rule for one element. bound(the same): float64's new w
  /// and its largest error, given the gradient's sum (check_sum has the bound of that).
  template <class Rule, class Bound>
  void step(Operation operation, Rule plain, Bound bound, const std::string& what) {
    std::vector<Tensor> tensors;
    std::uint64_t nonfinite = 0;
    const bool is_mean = count_ > 1;
    operation.gradient.count = count_;
    std::vector<Math> weights;
    for (unsigned k = 0; k < count_; ++k) {
      weights.push_back(is_mean ? static_cast<Math>(1 + random_() % 64) : Math{1});
      operation.gradient.weights[k] = weights.back();
    }
    operation.gradient.divisor = is_mean ? Math{37} : Math{1};
    std::vector<std::vector<double>> exact;
    std::vector<std::vector<double>> errors;
    for (auto& part : parts_) {
      std::vector<std::vector<Math>> wide;
      part.gradients.clear();
      tensors.push_back(part.tensor());
      for (unsigned k = 0; k < count_; ++k) {
        wide.push_back(
            dt::kv::numbers<Math>(part.size, static_cast<std::uint32_t>(random_()), strange_));
        part.gradients.emplace_back(wide.back(), part.shift);
        tensors.back().gradients[k] = part.gradients.back().data();
      }
      const auto gradient = plain_sum(wide, weights, operation.gradient.divisor);
      errors.emplace_back();
      exact.emplace_back();
      for (std::size_t i = 0; i < part.size; ++i) {
        const auto [value, error] = bound(as_double(part.w[i]), as_double(part.first[i]),
                                          as_double(part.second[i]), as_double(gradient[i]));
        exact.back().push_back(value);
        errors.back().push_back(error);
        nonfinite += std::isfinite(gradient[i]) ? 0 : 1;
        plain(part.w[i], part.first[i], part.second[i], gradient[i]);
      }
    }
    const std::uint64_t found = Where::run(operation, tensors);
    findings_.check(found == nonfinite, what + ": non-finite");
    for (std::size_t t = 0; t < parts_.size(); ++t) {
      auto& part = parts_[t];
      const std::string where = what + ", tensor of " + std::to_string(part.size);
      const auto got = part.values.values();
      findings_.same(difference(got, part.w), where + ": values");
      findings_.same(difference(part.first_array.values(), part.first), where + ": first");
      findings_.same(difference(part.second_array.values(), part.second), where + ": second");
      findings_.check(part.is_whole(), where + ": written outside");
      if (strange_) continue;
      for (std::size_t i = 0; i < part.size; ++i)
        if (!(std::fabs(as_double(got[i]) - exact[t][i]) <= errors[t][i])) {
          findings_.check(false, where + ": too far from float64");
          break;
        }
    }
  }

 private:
  /// A tensor and its expected content.
  struct Part {
    Part(StepsCheck& check, std::size_t n)
        : size(n),
          shift(check.random_() % 3),
          w(dt::kv::numbers<Math>(n, static_cast<std::uint32_t>(check.random_()), check.strange_)),
          first(dt::kv::numbers<Math>(n, static_cast<std::uint32_t>(check.random_()), false)),
          second(dt::kv::numbers<Math>(n, static_cast<std::uint32_t>(check.random_()), false)),
          values(w, shift),
          first_array(first, 0),
          second_array(1, 0) {
      for (auto& x : second) x = std::fabs(x);
      second_array = GuardedArray<Math, Where>(second, 0);
    }
    [[nodiscard]] Tensor tensor() const {
      Tensor t;
      t.values = values.data();
      t.first = first_array.data();
      t.second = second_array.data();
      t.elements = size;
      return t;
    }
    [[nodiscard]] bool is_whole() const {
      return values.is_whole() && first_array.is_whole() && second_array.is_whole();
    }

    std::size_t size;
    std::size_t shift;
    std::vector<Math> w, first, second;
    GuardedArray<Math, Where> values, first_array, second_array;
    std::vector<GuardedArray<Math, Where>> gradients;
  };

  Findings& findings_;
  Random& random_;
  bool strange_;
  unsigned count_;
  std::vector<Part> parts_;
};

struct Bounded {
  double value, error;
};

template <class Format, unsigned kMost, class Where>
void check_sgd(Findings& findings, Random& random) {
  using Operation = Sgd<Format, kMost>;
  using Math = typename Operation::Math;
  for (const bool strange : {false, true})
    for (const Math momentum : {Math{0}, static_cast<Math>(0.9)})
      for (const bool nesterov : {false, true}) {
        const auto count = static_cast<unsigned>(1 + random() % kMost);
        StepsCheck<Operation, Where> check(findings, random, strange, count);
        for (int update = 0; update < 2; ++update) {
          Operation operation;
          operation.step.learning_rate = static_cast<Math>(0.1 / (1 + update));
          operation.step.momentum = momentum;
          operation.step.weight_decay = static_cast<Math>(random() % 2 == 0 ? 0 : 1e-3);
          operation.step.nesterov = nesterov;
          const auto step = operation.step;
          const auto plain = [&](Math& w, Math& m, Math&, Math g) { plain_sgd(w, m, g, step); };
          // At most eight operations lie between an input and the result.
          const auto bound = [&](double w, double m, double, double gradient) -> Bounded {
            const double rate = as_double(step.learning_rate);
            const double mu = as_double(step.momentum);
            const double decay = as_double(step.weight_decay);
            double g = gradient + decay * w;
            double size = std::fabs(gradient) + std::fabs(decay * w);
            if (mu != 0) {
              const double kept = mu * m + g;
              const double kept_size = std::fabs(mu * m) + size;
              g = nesterov ? g + mu * kept : kept;
              size = nesterov ? size + mu * kept_size : kept_size;
            }
            const double unit = dt::kv::cuda::unit<Math>;
            return {w - rate * g, 9 * unit * (std::fabs(w) + rate * size) + 1e-44};
          };
          check.step(operation, plain, bound,
                     std::string("sgd") + (strange ? ", strange" : "") +
                         (momentum != 0 ? ", momentum" : "") + (nesterov ? ", nesterov" : "") +
                         ", " + std::to_string(count) + " gradients");
        }
      }
}

template <class Format, unsigned kMost, class Where>
void check_adam(Findings& findings, Random& random) {
  using Operation = Adam<Format, kMost>;
  using Math = typename Operation::Math;
  for (const bool strange : {false, true})
    for (const bool decoupled : {false, true}) {
      const auto count = static_cast<unsigned>(1 + random() % kMost);
      StepsCheck<Operation, Where> check(findings, random, strange, count);
      for (int update = 1; update <= 2; ++update) {
        Operation operation;
        auto& step = operation.step;
        step.keep = static_cast<Math>(decoupled ? 1 - 1e-5 : 1);
        step.weight_decay = static_cast<Math>(decoupled ? 0 : 1e-2);
        step.beta1 = static_cast<Math>(0.9);
        step.rest1 = static_cast<Math>(0.1);
        step.beta2 = static_cast<Math>(0.999);
        step.rest2 = static_cast<Math>(0.001);
        step.step = static_cast<Math>(1e-3 / (1 - std::pow(0.9, update)));
        step.root_scale = static_cast<Math>(1 / std::sqrt(1 - std::pow(0.999, update)));
        step.eps = static_cast<Math>(1e-8);
        const auto plain = [&](Math& w, Math& m, Math& v, Math g) { plain_adam(w, m, v, g, step); };
        const auto bound = [&](double w, double m, double v, double gradient) -> Bounded {
          const double unit = dt::kv::cuda::unit<Math>;
          const double kept = as_double(step.keep) * w;
          const double decay = as_double(step.weight_decay) * kept;
          const double g = gradient + decay;
          const double g_size = std::fabs(gradient) + std::fabs(decay);
          const double first = as_double(step.beta1) * m + as_double(step.rest1) * g;
          const double first_size =
              std::fabs(as_double(step.beta1) * m) + as_double(step.rest1) * g_size;
          const double second = as_double(step.beta2) * v + as_double(step.rest2) * g * g;
          const double second_size =
              as_double(step.beta2) * v + as_double(step.rest2) * g_size * g_size;
          const double root = std::sqrt(second) * as_double(step.root_scale);
          const double below = root + as_double(step.eps);
          // The moments err by 6 and 11 units of their sizes, the root by half of the second one's
          // relative error; the root, the division, the product and the difference round again.
          const double first_error = 6 * unit * first_size;
          const double root_error =
              (second > 0 ? 11 * unit * second_size / second : 0) * root + 4 * unit * below;
          const double change = as_double(step.step) * first / below;
          const double error =
              as_double(step.step) *
                  (first_error / below + std::fabs(first) * root_error / (below * below)) +
              4 * unit * std::fabs(change) + 3 * unit * std::fabs(w) + 1e-44;
          return {kept - change, 1.01 * error};
        };
        check.step(operation, plain, bound,
                   std::string(decoupled ? "adamw" : "adam") + (strange ? ", strange" : "") + ", " +
                       std::to_string(count) + " gradients");
      }
    }
}

/// The value of each element of the codes.
template <class Codec>
struct PlainCodec;
template <>
struct PlainCodec<DecodeTwoBit> {
  using Add = AddTwoBit;
  static constexpr std::size_t kPerByte = 4;
  static constexpr float kThreshold = 0.375F;
  /// 01, which is never sent, means nothing, as 00 does.
  static float value(std::uint8_t byte, std::size_t k) {
    const float sent[] = {0, 0, -kThreshold, kThreshold};
    return sent[byte >> (6 - 2 * k) & 3];
  }
  template <class Operation>
  static void set(Operation& operation) {
    operation.threshold = kThreshold;
  }
};

/// Any bytes decoded, and added with a weight to any numbers.
template <class Decode, class Where>
void check_codes(Findings& findings, Random& random) {
  using Codec = PlainCodec<Decode>;
  for (const std::size_t n : kLengths) {
    std::vector<std::uint8_t> bytes((n + Codec::kPerByte - 1) / Codec::kPerByte);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    const auto before = dt::kv::numbers<float>(n, static_cast<std::uint32_t>(random()));
    const auto weight = static_cast<float>(random() % 1000) / 128;
    std::vector<float> decoded(n);
    std::vector<float> added = before;
    for (std::size_t i = 0; i < n; ++i) {
      decoded[i] = Codec::value(bytes[i / Codec::kPerByte], i % Codec::kPerByte);
      // Elements without a code are not added to: -0 stays -0.
      if (decoded[i] != 0) added[i] += weight * decoded[i];
    }
    const std::string what = std::to_string(n) + " codes";
    GuardedArray<std::uint8_t, Where> codes(bytes, random() % 2);
    GuardedArray<float, Where> out(n, random() % 2);
    Decode decode;
    Codec::set(decode);
    Where::run(decode, {{out.data(), codes.data(), n}});
    findings.same(difference(out.values(), decoded), what + ", decoded");
    findings.check(out.is_whole(), what + ", decoded: written outside");
    GuardedArray<float, Where> into(before, random() % 2);
    typename Codec::Add add;
    Codec::set(add);
    add.weight = weight;
    Where::run(add, {{into.data(), codes.data(), n}});
    findings.same(difference(into.values(), added), what + ", added");
    findings.check(into.is_whole(), what + ", added: written outside");
  }
}

/// Codes written out by hand.
template <class Where>
void check_codes_by_hand(Findings& findings, Random&) {
  const float t = 0.5F;
  GuardedArray<std::uint8_t, Where> twos(std::vector<std::uint8_t>{0b11100011, 0b10000000}, 0);
  GuardedArray<float, Where> out(5, 0);
  DecodeTwoBit decode;
  decode.threshold = t;
  Where::run(decode, {{out.data(), twos.data(), 5}});
  findings.same(difference(out.values(), {t, -t, 0, t, -t}), "decoded");
  GuardedArray<std::uint8_t, Where> strange(std::vector<std::uint8_t>{0b01101101}, 0);
  GuardedArray<float, Where> into({1.0F, 1.0F, 1.0F, -0.0F}, 0);
  AddTwoBit add;
  add.threshold = t;
  add.weight = 3;
  Where::run(add, {{into.data(), strange.data(), 4}});
  findings.same(difference(into.values(), {1.0F, -0.5F, 2.5F, -0.0F}), "added");
}

struct Check {
  const char* name;
  void (*run)(Findings&, Random&);
};

/// All checks, for operations that run at Where.
template <class Where>
std::vector<Check> all_checks() {
  return {
      {"sum of float32", check_sum<Float32, 8, Where>},
      {"sum of float32, room for 1", check_sum<Float32, 1, Where>},
      {"sum of float32, room for 2", check_sum<Float32, 2, Where>},
      {"sum of float32, room for 4", check_sum<Float32, 4, Where>},
      {"sum of float64", check_sum<Float64, 8, Where>},
      {"sum of float64, room for 1", check_sum<Float64, 1, Where>},
      {"sum of float64, room for 2", check_sum<Float64, 2, Where>},
      {"sum of float64, room for 4", check_sum<Float64, 4, Where>},
      {"sum in place", check_sum_in_place<Where>},
      {"add float32", check_add<Float32, Where>},
      {"add float64", check_add<Float64, Where>},
      {"decode fp16", check_widening<Fp16, Where>},
      {"decode bf16", check_widening<Bf16, Where>},
      {"decode fp16, of any length", check_sum<Fp16, 1, Where>},
      {"decode bf16, of any length", check_sum<Bf16, 1, Where>},
      {"decode and add fp16", check_add<Fp16, Where>},
      {"decode and add bf16", check_add<Bf16, Where>},
      {"sgd on float32", check_sgd<Float32, 1, Where>},
      {"sgd on float32, many gradients", check_sgd<Float32, 8, Where>},
      {"sgd on float64", check_sgd<Float64, 1, Where>},
      {"sgd on float64, many gradients", check_sgd<Float64, 8, Where>},
      {"adam on float32", check_adam<Float32, 1, Where>},
      {"adam on float32, many gradients", check_adam<Float32, 8, Where>},
      {"adam on float64", check_adam<Float64, 1, Where>},
      {"adam on float64, many gradients", check_adam<Float64, 8, Where>},
      {"2bit codes", check_codes<DecodeTwoBit, Where>},
      {"codes by hand", check_codes_by_hand<Where>},
  };
}

}  // namespace dt::kv::cuda
