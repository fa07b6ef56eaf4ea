/// Optimizer steps that also sum their gradients, in one pass over memory. The rules,
/// their constants and the order of operations are those of kvstore/compute/kernels.
#pragma once

#include "kvstore/compute/cuda/sum.h"
#include "kvstore/compute/kernels/kernels.h"

namespace dt::kv::cuda {

/// The arrays of both rules: values, states and gradients.
template <class Format, unsigned kMostGradients>
struct StepOf {
  using Math = typename Format::Math;
  static constexpr unsigned kMost = kMostGradients;
  static constexpr unsigned kLanes = kAccess / sizeof(Math);
  using Numbers = Pack<Math, kLanes>;

  struct Tensor {
    Math* values = nullptr;
    Math* first = nullptr;   ///< momentum, or first moment; null where the rule has none
    Math* second = nullptr;  ///< second moment; null for SGD
    const Math* gradients[kMost] = {};
    std::uint64_t elements = 0;
  };
  struct Loaded {
    Numbers values, first, second;
    typename Weighted<Format, kMost>::template Loaded<kLanes> gradients;
  };

  Weighted<Format, kMost> gradient;

  DT_HOST_DEVICE bool is_wide(const Tensor& t) const {
    return is_aligned<kLanes>(t.values) && is_aligned<kLanes>(t.first) &&
           is_aligned<kLanes>(t.second) && gradient.template is_wide<kLanes>(t.gradients);
  }

 protected:
  template <bool kWhole>
  DT_HOST_DEVICE void read_values(Loaded& loaded, const Tensor& t, std::uint64_t item) const {
    loaded.values = load<kWhole, kLanes>(t.values, item, t.elements);
    loaded.gradients = gradient.template read<kWhole, kLanes>(t.gradients, item, t.elements);
  }
};

/// A step of SgdStep. Counts the non-finite elements of the gradient.
template <class Format, unsigned kMost>
struct Sgd : StepOf<Format, kMost> {
  using Base = StepOf<Format, kMost>;
  using typename Base::Loaded;
  using typename Base::Math;
  using typename Base::Tensor;
  static constexpr unsigned kLanes = Base::kLanes;
  static constexpr unsigned kAtOnce = at_once(kMost + 2);

  SgdStep<Math> step;

  template <bool kWhole>
  DT_HOST_DEVICE Loaded read(const Tensor& t, std::uint64_t item) const {
    Loaded loaded;
    this->template read_values<kWhole>(loaded, t, item);
    if (step.momentum != Math{0}) loaded.first = load<kWhole, kLanes>(t.first, item, t.elements);
    return loaded;
  }

  template <bool kWhole>
  DT_HOST_DEVICE unsigned write(const Tensor& t, std::uint64_t item, Loaded loaded) const {
    const unsigned present = kWhole ? kLanes : lanes_of<kLanes>(item, t.elements);
    unsigned nonfinite = 0;
    DT_UNROLL
    for (unsigned k = 0; k < kLanes; ++k) {
      const auto x = this->gradient.template total<kLanes>(loaded.gradients, k);
      nonfinite += k < present && is_nonfinite(x) ? 1 : 0;
      const auto w = rounded(loaded.values.at[k]);
      auto g = x + rounded(step.weight_decay) * w;
      if (step.momentum != Math{0}) {
        const auto kept = rounded(step.momentum) * rounded(loaded.first.at[k]) + g;
        loaded.first.at[k] = kept.value;
        g = step.nesterov ? g + rounded(step.momentum) * kept : kept;
      }
      loaded.values.at[k] = (w - rounded(step.learning_rate) * g).value;
    }
    if (step.momentum != Math{0}) store<kWhole, kLanes>(t.first, item, t.elements, loaded.first);
    store<kWhole, kLanes>(t.values, item, t.elements, loaded.values);
    return nonfinite;
  }
};

/// A step of AdamStep (Adam and AdamW). Counts the non-finite elements of the gradient.
template <class Format, unsigned kMost>
struct Adam : StepOf<Format, kMost> {
  using Base = StepOf<Format, kMost>;
  using typename Base::Loaded;
  using typename Base::Math;
  using typename Base::Tensor;
  static constexpr unsigned kLanes = Base::kLanes;
  static constexpr unsigned kAtOnce = at_once(kMost + 3);

  AdamStep<Math> step;

  template <bool kWhole>
  DT_HOST_DEVICE Loaded read(const Tensor& t, std::uint64_t item) const {
    Loaded loaded;
    this->template read_values<kWhole>(loaded, t, item);
    loaded.first = load<kWhole, kLanes>(t.first, item, t.elements);
    loaded.second = load<kWhole, kLanes>(t.second, item, t.elements);
    return loaded;
  }

  template <bool kWhole>
  DT_HOST_DEVICE unsigned write(const Tensor& t, std::uint64_t item, Loaded loaded) const {
    const unsigned present = kWhole ? kLanes : lanes_of<kLanes>(item, t.elements);
    unsigned nonfinite = 0;
    DT_UNROLL
    for (unsigned k = 0; k < kLanes; ++k) {
      const auto x = this->gradient.template total<kLanes>(loaded.gradients, k);
      nonfinite += k < present && is_nonfinite(x) ? 1 : 0;
      const auto kept = rounded(loaded.values.at[k]) * rounded(step.keep);
      const auto g = x + rounded(step.weight_decay) * kept;
      const auto first =
          rounded(step.beta1) * rounded(loaded.first.at[k]) + rounded(step.rest1) * g;
      const auto second =
          rounded(step.beta2) * rounded(loaded.second.at[k]) + rounded(step.rest2) * (g * g);
      loaded.first.at[k] = first.value;
      loaded.second.at[k] = second.value;
      const auto root = square_root(second) * rounded(step.root_scale) + rounded(step.eps);
      loaded.values.at[k] = (kept - rounded(step.step) * (first / root)).value;
    }
    store<kWhole, kLanes>(t.first, item, t.elements, loaded.first);
    store<kWhole, kLanes>(t.second, item, t.elements, loaded.second);
    store<kWhole, kLanes>(t.values, item, t.elements, loaded.values);
    return nonfinite;
  }
};

}  // namespace dt::kv::cuda
