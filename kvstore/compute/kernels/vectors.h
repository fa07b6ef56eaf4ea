/// Floats by the register, for what the compiler does not find by itself. Part of level.h.
#pragma once

#include "kvstore/compute/kernels/elements.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dt::kv {
namespace {

#if defined(__AVX512F__)
using Floats = __m512;
Floats load(const Loose<float>* from) { return _mm512_loadu_ps(from); }
void store(Loose<float>* to, Floats x) { _mm512_storeu_ps(to, x); }
#elif defined(__AVX2__)
using Floats = __m256;
Floats load(const Loose<float>* from) {
  return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
}
void store(Loose<float>* to, Floats x) { _mm256_storeu_ps(reinterpret_cast<float*>(to), x); }
#endif

}  // namespace
}  // namespace dt::kv
