/// Weighted sums of several arrays, in one pass over memory. The order of operations is that of
/// kvstore/compute/kernels: from left to right, each product rounded first.
#pragma once

#include "kvstore/compute/cuda/formats.h"
#include "kvstore/compute/cuda/operation.h"

namespace dt::kv::cuda {

/// (weights[0]*source 0 + weights[1]*source 1 + ...) / divisor over up to kMost arrays. The source
/// pointers are in the tensor.
template <class In, unsigned kMost>
struct Weighted {
  using Math = typename In::Math;
  using Element = typename In::Element;
  static_assert(kMost >= 1);

  unsigned count = 1;  ///< 1 to kMost
  Math weights[kMost];
  Math divisor = 1;

  Weighted() {
    for (auto& weight : weights) weight = 1;
  }

  template <unsigned kLanes>
  struct Loaded {
    Pack<Element, kLanes> sources[kMost];
  };

  template <bool kWhole, unsigned kLanes>
  DT_HOST_DEVICE Loaded<kLanes> read(const Element* const* sources, std::uint64_t item,
                                     std::uint64_t elements) const {
    Loaded<kLanes> loaded;
    DT_UNROLL
    for (unsigned k = 0; k < kMost; ++k)
      if (k == 0 || k < count) loaded.sources[k] = load<kWhole, kLanes>(sources[k], item, elements);
    return loaded;
  }

  template <unsigned kLanes>
  DT_HOST_DEVICE Rounded<Math> total(const Loaded<kLanes>& loaded, unsigned lane) const {
    Rounded<Math> x{};
    DT_UNROLL
    for (unsigned k = 0; k < kMost; ++k) {
      if (k > 0 && k >= count) continue;
      const auto product = rounded(weights[k]) * rounded(In::widen(loaded.sources[k].at[lane]));
      x = k == 0 ? product : x + product;
    }
    if (divisor != Math{1}) x = x / rounded(divisor);
    return x;
  }

  template <unsigned kLanes>
  DT_HOST_DEVICE bool is_wide(const Element* const* sources) const {
    bool wide = true;
    DT_UNROLL
    for (unsigned k = 0; k < kMost; ++k)
      if (k == 0 || k < count) wide = wide && is_aligned<kLanes>(sources[k]);
    return wide;
  }
};

/// Threads keep about eight reads under way.
constexpr unsigned at_once(unsigned reads) { return reads >= 8 ? 1 : reads >= 4 ? 2 : 4; }

/// out = the sum. Counts the non-finite results.
template <class InFormat, unsigned kMostSources>
struct Sum {
  using In = InFormat;
  using Math = typename In::Math;
  static constexpr unsigned kMost = kMostSources;
  struct Tensor {
    const typename In::Element* sources[kMost] = {};
    Math* out = nullptr;  ///< may be sources[0]
    std::uint64_t elements = 0;
  };
  static constexpr unsigned kLanes = kAccess / sizeof(Math);
  static constexpr unsigned kAtOnce = at_once(kMost);
  using Loaded = typename Weighted<In, kMost>::template Loaded<kLanes>;

  Weighted<In, kMost> sum;

  DT_HOST_DEVICE bool is_wide(const Tensor& t) const {
    return sum.template is_wide<kLanes>(t.sources) && is_aligned<kLanes>(t.out);
  }
  template <bool kWhole>
  DT_HOST_DEVICE Loaded read(const Tensor& t, std::uint64_t item) const {
    return sum.template read<kWhole, kLanes>(t.sources, item, t.elements);
  }
  template <bool kWhole>
  DT_HOST_DEVICE unsigned write(const Tensor& t, std::uint64_t item, const Loaded& loaded) const {
    Pack<Math, kLanes> out;
    const unsigned present = kWhole ? kLanes : lanes_of<kLanes>(item, t.elements);
    unsigned nonfinite = 0;
    DT_UNROLL
    for (unsigned k = 0; k < kLanes; ++k) {
      const auto total = sum.template total<kLanes>(loaded, k);
      out.at[k] = total.value;
      nonfinite += k < present && is_nonfinite(total) ? 1 : 0;
    }
    store<kWhole, kLanes>(t.out, item, t.elements, out);
    return nonfinite;
  }
};

/// into += weight*from, the product rounded first. Counts the non-finite elements of `from`.
template <class InFormat>
struct Add {
  using In = InFormat;
  using Math = typename In::Math;
  struct Tensor {
    Math* into = nullptr;
    const typename In::Element* from = nullptr;
    std::uint64_t elements = 0;
  };
  static constexpr unsigned kLanes = kAccess / sizeof(Math);
  static constexpr unsigned kAtOnce = at_once(2);
  struct Loaded {
    Pack<Math, kLanes> into;
    Pack<typename In::Element, kLanes> from;
  };

  Math weight = 1;

  DT_HOST_DEVICE bool is_wide(const Tensor& t) const {
    return is_aligned<kLanes>(t.into) && is_aligned<kLanes>(t.from);
  }
  template <bool kWhole>
  DT_HOST_DEVICE Loaded read(const Tensor& t, std::uint64_t item) const {
    return {load<kWhole, kLanes>(t.into, item, t.elements),
            load<kWhole, kLanes>(t.from, item, t.elements)};
  }
  template <bool kWhole>
  DT_HOST_DEVICE unsigned write(const Tensor& t, std::uint64_t item, Loaded loaded) const {
    unsigned nonfinite = 0;  // lanes past the end are zero
    DT_UNROLL
    for (unsigned k = 0; k < kLanes; ++k) {
      const auto from = loaded.from.at[k];
      nonfinite += In::is_nonfinite(from) ? 1 : 0;
      const auto product = rounded(weight) * rounded(In::widen(from));
      loaded.into.at[k] = (rounded(loaded.into.at[k]) + product).value;
    }
    store<kWhole, kLanes>(t.into, item, t.elements, loaded.into);
    return nonfinite;
  }
};

}  // namespace dt::kv::cuda
