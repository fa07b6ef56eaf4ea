/// Optimizer steps over a gradient that is summed on the way. Part of level.h.
#pragma once

#include "kvstore/compute/kernels/arithmetic.h"

namespace dt::kv {
namespace {

float square_root(float x) { return __builtin_sqrtf(x); }
double square_root(double x) { return __builtin_sqrt(x); }

/// Calls step(gradient, at, n) for blocks of the summed gradient; its results added.
template <class T, class Step>
std::size_t over_gradient(const WeightedSum<T>& gradient, std::size_t n, Step step) {
  const bool is_plain = gradient.count == 1 && gradient.divisor == T{1} &&
                        (!gradient.weights || gradient.weights[0] == T{1});
  if (is_plain)
    return in_pieces(n, kCountable, [&](std::size_t at, std::size_t piece) {
      return step(loose(gradient.sources[0]) + at, at, piece);
    });
  alignas(64) T block[kBlock<T>];
  return in_pieces(n, kBlock<T>, [&](std::size_t at, std::size_t piece) {
    sum_block(block, gradient, at, piece);
    return step(loose(static_cast<const T*>(block)), at, piece);
  });
}

enum class Momentum { kNone, kPlain, kNesterov };

template <class T, Momentum kMomentum>
Bits<T> sgd_block(Loose<T>* w, Loose<T>* m, const Loose<T>* gradient, SgdStep<T> step,
                  std::size_t n) {
  Bits<T> bad = 0;
  DT_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) {
    const T x = gradient[i];
    bad += is_nonfinite(x);
    T g = x + step.weight_decay * w[i];
    if constexpr (kMomentum != Momentum::kNone) {
      const T kept = step.momentum * m[i] + g;
      m[i] = kept;
      g = kMomentum == Momentum::kNesterov ? g + step.momentum * kept : kept;
    }
    w[i] = w[i] - step.learning_rate * g;
  }
  return bad;
}

template <class T, Momentum kMomentum>
std::size_t sgd_of(T* values, T* momentum, const WeightedSum<T>& gradient, const SgdStep<T>& step,
                   std::size_t n) {
  return over_gradient(gradient, n, [&](const Loose<T>* g, std::size_t at, std::size_t piece) {
    Loose<T>* m = kMomentum == Momentum::kNone ? nullptr : loose(momentum) + at;
    return sgd_block<T, kMomentum>(loose(values) + at, m, g, step, piece);
  });
}

template <class T>
std::size_t sgd(T* values, T* momentum, const WeightedSum<T>& gradient, const SgdStep<T>& step,
                std::size_t n) {
  if (step.momentum == T{0}) return sgd_of<T, Momentum::kNone>(values, momentum, gradient, step, n);
  if (step.nesterov) return sgd_of<T, Momentum::kNesterov>(values, momentum, gradient, step, n);
  return sgd_of<T, Momentum::kPlain>(values, momentum, gradient, step, n);
}

template <class T>
Bits<T> adam_block(Loose<T>* w, Loose<T>* m, Loose<T>* v, const Loose<T>* gradient,
                   AdamStep<T> step, std::size_t n) {
  Bits<T> bad = 0;
  DT_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) {
    const T x = gradient[i];
    bad += is_nonfinite(x);
    const T kept = w[i] * step.keep;
    const T g = x + step.weight_decay * kept;
    const T first = step.beta1 * m[i] + step.rest1 * g;
    const T second = step.beta2 * v[i] + step.rest2 * (g * g);
    m[i] = first;
    v[i] = second;
    w[i] = kept - step.step * (first / (square_root(second) * step.root_scale + step.eps));
  }
  return bad;
}

template <class T>
std::size_t adam(T* values, T* first, T* second, const WeightedSum<T>& gradient,
                 const AdamStep<T>& step, std::size_t n) {
  return over_gradient(gradient, n, [&](const Loose<T>* g, std::size_t at, std::size_t piece) {
    return adam_block<T>(loose(values) + at, loose(first) + at, loose(second) + at, g, step, piece);
  });
}

}  // namespace
}  // namespace dt::kv
