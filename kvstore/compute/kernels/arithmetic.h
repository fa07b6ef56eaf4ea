/// Sums. Part of level.h.
#pragma once

#include "kvstore/compute/kernels/elements.h"
#include "kvstore/compute/kernels/kernels.h"

namespace dt::kv {
namespace {

/// into[i] += term(from[i])
template <class T, class Term>
std::size_t add_terms(T* into, const T* from, std::size_t n, Term term) {
  return in_pieces(n, kCountable, [&](std::size_t at, std::size_t piece) {
    auto* a = loose(into) + at;
    const auto* b = loose(from) + at;
    Bits<T> bad = 0;
    DT_INDEPENDENT
    for (std::size_t i = 0; i < piece; ++i) {
      const T x = b[i];
      bad += is_nonfinite(x);
      a[i] = a[i] + term(x);
    }
    return bad;
  });
}

template <class T>
std::size_t add(T* into, const T* from, std::size_t n) {
  return add_terms(into, from, n, [](T x) { return x; });
}

template <class T>
std::size_t add_weighted(T* into, const T* from, T weight, std::size_t n) {
  return add_terms(into, from, n, [weight](T x) { return weight * x; });
}

template <class T>
void scale(T* values, T factor, std::size_t n) {
  auto* a = loose(values);
  for (std::size_t i = 0; i < n; ++i) a[i] = a[i] * factor;
}

template <class T>
std::size_t count_nonfinite(const T* from, std::size_t n) {
  return in_pieces(n, kCountable, [&](std::size_t at, std::size_t piece) {
    const auto* a = loose(from) + at;
    Bits<T> bad = 0;
    for (std::size_t i = 0; i < piece; ++i) bad += is_nonfinite(static_cast<T>(a[i]));
    return bad;
  });
}

void add_int64(std::int64_t* into, const std::int64_t* from, std::size_t n) {
  auto* a = reinterpret_cast<Loose<std::uint64_t>*>(into);  // unsigned, to wrap
  const auto* b = reinterpret_cast<const Loose<std::uint64_t>*>(from);
  DT_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) a[i] = a[i] + b[i];
}

/// Sources of one loop. Further sources are added in further loops over the same cached block.
constexpr std::size_t kGroup = 4;

/// out[0..n) = (kContinue ? out : 0) + kCount weighted sources from `at` on. Returns the non-finite
/// results.
template <class T, std::size_t kCount, bool kContinue, bool kDivide>
Bits<T> add_group(T* out, const T* const* sources, const T* weights, T divisor, std::size_t at,
                  std::size_t n) {
  const auto source = [&](std::size_t k) { return loose(sources[k < kCount ? k : 0]) + at; };
  const auto weight = [&](std::size_t k) { return weights && k < kCount ? weights[k] : T{1}; };
  const auto *s0 = source(0), *s1 = source(1), *s2 = source(2), *s3 = source(3);
  const T w0 = weight(0), w1 = weight(1), w2 = weight(2), w3 = weight(3);
  auto* o = loose(out);
  Bits<T> bad = 0;
  DT_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) {
    T x = w0 * s0[i];
    if constexpr (kContinue) x = o[i] + x;
    if constexpr (kCount > 1) x = x + w1 * s1[i];
    if constexpr (kCount > 2) x = x + w2 * s2[i];
    if constexpr (kCount > 3) x = x + w3 * s3[i];
    if constexpr (kDivide) x = x / divisor;
    o[i] = x;
    bad += is_nonfinite(x);
  }
  return bad;
}

template <class T, bool kContinue, bool kDivide>
Bits<T> add_group(T* out, const T* const* sources, const T* weights, std::size_t count, T divisor,
                  std::size_t at, std::size_t n) {
  switch (count) {
    case 1:
      return add_group<T, 1, kContinue, kDivide>(out, sources, weights, divisor, at, n);
    case 2:
      return add_group<T, 2, kContinue, kDivide>(out, sources, weights, divisor, at, n);
    case 3:
      return add_group<T, 3, kContinue, kDivide>(out, sources, weights, divisor, at, n);
    default:
      return add_group<T, 4, kContinue, kDivide>(out, sources, weights, divisor, at, n);
  }
}

/// out[0..n) = elements [at, at + n) of the sum. Returns the non-finite ones.
template <class T>
Bits<T> sum_block(T* out, const WeightedSum<T>& sum, std::size_t at, std::size_t n) {
  const bool divides = sum.divisor != T{1};
  Bits<T> bad = 0;
  for (std::size_t done = 0; done < sum.count;) {
    const std::size_t left = sum.count - done;
    const std::size_t count = left < kGroup ? left : kGroup;
    const bool divide = divides && count == left;
    const T* const* sources = sum.sources + done;
    const T* weights = sum.weights ? sum.weights + done : nullptr;
    if (done == 0)
      bad = divide ? add_group<T, false, true>(out, sources, weights, count, sum.divisor, at, n)
                   : add_group<T, false, false>(out, sources, weights, count, sum.divisor, at, n);
    else
      bad = divide ? add_group<T, true, true>(out, sources, weights, count, sum.divisor, at, n)
                   : add_group<T, true, false>(out, sources, weights, count, sum.divisor, at, n);
    done += count;
  }
  return bad;
}

/// A block on the stack that fits into the first-level cache together with its sources.
constexpr std::size_t kBlockBytes = 4096;
template <class T>
constexpr std::size_t kBlock = kBlockBytes / sizeof(T);

template <class T>
std::size_t sum(T* out, const WeightedSum<T>& sum, std::size_t n) {
  const std::size_t piece = sum.count <= kGroup ? kCountable : kBlock<T>;
  return in_pieces(n, piece, [&](std::size_t at, std::size_t elements) {
    return sum_block(reinterpret_cast<T*>(loose(out) + at), sum, at, elements);
  });
}

}  // namespace
}  // namespace dt::kv
