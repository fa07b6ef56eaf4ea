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
#include "kvstore/compute/cuda/steps.h"
#include "kvstore/compute/cuda/sum.h"
#include "test/kvstore/compute/cuda/places.h"
#include "test/kvstore/compute/cuda/plain_formats.h"

namespace dt::kv::cuda {

using Random = std::mt19937_64;

/// Where the checks say what is wrong: the first few sentences are kept.
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

template <class T>
double as_double(T x) {
  return static_cast<double>(x);
}

template <class In, class Out, unsigned kMost, class Where>
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
      Sum<In, Out, kMost> operation;
      typename Sum<In, Out, kMost>::Tensor tensor;
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
      GuardedArray<typename Out::Element, Where> out(n, random() % 8 == 0 ? 1 : shift);
      tensor.out = out.data();
      tensor.elements = n;
      const std::uint64_t nonfinite = Where::run(operation, {tensor});
      const auto got = out.values();
      auto wanted_wide = plain_sum(wide, weights, operation.sum.divisor);
      const auto wanted = Plain<Out>::narrowed(wanted_wide);
      findings.same(Plain<Out>::difference(got, wanted), what);
      findings.check(out.is_whole(), what + ": written outside");
      findings.check(nonfinite == Plain<Out>::count_nonfinite(wanted), what + ": non-finite");
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
        const double bound = (2 * count + 1) * size * Plain<Float32>::unit() +
                             Plain<Out>::unit() * std::fabs(exact) * 1.01 + Plain<Out>::tiny();
        if (!(std::fabs(as_double(Plain<Out>::widen(got[i])) - exact) <= bound)) {
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
    const auto a = Plain<Float32>::numbers(n, random, true);
    const auto b = Plain<Float32>::numbers(n, random, true);
    GuardedArray<float, Where> into(a, random() % 2);
    GuardedArray<float, Where> from(b, 0);
    Sum<Float32, Float32, 2> operation;
    operation.sum.count = 2;
    Where::run(operation, {{{into.data(), from.data()}, into.data(), n}});
    findings.same(Plain<Float32>::difference(into.values(), plain_sum<float>({a, b}, {}, 1)),
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

/// Every 16-bit code becomes the number it stands for.
template <class Half, class Where>
void check_widening(Findings& findings, Random&) {
  std::vector<std::uint16_t> all;
  for (unsigned code = 0; code < 0x10000; ++code) all.push_back(static_cast<std::uint16_t>(code));
  GuardedArray<std::uint16_t, Where> codes(all, 0);
  GuardedArray<float, Where> out(all.size(), 0);
  Where::run(Cast<Half, Float32>(), {{{codes.data()}, out.data(), all.size()}});
  findings.same(difference(out.values(), Plain<Half>::widened(all)), "widening");
}

/// Every 16-bit number, the middle between it and the next, and the floats beside those.
template <class Half, class Where>
void check_narrowing(Findings& findings, Random& random) {
  std::vector<float> values = dt::kv::numbers<float>(5000, static_cast<std::uint32_t>(random()));
  for (unsigned code = 0; code < 0x10000; ++code) {
    const auto half = static_cast<std::uint16_t>(code);
    const auto x = static_cast<float>(value_of<Half>(half));
    values.push_back(x);
    if (!std::isfinite(x)) continue;
    // Beyond the largest number its last place goes on.
    const auto before = static_cast<float>(value_of<Half>(static_cast<std::uint16_t>(code - 1)));
    const bool has_before = (code & 0x7fff) != 0;
    const auto next = static_cast<float>(value_of<Half>(static_cast<std::uint16_t>(code + 1)));
    const double after = std::isfinite(next) ? next : has_before ? 2.0 * x - before : x;
    const auto middle = static_cast<float>((static_cast<double>(x) + after) / 2);
    for (const float near :
         {middle, std::nextafter(middle, -INFINITY), std::nextafter(middle, INFINITY)})
      values.push_back(near);
  }
  const std::vector<std::uint16_t> wanted = Plain<Half>::narrowed(values);
  GuardedArray<float, Where> from(values, 0);
  GuardedArray<std::uint16_t, Where> out(values.size(), 0);
  const std::uint64_t nonfinite =
      Where::run(Cast<Float32, Half>(), {{{from.data()}, out.data(), values.size()}});
  findings.same(Plain<Half>::difference(out.values(), wanted), "narrowing");
  findings.check(nonfinite == Plain<Half>::count_nonfinite(wanted), "narrowing: non-finite");
}

/// Steps over many tensors in one launch, of every length and alignment, and their references.
template <class Operation, class Where>
class StepsCheck {
 public:
  using Values = typename Operation::Values;
  using In = typename Operation::In;
  using Math = typename Operation::Math;
  using Tensor = typename Operation::Tensor;
  static constexpr bool kHasMaster = Operation::kHasMaster;

  StepsCheck(Findings& findings, Random& random, bool strange, unsigned count)
      : findings_(findings), random_(random), strange_(strange), count_(count) {
    for (const std::size_t n : kLengths) parts_.emplace_back(*this, n);
  }

  /// plain(w, first, second, gradient): the rule for one element. bound(the same): float64's new w
  /// and how far off it may be, the gradient's sum being given (check_sum has its bound).
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
        const auto values = Plain<In>::numbers(part.size, random_, strange_);
        wide.push_back(Plain<In>::widened(values));
        part.gradients.emplace_back(values, part.shift);
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
      const auto got = part.numbers();
      findings_.same(difference(got, part.w), where + ": values");
      findings_.same(difference(part.first_array.values(), part.first), where + ": first");
      findings_.same(difference(part.second_array.values(), part.second), where + ": second");
      if constexpr (kHasMaster)
        findings_.same(
            Plain<Values>::difference(part.values.values(), Plain<Values>::narrowed(part.w)),
            where + ": rounded values");
      findings_.check(part.is_whole(), where + ": written outside");
      if (strange_) continue;
      for (std::size_t i = 0; i < part.size; ++i)
        if (!(std::fabs(as_double(got[i]) - exact[t][i]) <= errors[t][i])) {
          findings_.check(false, where + ": too far from float64");
          break;
        }
    }
  }

  static constexpr double kUnit = static_cast<double>(std::numeric_limits<Math>::epsilon()) / 2;

 private:
  /// A tensor, and beside it what must be in it.
  struct Part {
    Part(StepsCheck& check, std::size_t n)
        : size(n),
          shift(check.random_() % 3),
          w(dt::kv::numbers<Math>(n, static_cast<std::uint32_t>(check.random_()), check.strange_)),
          first(dt::kv::numbers<Math>(n, static_cast<std::uint32_t>(check.random_()), false)),
          second(dt::kv::numbers<Math>(n, static_cast<std::uint32_t>(check.random_()), false)),
          values(kHasMaster ? std::vector<typename Values::Element>(n) : Plain<Values>::narrowed(w),
                 shift),
          master(kHasMaster ? w : std::vector<Math>(), shift),
          first_array(first, 0),
          second_array(1, 0) {
      for (auto& x : second) x = std::fabs(x);
      second_array = GuardedArray<Math, Where>(second, 0);
    }
    [[nodiscard]] Tensor tensor() const {
      Tensor t;
      t.values = values.data();
      t.master = kHasMaster ? master.data() : nullptr;
      t.first = first_array.data();
      t.second = second_array.data();
      t.elements = size;
      return t;
    }
    [[nodiscard]] std::vector<Math> numbers() const {
      if constexpr (kHasMaster)
        return master.values();
      else
        return values.values();
    }
    [[nodiscard]] bool is_whole() const {
      return values.is_whole() && master.is_whole() && first_array.is_whole() &&
             second_array.is_whole();
    }

    std::size_t size;
    std::size_t shift;
    std::vector<Math> w, first, second;
    GuardedArray<typename Values::Element, Where> values;
    GuardedArray<Math, Where> master, first_array, second_array;
    std::vector<GuardedArray<typename In::Element, Where>> gradients;
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

template <class Values, class In, unsigned kMost, class Where>
void check_sgd(Findings& findings, Random& random) {
  using Operation = Sgd<Values, In, kMost>;
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
          // Eight operations at most lie between an input and the result.
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
            const double unit = StepsCheck<Operation, Where>::kUnit;
            return {w - rate * g, 9 * unit * (std::fabs(w) + rate * size) + 1e-44};
          };
          check.step(operation, plain, bound,
                     std::string("sgd") + (strange ? ", strange" : "") +
                         (momentum != 0 ? ", momentum" : "") + (nesterov ? ", nesterov" : "") +
                         ", " + std::to_string(count) + " gradients");
        }
      }
}

template <class Values, class In, unsigned kMost, class Where>
void check_adam(Findings& findings, Random& random) {
  using Operation = Adam<Values, In, kMost>;
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
          const double unit = StepsCheck<Operation, Where>::kUnit;
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
          // The moments err by 6 and 11 units of their sizes, the root by half of that, relative to
          // what it is the root of; it, the division, the product and the difference round again.
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

/// Codes written out by hand, with what they leave.
template <class Where>
void check_two_bit_by_hand(Findings& findings, Random&) {
  const float t = 0.5F;
  const float below = std::nextafter(0.5F, 0.0F);
  //                                 11    10     00     11   |  10    11    10     00
  const std::vector<float> first = {0.5F, -0.5F, below, 3.0F, -1.25F, 0.75F, -0.5F, -0.25F, 0.25F};
  const std::vector<float> left = {0, 0, below, 2.5F, -0.75F, 0.25F, 0, -0.25F, 0.25F};
  GuardedArray<float, Where> residual(std::vector<float>(9), 0);
  GuardedArray<float, Where> gradient(first, 0);
  GuardedArray<std::uint8_t, Where> codes(4, 0);
  EncodeTwoBit encode;
  encode.threshold = t;
  Where::run(encode, {{codes.data(), residual.data(), gradient.data(), 9}});
  findings.check(codes.values() == std::vector<std::uint8_t>{0b11100011, 0b10111000, 0, 0},
                 "the first codes");
  findings.same(difference(residual.values(), left), "the first residual");
  // Nothing new: what is left of 3 and -1.25 goes out, -0.25 and 0.25 stay.
  gradient = GuardedArray<float, Where>(std::vector<float>(9), 0);
  Where::run(encode, {{codes.data(), residual.data(), gradient.data(), 9}});
  findings.check(codes.values() == std::vector<std::uint8_t>{0b00000011, 0b10000000, 0, 0},
                 "the second codes");
  findings.same(difference(residual.values(), {0, 0, below, 2.0F, -0.25F, 0.25F, 0, -0.25F, 0.25F}),
                "the second residual");
  GuardedArray<float, Where> out(9, 0);
  DecodeTwoBit decode;
  decode.threshold = t;
  Where::run(decode, {{out.data(), codes.data(), 9}});
  findings.same(difference(out.values(), {0, 0, 0, t, -t, 0, 0, 0, 0}), "decoded");
  // 01 means nothing, and -0 stays -0.
  GuardedArray<std::uint8_t, Where> strange(std::vector<std::uint8_t>{0b01101101}, 0);
  GuardedArray<float, Where> into({1.0F, 1.0F, 1.0F, -0.0F}, 0);
  AddTwoBit add;
  add.threshold = t;
  add.weight = 3;
  Where::run(add, {{into.data(), strange.data(), 4}});
  findings.same(difference(into.values(), {1.0F, -0.5F, 2.5F, -0.0F}), "added");
}

/// Many rounds: exact codes and residuals, and nothing is lost: what was sent and what is left are
/// what was given, up to the roundings.
template <class Where>
void check_two_bit_rounds(Findings& findings, Random& random) {
  constexpr int kRounds = 50;
  for (const std::size_t n : kLengths) {
    if (n > 1000) continue;
    const bool strange = random() % 4 == 0;
    const float t = static_cast<float>(1 + random() % 100) / 64;
    GuardedArray<float, Where> residual(std::vector<float>(n), random() % 2);
    GuardedArray<float, Where> sum(std::vector<float>(n), random() % 2);
    std::vector<float> kept(n);
    std::vector<double> given(n);
    std::vector<double> sent(n);
    std::vector<double> sizes(n);
    for (int round = 0; round < kRounds; ++round) {
      const std::string what = "2bit, " + std::to_string(n) + ", round " + std::to_string(round);
      const auto g = Plain<Float32>::numbers(n, random, strange);
      GuardedArray<float, Where> gradient(g, random() % 2);
      GuardedArray<std::uint8_t, Where> codes((n + 15) / 16 * 4, random() % 2);
      std::vector<std::uint8_t> wanted((n + 15) / 16 * 4);
      std::vector<float> decoded(n);
      std::uint64_t nonfinite = 0;
      for (std::size_t i = 0; i < n; ++i) {
        kept[i] += g[i];
        unsigned code = 0;
        if (kept[i] >= t) {
          kept[i] -= t;
          code = 3;
          decoded[i] = t;
        } else if (kept[i] <= -t) {
          kept[i] += t;
          code = 2;
          decoded[i] = -t;
        }
        wanted[i / 4] = static_cast<std::uint8_t>(wanted[i / 4] | code << (6 - 2 * (i % 4)));
        nonfinite += std::isfinite(kept[i]) ? 0 : 1;
        given[i] += as_double(g[i]);
        sent[i] += as_double(decoded[i]);
        sizes[i] += std::fabs(as_double(kept[i])) + std::fabs(as_double(g[i])) + as_double(t);
      }
      EncodeTwoBit encode;
      encode.threshold = t;
      const std::uint64_t found =
          Where::run(encode, {{codes.data(), residual.data(), gradient.data(), n}});
      findings.check(found == nonfinite, what + ": non-finite");
      findings.check(codes.values() == wanted, what + ": codes");
      findings.same(difference(residual.values(), kept), what + ": residual");
      findings.check(codes.is_whole() && residual.is_whole(), what + ": written outside");
      GuardedArray<float, Where> out(n, random() % 2);
      DecodeTwoBit decode;
      decode.threshold = t;
      Where::run(decode, {{out.data(), codes.data(), n}});
      findings.same(difference(out.values(), decoded), what + ": decoded");
      findings.check(out.is_whole(), what + ": written outside");
      AddTwoBit add;
      add.threshold = t;
      Where::run(add, {{sum.data(), codes.data(), n}});
      findings.check(sum.is_whole(), what + ": written outside");
    }
    if (strange) continue;
    const auto total = sum.values();
    for (std::size_t i = 0; i < n; ++i) {
      const double lost = std::fabs(given[i] - sent[i] - as_double(kept[i]));
      findings.check(lost <= 3 * Plain<Float32>::unit() * sizes[i], "2bit loses gradients");
      // Multiples of a threshold of a few bits are exact.
      findings.check(as_double(total[i]) == sent[i], "2bit: the added codes");
    }
  }
}

/// Bits written out by hand, with what they leave.
template <class Where>
void check_one_bit_by_hand(Findings& findings, Random&) {
  //                                1     0      0  0      1  1  0      1   |  0
  const std::vector<float> first = {0.5F, -0.5F, 0, -0.0F, 1, 3, -2.0F, 0.25F, -0.25F};
  const std::vector<float> left = {-0.5F, 0.5F, 1, 1, 0, 2, -1, -0.75F, 0.75F};
  GuardedArray<float, Where> residual(std::vector<float>(9), 0);
  GuardedArray<float, Where> gradient(first, 0);
  GuardedArray<std::uint8_t, Where> codes(4, 0);
  EncodeOneBit encode;
  Where::run(encode, {{codes.data(), residual.data(), gradient.data(), 9}});
  findings.check(codes.values() == std::vector<std::uint8_t>{0b10001101, 0, 0, 0},
                 "the first bits");
  findings.same(difference(residual.values(), left), "the first residual");
  // Nothing new, and 1 is not above the threshold: 2 alone is. Past the end are no bits.
  gradient = GuardedArray<float, Where>(std::vector<float>(9), 0);
  encode.threshold = 1;
  Where::run(encode, {{codes.data(), residual.data(), gradient.data(), 9}});
  findings.check(codes.values() == std::vector<std::uint8_t>{0b00000100, 0, 0, 0},
                 "the second bits");
  findings.same(difference(residual.values(), {0.5F, 1.5F, 2, 2, 1, 1, 0, 0.25F, 1.75F}),
                "the second residual");
  encode.threshold = -1;
  Where::run(encode, {{codes.data(), residual.data(), gradient.data(), 9}});
  findings.check(codes.values() == std::vector<std::uint8_t>{0xff, 0x80, 0, 0}, "the third bits");
  GuardedArray<std::uint8_t, Where> bits(std::vector<std::uint8_t>{0b00100100, 0b10000000}, 0);
  GuardedArray<float, Where> out(9, 0);
  Where::run(DecodeOneBit{}, {{out.data(), bits.data(), 9}});
  findings.same(difference(out.values(), {-1, -1, 1, -1, -1, 1, -1, -1, 1}), "decoded");
  GuardedArray<float, Where> into(std::vector<float>(9, 0.5F), 0);
  AddOneBit add;
  add.weight = 3;
  Where::run(add, {{into.data(), bits.data(), 9}});
  const float less = -2.5F;
  const float more = 3.5F;
  findings.same(difference(into.values(), {less, less, more, less, less, more, less, less, more}),
                "added");
}

/// As check_two_bit_rounds.
template <class Where>
void check_one_bit_rounds(Findings& findings, Random& random) {
  constexpr int kRounds = 50;
  for (const std::size_t n : kLengths) {
    if (n > 1000) continue;
    const bool strange = random() % 4 == 0;
    const float t = static_cast<float>(random() % 3) / 4 - 0.25F;
    GuardedArray<float, Where> residual(std::vector<float>(n), random() % 2);
    GuardedArray<float, Where> sum(std::vector<float>(n), random() % 2);
    std::vector<float> kept(n);
    std::vector<double> given(n);
    std::vector<double> sent(n);
    std::vector<double> sizes(n);
    for (int round = 0; round < kRounds; ++round) {
      const std::string what = "1bit, " + std::to_string(n) + ", round " + std::to_string(round);
      const auto g = Plain<Float32>::numbers(n, random, strange);
      GuardedArray<float, Where> gradient(g, random() % 2);
      GuardedArray<std::uint8_t, Where> codes((n + 31) / 32 * 4, random() % 2);
      std::vector<std::uint8_t> wanted((n + 31) / 32 * 4);
      std::vector<float> decoded(n, -1);
      std::uint64_t nonfinite = 0;
      for (std::size_t i = 0; i < n; ++i) {
        kept[i] += g[i];
        if (kept[i] > t) {
          kept[i] -= 1;
          decoded[i] = 1;
          wanted[i / 8] = static_cast<std::uint8_t>(wanted[i / 8] | 0x80 >> i % 8);
        } else {
          kept[i] += 1;
        }
        nonfinite += std::isfinite(kept[i]) ? 0 : 1;
        given[i] += as_double(g[i]);
        sent[i] += as_double(decoded[i]);
        sizes[i] += std::fabs(as_double(kept[i])) + std::fabs(as_double(g[i])) + 1;
      }
      EncodeOneBit encode;
      encode.threshold = t;
      const std::uint64_t found =
          Where::run(encode, {{codes.data(), residual.data(), gradient.data(), n}});
      findings.check(found == nonfinite, what + ": non-finite");
      findings.check(codes.values() == wanted, what + ": codes");
      findings.same(difference(residual.values(), kept), what + ": residual");
      findings.check(codes.is_whole() && residual.is_whole(), what + ": written outside");
      GuardedArray<float, Where> out(n, random() % 2);
      Where::run(DecodeOneBit{}, {{out.data(), codes.data(), n}});
      findings.same(difference(out.values(), decoded), what + ": decoded");
      findings.check(out.is_whole(), what + ": written outside");
      Where::run(AddOneBit{}, {{sum.data(), codes.data(), n}});
      findings.check(sum.is_whole(), what + ": written outside");
    }
    if (strange) continue;
    const auto total = sum.values();
    for (std::size_t i = 0; i < n; ++i) {
      const double lost = std::fabs(given[i] - sent[i] - as_double(kept[i]));
      findings.check(lost <= 3 * Plain<Float32>::unit() * sizes[i], "1bit loses gradients");
      findings.check(as_double(total[i]) == sent[i], "1bit: the added codes");
    }
  }
}

template <class Half, class Where>
void check_half_residual(Findings& findings, Random& random) {
  for (const std::size_t n : kLengths) {
    std::vector<float> kept(n);
    GuardedArray<float, Where> residual(kept, random() % 2);
    for (int round = 0; round < 8; ++round) {
      const std::string what = "16 bits, " + std::to_string(n);
      const auto g = Plain<Float32>::numbers(n, random, round % 2 == 1);
      GuardedArray<float, Where> gradient(g, random() % 2);
      GuardedArray<std::uint16_t, Where> codes(n, random() % 2);
      std::vector<std::uint16_t> wanted(n);
      for (std::size_t i = 0; i < n; ++i) {
        kept[i] += g[i];
        wanted[i] = nearest_finite<Half>(kept[i]);
        const auto sent = static_cast<float>(value_of<Half>(wanted[i]));
        kept[i] = std::isfinite(sent) ? kept[i] - sent : 0.0F;
      }
      const std::uint64_t found =
          Where::run(EncodeHalf<Half>(), {{codes.data(), residual.data(), gradient.data(), n}});
      findings.check(found == Plain<Half>::count_nonfinite(wanted), what + ": non-finite");
      findings.same(Plain<Half>::difference(codes.values(), wanted), what + ": codes");
      findings.same(difference(residual.values(), kept), what + ": residual");
      findings.check(codes.is_whole() && residual.is_whole(), what + ": written outside");
    }
  }
}

struct Check {
  const char* name;
  void (*run)(Findings&, Random&);
};

/// All of them, for operations that run at Where.
template <class Where>
std::vector<Check> all_checks() {
  return {
      {"sum of float32", check_sum<Float32, Float32, 8, Where>},
      {"sum of float32, room for 1", check_sum<Float32, Float32, 1, Where>},
      {"sum of float32, room for 2", check_sum<Float32, Float32, 2, Where>},
      {"sum of float32, room for 4", check_sum<Float32, Float32, 4, Where>},
      {"sum of float64", check_sum<Float64, Float64, 8, Where>},
      {"sum of fp16", check_sum<Fp16, Fp16, 8, Where>},
      {"sum of bf16", check_sum<Bf16, Bf16, 8, Where>},
      {"sum of fp16 in float32", check_sum<Fp16, Float32, 8, Where>},
      {"sum of bf16 in float32", check_sum<Bf16, Float32, 8, Where>},
      {"sum in place", check_sum_in_place<Where>},
      {"add float32", check_add<Float32, Where>},
      {"add float64", check_add<Float64, Where>},
      {"add fp16", check_add<Fp16, Where>},
      {"add bf16", check_add<Bf16, Where>},
      {"widen fp16", check_widening<Fp16, Where>},
      {"widen bf16", check_widening<Bf16, Where>},
      {"narrow to fp16", check_narrowing<Fp16, Where>},
      {"narrow to bf16", check_narrowing<Bf16, Where>},
      {"sgd on float32", check_sgd<Float32, Float32, 1, Where>},
      {"sgd on float32, many gradients", check_sgd<Float32, Float32, 8, Where>},
      {"sgd on float64", check_sgd<Float64, Float64, 8, Where>},
      {"sgd on fp16", check_sgd<Fp16, Fp16, 1, Where>},
      {"sgd on bf16", check_sgd<Bf16, Bf16, 8, Where>},
      {"sgd on fp16, gradients in float32", check_sgd<Fp16, Float32, 8, Where>},
      {"sgd on bf16, gradients in float32", check_sgd<Bf16, Float32, 1, Where>},
      {"adam on float32", check_adam<Float32, Float32, 1, Where>},
      {"adam on float32, many gradients", check_adam<Float32, Float32, 8, Where>},
      {"adam on float64", check_adam<Float64, Float64, 8, Where>},
      {"adam on fp16", check_adam<Fp16, Fp16, 8, Where>},
      {"adam on bf16", check_adam<Bf16, Bf16, 1, Where>},
      {"adam on fp16, gradients in float32", check_adam<Fp16, Float32, 1, Where>},
      {"adam on bf16, gradients in float32", check_adam<Bf16, Float32, 8, Where>},
      {"1bit by hand", check_one_bit_by_hand<Where>},
      {"1bit over many rounds", check_one_bit_rounds<Where>},
      {"2bit by hand", check_two_bit_by_hand<Where>},
      {"2bit over many rounds", check_two_bit_rounds<Where>},
      {"fp16 with residual", check_half_residual<Fp16, Where>},
      {"bf16 with residual", check_half_residual<Bf16, Where>},
  };
}

}  // namespace dt::kv::cuda
