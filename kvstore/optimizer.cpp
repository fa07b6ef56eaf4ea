#include "kvstore/optimizer.h"

#include <charconv>
#include <cmath>

namespace dt::kv {

namespace {

Result<double> parse_number(std::string_view word, std::string_view text) {
  double value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc{} || end != text.data() + text.size() || !std::isfinite(value) || value < 0)
    return fail(ErrorKind::kInvalid, "optimizer: '{}' needs a number that is not negative", word);
  return value;
}

template <class T>
void sgd(const OptimizerSpec& spec, OptimizerState& state, double lr, T* values, const T* gradient,
         std::size_t elements) {
  const bool keeps = spec.momentum != 0;
  if (keeps && state.first.empty()) state.first.assign(elements, 0);
  for (std::size_t i = 0; i < elements; ++i) {
    double w = static_cast<double>(values[i]);
    double g = static_cast<double>(gradient[i]) + spec.weight_decay * w;
    if (keeps) {
      double& m = state.first[i];
      m = spec.momentum * m + g;
      g = spec.nesterov ? g + spec.momentum * m : m;
    }
    values[i] = static_cast<T>(w - lr * g);
  }
}

template <class T>
void adam(const OptimizerSpec& spec, OptimizerState& state, double lr, T* values, const T* gradient,
          std::size_t elements) {
  if (state.first.empty()) {
    state.first.assign(elements, 0);
    state.second.assign(elements, 0);
  }
  const auto t = static_cast<double>(state.updates);
  const double correct1 = 1 - std::pow(spec.beta1, t);
  const double correct2 = 1 - std::pow(spec.beta2, t);
  const bool decoupled = spec.rule == OptimizerSpec::Rule::kAdamW;
  for (std::size_t i = 0; i < elements; ++i) {
    double w = static_cast<double>(values[i]);
    double g = static_cast<double>(gradient[i]);
    if (decoupled)
      w -= lr * spec.weight_decay * w;
    else
      g += spec.weight_decay * w;
    double& m = state.first[i];
    double& v = state.second[i];
    m = spec.beta1 * m + (1 - spec.beta1) * g;
    v = spec.beta2 * v + (1 - spec.beta2) * g * g;
    values[i] = static_cast<T>(w - lr * (m / correct1) / (std::sqrt(v / correct2) + spec.eps));
  }
}

template <class T>
void update_as(const OptimizerSpec& spec, OptimizerState& state, double lr, std::byte* values,
               const std::byte* gradient, std::size_t elements) {
  auto* w = reinterpret_cast<T*>(values);
  const auto* g = reinterpret_cast<const T*>(gradient);
  if (spec.rule == OptimizerSpec::Rule::kSgd)
    sgd(spec, state, lr, w, g, elements);
  else
    adam(spec, state, lr, w, g, elements);
}

}  // namespace

Result<OptimizerSpec> parse_optimizer(std::string_view text) {
  OptimizerSpec spec;
  bool named = false;
  while (!text.empty()) {
    const auto begin = text.find_first_not_of(" \t");
    if (begin == std::string_view::npos) break;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(" \t"));
    text.remove_prefix(word.size());
    if (!named) {
      named = true;
      if (word == "sgd")
        spec.rule = OptimizerSpec::Rule::kSgd;
      else if (word == "adam")
        spec.rule = OptimizerSpec::Rule::kAdam;
      else if (word == "adamw")
        spec.rule = OptimizerSpec::Rule::kAdamW;
      else
        return fail(ErrorKind::kInvalid, "optimizer: '{}' is none of sgd, adam, adamw", word);
      continue;
    }
    const auto equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    auto value = parse_number(
        word, equals == std::string_view::npos ? std::string_view{} : word.substr(equals + 1));
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
      return fail(ErrorKind::kInvalid, "optimizer: '{}' is not an option of {} ({})", name,
                  to_string(OptimizerSpec{.rule = spec.rule}),
                  is_sgd ? "momentum, nesterov, weight_decay" : "beta1, beta2, eps, weight_decay");
  }
  if (!named) return fail(ErrorKind::kInvalid, "optimizer: give one of sgd, adam, adamw");
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

void update(const OptimizerSpec& spec, OptimizerState& state, data::Dtype dtype,
            double learning_rate, std::byte* values, const std::byte* gradient,
            std::size_t elements) {
  ++state.updates;
  if (dtype == data::Dtype::kFloat32)
    return update_as<float>(spec, state, learning_rate, values, gradient, elements);
  DT_CHECK(dtype == data::Dtype::kFloat64, "optimizers compute with float32 and float64");
  update_as<double>(spec, state, learning_rate, values, gradient, elements);
}

}  // namespace dt::kv
