#include "kvstore/compute/kernels/kernels.h"

#include <cmath>
#include <cstdlib>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace dt::kv {

// Each is defined in the file of its level.
extern const Kernels kBaselineKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

namespace {

#if defined(__x86_64__)
bool has_f16c() {  // not every compiler's __builtin_cpu_supports knows the name
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
bool has_avx2() { return __builtin_cpu_supports("avx2") && has_f16c(); }
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

/// base^exponent by squaring: the same bits everywhere.
double power(double base, std::uint64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1, base *= base)
    if (exponent & 1) result *= base;
  return result;
}

const Kernels& best() {
  const char* text = std::getenv("DT_SIMD");
  const std::string_view most = text ? text : "";
  const Kernels* avx512 = kernels(SimdLevel::kAvx512);
  if (avx512 && most != "avx2" && most != "baseline") return *avx512;
  const Kernels* avx2 = kernels(SimdLevel::kAvx2);
  if (avx2 && most != "baseline") return *avx2;
  return kBaselineKernels;
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& chosen = best();
  return chosen;
}

const Kernels* kernels(SimdLevel level) {
  switch (level) {
    case SimdLevel::kBaseline:
      return &kBaselineKernels;
#if defined(__x86_64__)
    case SimdLevel::kAvx2:
      return has_avx2() ? &kAvx2Kernels : nullptr;
    case SimdLevel::kAvx512:
      return has_avx512() ? &kAvx512Kernels : nullptr;
#else
    case SimdLevel::kAvx2:
    case SimdLevel::kAvx512:
      break;
#endif
  }
  return nullptr;
}

template <class T>
AdamStep<T> adam_step(const AdamOptions& options) {
  const double decay = options.learning_rate * options.weight_decay;
  return {
      .keep = static_cast<T>(options.decoupled ? 1 - decay : 1),
      .weight_decay = static_cast<T>(options.decoupled ? 0 : options.weight_decay),
      .beta1 = static_cast<T>(options.beta1),
      .rest1 = static_cast<T>(1 - options.beta1),
      .beta2 = static_cast<T>(options.beta2),
      .rest2 = static_cast<T>(1 - options.beta2),
      .step = static_cast<T>(options.learning_rate / (1 - power(options.beta1, options.update))),
      .root_scale = static_cast<T>(1 / std::sqrt(1 - power(options.beta2, options.update))),
      .eps = static_cast<T>(options.eps),
  };
}

template AdamStep<float> adam_step<float>(const AdamOptions& options);
template AdamStep<double> adam_step<double>(const AdamOptions& options);

}  // namespace dt::kv
