#include "kvstore/compute/kernels/kernels.h"

#include <rapidcheck.h>

#include "test/kvstore/compute/kernel_support.h"
#include "test/support/catch.h"

using namespace dt::kv;

namespace {

/// Calls test(level, n, offset) for everything a kernel may be given.
template <class Test>
void everywhere(Test test) {
  for (const auto& level : levels())
    for (const std::size_t n : kSizes)
      for (const std::size_t offset : kOffsets) {
        INFO(level.name << ", " << n << " elements, " << offset << " bytes off");
        test(*level.kernels, n, offset);
      }
}

/// Sources at odd addresses, and the sum over them.
template <class T>
struct Sources {
  Sources(const std::vector<std::vector<T>>& values, std::vector<T> their_weights, T divisor,
          std::size_t offset)
      : weights(std::move(their_weights)) {
    for (const auto& v : values) arrays.emplace_back(v, offset);
    for (auto& a : arrays) pointers.push_back(a.data());
    sum = {pointers.data(), weights.empty() ? nullptr : weights.data(), pointers.size(), divisor};
  }
  Sources(const Sources&) = delete;

  std::vector<Array<T>> arrays;
  std::vector<const T*> pointers;
  std::vector<T> weights;
  WeightedSum<T> sum;
};

template <class T>
std::vector<std::vector<T>> some_sources(std::size_t count, std::size_t n, bool strange = true) {
  std::vector<std::vector<T>> out;
  for (std::size_t k = 0; k < count; ++k)
    out.push_back(numbers<T>(n, static_cast<std::uint32_t>(100 * k + n), strange));
  return out;
}

template <class T>
std::vector<T> some_weights(std::size_t count) {
  std::vector<T> out;
  for (std::size_t k = 0; k < count; ++k) out.push_back(static_cast<T>(k % 3 == 0 ? 32 : 7 + k));
  return out;
}

}  // namespace

TEST_CASE("kernels: the best level of the machine is used, or the one that DT_SIMD names",
          "[kernels][dispatch]") {
  REQUIRE(levels().front().kernels->level == SimdLevel::kBaseline);
  const Kernels* wanted = levels().back().kernels;
  const char* asked = std::getenv("DT_SIMD");
  for (const auto& level : levels())
    if (asked && level.name == std::string(asked)) wanted = level.kernels;
  CHECK(&kernels() == wanted);
}

TEMPLATE_TEST_CASE("kernels: adding gives the same bits at every level, size and address",
                   "[kernels]", float, double) {
  using T = TestType;
  everywhere([](const Kernels& kernels, std::size_t n, std::size_t offset) {
    const auto& k = arithmetic<T>(kernels);
    const auto a = numbers<T>(n, 1);
    const auto b = numbers<T>(n, 2);
    const T weight = static_cast<T>(0.3);
    auto sum = a;
    auto weighted = a;
    auto scaled = a;
    for (std::size_t i = 0; i < n; ++i) {
      sum[i] = a[i] + b[i];
      const T product = weight * b[i];
      weighted[i] = a[i] + product;
      scaled[i] = weight * a[i];
    }
    Array<T> from(b, offset);
    Array<T> into(a, offset);
    CHECK(k.add(into.data(), from.data(), n) == count_nonfinite(b));
    CHECK(difference(into.values(), sum) == "");
    CHECK(into.is_whole());
    // The two arrays need not be alike.
    into = Array<T>(a, 0);
    CHECK(k.add_weighted(into.data(), from.data(), weight, n) == count_nonfinite(b));
    CHECK(difference(into.values(), weighted) == "");
    CHECK(into.is_whole());
    into = Array<T>(a, offset);
    k.scale(into.data(), weight, n);
    CHECK(difference(into.values(), scaled) == "");
    CHECK(into.is_whole());
    CHECK(k.count_nonfinite(from.data(), n) == count_nonfinite(b));
  });
}

TEST_CASE("kernels: int64 sums are exact and wrap", "[kernels]") {
  everywhere([](const Kernels& kernels, std::size_t n, std::size_t offset) {
    std::mt19937_64 random(n);
    std::vector<std::int64_t> a(n);
    std::vector<std::int64_t> b(n);
    std::vector<std::int64_t> sum(n);
    for (std::size_t i = 0; i < n; ++i) {
      a[i] = static_cast<std::int64_t>(random());
      b[i] = static_cast<std::int64_t>(random());
      sum[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(a[i]) +
                                         static_cast<std::uint64_t>(b[i]));
    }
    Array<std::int64_t> into(a, offset);
    Array<std::int64_t> from(b, offset);
    kernels.add_int64(into.data(), from.data(), n);
    CHECK(difference(into.values(), sum) == "");
    CHECK(into.is_whole());
  });
}

TEST_CASE("kernels: a streaming copy copies, wherever it begins and ends", "[kernels]") {
  everywhere([](const Kernels& kernels, std::size_t n, std::size_t offset) {
    const auto values = numbers<float>(n, 3);
    Array<float> from(values, 5);
    Array<float> out(n, offset);
    kernels.copy_streaming(out.data(), from.data(), n * sizeof(float));
    CHECK(difference(out.values(), values) == "");
    CHECK(out.is_whole());
  });
}

TEMPLATE_TEST_CASE("kernels: a weighted sum adds its sources in order, with or without a mean",
                   "[kernels]", float, double) {
  using T = TestType;
  everywhere([](const Kernels& kernels, std::size_t n, std::size_t offset) {
    const auto& k = arithmetic<T>(kernels);
    for (const std::size_t count : {1U, 2U, 3U, 4U, 5U, 8U, 9U, 16U}) {
      if (count > 5 && n > 128) continue;
      INFO(count << " sources");
      const auto values = some_sources<T>(count, n);
      for (const bool weighted : {false, true})
        for (const T divisor : {T{1}, T{96}}) {
          const auto weights = weighted ? some_weights<T>(count) : std::vector<T>();
          const auto wanted = plain_sum(values, weights, divisor);
          Sources<T> sources(values, weights, divisor, offset);
          Array<T> out(n, offset);
          CHECK(k.sum(out.data(), sources.sum, n) == count_nonfinite(wanted));
          CHECK(difference(out.values(), wanted) == "");
          CHECK(out.is_whole());
          // In place: the accumulator is the first source.
          k.sum(sources.arrays[0].data(), sources.sum, n);
          CHECK(difference(sources.arrays[0].values(), wanted) == "");
        }
    }
  });
}

TEMPLATE_TEST_CASE("kernels: a step of sgd has the bits of the sum followed by the step",
                   "[kernels]", float, double) {
  using T = TestType;
  everywhere([](const Kernels& kernels, std::size_t n, std::size_t offset) {
    const auto& k = arithmetic<T>(kernels);
    for (const std::size_t count : {1U, 2U, 6U})
      for (const T momentum : {T{0}, static_cast<T>(0.9)})
        for (const bool nesterov : {false, true}) {
          const bool is_mean = count > 1;
          const SgdStep<T> step = {static_cast<T>(0.1), momentum, static_cast<T>(1e-3), nesterov};
          const auto values = some_sources<T>(count, n);
          const auto weights = is_mean ? some_weights<T>(count) : std::vector<T>();
          const T divisor = is_mean ? T{59} : T{1};
          const auto gradient = plain_sum(values, weights, divisor);
          auto w = numbers<T>(n, 8);
          auto m = numbers<T>(n, 9);
          Array<T> got_w(w, offset);
          Array<T> got_m(m, offset);
          for (std::size_t i = 0; i < n; ++i) plain_sgd(w[i], m[i], gradient[i], step);
          Sources<T> sources(values, weights, divisor, offset);
          T* state = momentum == 0 ? nullptr : got_m.data();
          CHECK(k.sgd(got_w.data(), state, sources.sum, step, n) == count_nonfinite(gradient));
          CHECK(difference(got_w.values(), w) == "");
          CHECK(difference(got_m.values(), m) == "");
          CHECK(got_w.is_whole());
          CHECK(got_m.is_whole());
        }
  });
}

TEMPLATE_TEST_CASE("kernels: a step of adam has the bits of the sum followed by the step",
                   "[kernels]", float, double) {
  using T = TestType;
  everywhere([](const Kernels& kernels, std::size_t n, std::size_t offset) {
    const auto& k = arithmetic<T>(kernels);
    for (const std::size_t count : {1U, 2U, 6U})
      for (const bool decoupled : {false, true}) {
        AdamOptions options;
        options.learning_rate = 1e-3;
        options.weight_decay = 0.01;
        options.decoupled = decoupled;
        options.update = 3;
        const auto step = adam_step<T>(options);
        const auto values = some_sources<T>(count, n);
        const T divisor = static_cast<T>(count);
        const auto gradient = plain_sum(values, {}, divisor);
        auto w = numbers<T>(n, 8);
        auto m = numbers<T>(n, 9);
        auto v = numbers<T>(n, 10);
        for (auto& x : v) x = std::abs(x);
        Array<T> got_w(w, offset);
        Array<T> got_m(m, offset);
        Array<T> got_v(v, offset);
        for (std::size_t i = 0; i < n; ++i) plain_adam(w[i], m[i], v[i], gradient[i], step);
        Sources<T> sources(values, {}, divisor, offset);
        CHECK(k.adam(got_w.data(), got_m.data(), got_v.data(), sources.sum, step, n) ==
              count_nonfinite(gradient));
        CHECK(difference(got_w.values(), w) == "");
        CHECK(difference(got_m.values(), m) == "");
        CHECK(difference(got_v.values(), v) == "");
        CHECK(got_w.is_whole());
        CHECK(got_m.is_whole());
        CHECK(got_v.is_whole());
      }
  });
}

namespace {

/// One weight of 1, gradients 1, 0.5, -0.25, learning rate 0.1.
template <class T>
T sgd_after_three(const Kernels& kernels, SgdStep<T> step) {
  step.learning_rate = static_cast<T>(0.1);
  T w = 1;
  T m = 0;
  for (const T g : {T{1}, T{0.5}, T{-0.25}}) {
    const T* source = &g;
    arithmetic<T>(kernels).sgd(&w, &m, {&source, nullptr, 1, 1}, step, 1);
  }
  return w;
}

template <class T>
T adam_after_three(const Kernels& kernels, double weight_decay, bool decoupled) {
  AdamOptions options;
  options.learning_rate = 0.1;
  options.weight_decay = weight_decay;
  options.decoupled = decoupled;
  T w = 1;
  T m = 0;
  T v = 0;
  options.update = 0;
  for (const T g : {T{1}, T{0.5}, T{-0.25}}) {
    ++options.update;
    const T* source = &g;
    arithmetic<T>(kernels).adam(&w, &m, &v, {&source, nullptr, 1, 1}, adam_step<T>(options), 1);
  }
  return w;
}

/// torch's rule in double, as its documentation writes it.
double torch_adam(double weight_decay, bool decoupled) {
  double w = 1;
  double m = 0;
  double v = 0;
  int t = 0;
  for (double g : {1.0, 0.5, -0.25}) {
    ++t;
    if (decoupled)
      w -= 0.1 * weight_decay * w;
    else
      g += weight_decay * w;
    m = 0.9 * m + (1 - 0.9) * g;
    v = 0.999 * v + (1 - 0.999) * g * g;
    const double m_hat = m / (1 - std::pow(0.9, t));
    const double v_hat = v / (1 - std::pow(0.999, t));
    w -= 0.1 * m_hat / (std::sqrt(v_hat) + 1e-8);
  }
  return w;
}

}  // namespace

TEMPLATE_TEST_CASE("kernels: the optimizers' rules are those of torch.optim", "[kernels]", float,
                   double) {
  using T = TestType;
  const double close = 4 * static_cast<double>(std::numeric_limits<T>::epsilon());
  const auto is = [&](double wanted) { return Approx(wanted).epsilon(close); };
  const auto mu = static_cast<T>(0.9);
  for (const auto& level : levels()) {
    INFO(level.name);
    const Kernels& k = *level.kernels;
    CHECK(sgd_after_three<T>(k, {}) == is(1 - 0.1 * 1.25));
    // m: 1, 1.4, 1.01
    CHECK(sgd_after_three<T>(k, {0, mu, 0, false}) == is(1 - 0.1 * (1 + 1.4 + 1.01)));
    // g + 0.9 m: 1.9, 1.76, 0.659
    CHECK(sgd_after_three<T>(k, {0, mu, 0, true}) == is(1 - 0.1 * (1.9 + 1.76 + 0.659)));
    // w: 1 -> 0.89 -> 0.8311 -> 0.847789
    CHECK(sgd_after_three<T>(k, {0, 0, static_cast<T>(0.1), false}) == is(0.847789));
    CHECK(adam_after_three<T>(k, 0, false) == is(torch_adam(0, false)));
    CHECK(adam_after_three<T>(k, 0.01, false) == is(torch_adam(0.01, false)));
    CHECK(adam_after_three<T>(k, 0.01, true) == is(torch_adam(0.01, true)));
  }
}

TEST_CASE("kernels: float32 optimizers stay within rounding of a float64 reference", "[kernels]") {
  constexpr std::size_t kElements = 500;
  constexpr int kSteps = 20;
  const SgdStep<float> step32 = {0.05F, 0.9F, 1e-4F, true};
  const SgdStep<double> step64 = {0.05F, 0.9F, 1e-4F, true};
  AdamOptions options;
  options.learning_rate = 0.05;
  const auto start = numbers<float>(kElements, 4, false);
  std::vector<float> w(start), m(kElements), adam_w(start), adam_m(kElements), adam_v(kElements);
  std::vector<double> w64(start.begin(), start.end()), m64(kElements), adam_w64(w64),
      adam_m64(kElements), adam_v64(kElements);
  for (int t = 0; t < kSteps; ++t) {
    const auto g = numbers<float>(kElements, static_cast<std::uint32_t>(50 + t), false);
    const float* source = g.data();
    const WeightedSum<float> gradient = {&source, nullptr, 1, 1};
    options.update = static_cast<std::uint64_t>(t) + 1;
    kernels().f32.sgd(w.data(), m.data(), gradient, step32, kElements);
    kernels().f32.adam(adam_w.data(), adam_m.data(), adam_v.data(), gradient,
                       adam_step<float>(options), kElements);
    const auto adam64 = adam_step<double>(options);
    for (std::size_t i = 0; i < kElements; ++i) {
      plain_sgd(w64[i], m64[i], static_cast<double>(g[i]), step64);
      plain_adam(adam_w64[i], adam_m64[i], adam_v64[i], static_cast<double>(g[i]), adam64);
    }
  }
  double worst = 0;
  double worst_adam = 0;
  for (std::size_t i = 0; i < kElements; ++i) {
    // Each step rounds at the size of the largest value that took part: about 2^6 here.
    worst = std::max(worst, std::abs(static_cast<double>(w[i]) - w64[i]));
    worst_adam = std::max(worst_adam, std::abs(static_cast<double>(adam_w[i]) - adam_w64[i]));
  }
  const double rounding = 0x1p-24 * 64 * kSteps;
  CHECK(worst < rounding);
  CHECK(worst_adam < rounding);
}

TEST_CASE("kernels: whatever is summed, no source's infinity or NaN goes unseen",
          "[kernels][property]") {
  const bool holds =
      rc::check("a result without strange numbers has no strange source, at every level alike",
                [](const std::vector<float>& a, float weight, std::uint8_t sources, bool poison) {
                  if (a.empty()) return;
                  const std::size_t count = sources % 9U + 1U;
                  std::vector<std::vector<float>> values(count, a);
                  if (poison)
                    values[sources % count][a.size() / 2] = std::numeric_limits<float>::quiet_NaN();
                  std::vector<float> weights(count, weight);
                  const auto wanted = plain_sum(values, weights, 3.0F);
                  for (const auto& level : levels()) {
                    Sources<float> from(values, weights, 3, 0);
                    std::vector<float> out(a.size());
                    const std::size_t bad = level.kernels->f32.sum(out.data(), from.sum, a.size());
                    RC_ASSERT(difference(out, wanted) == "");
                    RC_ASSERT(bad == count_nonfinite(wanted));
                    RC_ASSERT(!poison || bad > 0);
                  }
                });
  CHECK(holds);
}
