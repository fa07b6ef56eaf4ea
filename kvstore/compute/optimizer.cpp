#include "kvstore/compute/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/number.h"
#include "core/base/words.h"
#include "kvstore/compute/kernels/kernels.h"

namespace dt::kv {

namespace {

Result<double> parse_value(std::string_view word, std::string_view text) {
  const auto value = parse_number<double>(text);
  if (!value || !std::isfinite(*value) || *value < 0)
    return fail(ErrorKind::kInvalid, "optimizer: '{}' needs a number that is not negative", word);
  return *value;
}

/// Why the rule cannot compute with its options; empty: it can.
std::string_view refusal(const OptimizerSpec& spec) {
  if (spec.beta1 >= 1 || spec.beta2 >= 1) return "a beta is at least 0 and less than 1";
  if (spec.eps == 0) return "eps is more than 0";
  if (spec.nesterov && spec.momentum == 0) return "nesterov=1 needs a momentum";
  return {};
}

/// The memory of `state` for `elements` of T: zeroed at first; a copy if there is another
/// reference.
template <class T>
T* moments(std::shared_ptr<Payload>& state, std::size_t elements) {
  const bool is_new = !state;
  if (is_new || state.use_count() > 1) {
    auto fresh = std::make_shared<Payload>(elements * sizeof(T));
    if (is_new)
      std::memset(fresh->data(), 0, fresh->size());
    else if (!fresh->empty())
      std::memcpy(fresh->data(), state->data(), fresh->size());
    state = std::move(fresh);
  }
  return reinterpret_cast<T*>(state->data());
}

template <class T>
std::size_t update_as(const Arithmetic<T>& arithmetic, const OptimizerSpec& spec,
                      OptimizerState& state, double lr, T* values, const Reduction& gradient,
                      std::size_t elements) {
  const TypedSum<T> sum(gradient);
  if (spec.rule == OptimizerSpec::Rule::kSgd) {
    T* momentum = spec.momentum != 0 ? moments<T>(state.first, elements) : nullptr;
    return arithmetic.sgd(values, momentum, sum.sum(), sgd_constants<T>(spec, lr), elements);
  }
  return arithmetic.adam(values, moments<T>(state.first, elements),
                         moments<T>(state.second, elements), sum.sum(),
                         adam_constants<T>(spec, lr, state.updates), elements);
}

}  // namespace

Result<OptimizerSpec> parse_optimizer(std::string_view text) {
  const std::string_view rule = next_word(text);
  OptimizerSpec spec;
  if (rule == "adam")
    spec.rule = OptimizerSpec::Rule::kAdam;
  else if (rule == "adamw")
    spec = {.rule = OptimizerSpec::Rule::kAdamW, .weight_decay = 0.01};
  else if (rule.empty())
    return fail(ErrorKind::kInvalid, "optimizer: give one of sgd, adam, adamw");
  else if (rule != "sgd")
    return fail(ErrorKind::kInvalid, "optimizer: '{}' is none of sgd, adam, adamw", rule);
  for (auto word = next_word(text); !word.empty(); word = next_word(text)) {
    const std::string_view name = word.substr(0, word.find('='));
    auto value = parse_value(word, word.substr(std::min(name.size() + 1, word.size())));
    if (!value) return tl::unexpected(value.error());
    const bool is_sgd = spec.rule == OptimizerSpec::Rule::kSgd;
    if (name == "weight_decay")
      spec.weight_decay = *value;
    else if (is_sgd && name == "momentum")
      spec.momentum = *value;
    else if (is_sgd && name == "nesterov")
      spec.nesterov = *value != 0;
    else if (!is_sgd && name == "beta1")
      spec.beta1 = *value;
    else if (!is_sgd && name == "beta2")
      spec.beta2 = *value;
    else if (!is_sgd && name == "eps")
      spec.eps = *value;
    else
      return fail(ErrorKind::kInvalid, "optimizer: '{}' is not an option of {} ({})", name, rule,
                  is_sgd ? "momentum, nesterov, weight_decay" : "beta1, beta2, eps, weight_decay");
  }
  if (const auto why = refusal(spec); !why.empty())
    return fail(ErrorKind::kInvalid, "optimizer: {}", why);
  return spec;
}

std::string to_string(const OptimizerSpec& spec) {
  if (spec.rule == OptimizerSpec::Rule::kSgd)
    return fmt::format("sgd momentum={} nesterov={} weight_decay={}", spec.momentum,
                       spec.nesterov ? 1 : 0, spec.weight_decay);
  return fmt::format("{} beta1={} beta2={} eps={} weight_decay={}",
                     spec.rule == OptimizerSpec::Rule::kAdam ? "adam" : "adamw", spec.beta1,
                     spec.beta2, spec.eps, spec.weight_decay);
}

unsigned states_of(const OptimizerSpec& spec) {
  if (spec.rule != OptimizerSpec::Rule::kSgd) return 2;
  return spec.momentum != 0 ? 1 : 0;
}

std::size_t update(const OptimizerSpec& spec, OptimizerState& state, data::Dtype dtype,
                   double learning_rate, std::byte* values, const Reduction& gradient,
                   std::size_t elements) {
  ++state.updates;
  return as_float(dtype, [&]<class T>(const Arithmetic<T>& with) {
    return update_as(with, spec, state, learning_rate, reinterpret_cast<T*>(values), gradient,
                     elements);
  });
}

}  // namespace dt::kv
