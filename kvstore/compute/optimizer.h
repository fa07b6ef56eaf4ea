/// The update rules a server (or the local store) applies to parameter keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "kvstore/compute/kernels/kernels.h"
#include "kvstore/compute/payload.h"
#include "kvstore/compute/reduce.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

/// The parsed argument of `dtkv_set_optimizer`. Two specs are equal if they compute the same.
struct OptimizerSpec {
  enum class Rule : std::uint8_t { kSgd, kAdam, kAdamW };
  Rule rule = Rule::kSgd;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  friend bool operator==(const OptimizerSpec&, const OptimizerSpec&) = default;
};

/// "sgd momentum=0.9 weight_decay=1e-4 nesterov=1", "adam beta1=0.9 ...", "adamw ...". Options
/// that are not given have torch.optim's defaults. The error names the word that is not understood
/// and what would be, or the option that no step can be made with.
[[nodiscard]] Result<OptimizerSpec> parse_optimizer(std::string_view text);
[[nodiscard]] std::string to_string(const OptimizerSpec& spec);
/// How many arrays of OptimizerState the rule uses.
[[nodiscard]] unsigned states_of(const OptimizerSpec& spec);

/// Momentum and moments of one chunk, in the values' own type; null until the first update. While
/// there is another reference to one of them, its bytes do not change: the next update goes into
/// other memory.
struct OptimizerState {
  std::shared_ptr<Payload> first;   ///< SGD: momentum buffer. Adam: first moment.
  std::shared_ptr<Payload> second;  ///< Adam: second moment.
  std::uint64_t updates = 0;
};

/// The constants of a rule's kernels, for T = float and double. `update` counts from 1.
template <class T>
[[nodiscard]] SgdStep<T> sgd_constants(const OptimizerSpec& spec, double learning_rate) {
  return {.learning_rate = static_cast<T>(learning_rate),
          .momentum = static_cast<T>(spec.momentum),
          .weight_decay = static_cast<T>(spec.weight_decay),
          .nesterov = spec.nesterov};
}
template <class T>
[[nodiscard]] AdamStep<T> adam_constants(const OptimizerSpec& spec, double learning_rate,
                                         std::uint64_t update) {
  return adam_step<T>({.learning_rate = learning_rate,
                       .beta1 = spec.beta1,
                       .beta2 = spec.beta2,
                       .eps = spec.eps,
                       .weight_decay = spec.weight_decay,
                       .decoupled = spec.rule == OptimizerSpec::Rule::kAdamW,
                       .update = update});
}

/// One update of `elements` values in one pass over memory. The rules are those of torch.optim: the
/// learning rate does not enter the momentum buffer, so changing it needs no correction:
///     sgd    g += wd*w;  m = momentum*m + g;  w -= lr * (nesterov ? g + momentum*m : m)
///     adam   g += wd*w;  the usual bias-corrected moments
///     adamw  w -= lr*wd*w;  the same moments of the plain g
/// dtype is kFloat32 or kFloat64. Returns how many elements of the gradient are not finite.
std::size_t update(const OptimizerSpec& spec, OptimizerState& state, data::Dtype dtype,
                   double learning_rate, std::byte* values, const Reduction& gradient,
                   std::size_t elements);

}  // namespace dt::kv
