/// The examples' network, small enough to be written out.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kvstore/dtkv.h"
#include "trainer/data/random.h"

namespace dt::train {

/// One hidden layer, relu, softmax; ten classes. Parameters and gradients are flat arrays; the
/// kvstore's keys are views of them.
class Mlp {
 public:
  Mlp(std::size_t inputs, std::size_t hidden, std::uint64_t seed)
      : inputs_(inputs),
        hidden_(hidden),
        values_(size()),
        gradients_(size()),
        hidden_units_(hidden) {
    Random random(seed);
    const auto fill = [&](float* at, std::size_t n, double fan_in) {
      for (std::size_t i = 0; i < n; ++i)
        at[i] = static_cast<float>(random.normal() * std::sqrt(1.0 / fan_in));
    };
    fill(values_.data() + part(0), inputs_ * hidden_, static_cast<double>(inputs_));
    fill(values_.data() + part(2), hidden_ * kClasses, static_cast<double>(hidden_));
  }

  static constexpr std::size_t kKeys = 4;
  static constexpr std::array<const char*, kKeys> kKeyNames{"w1", "b1", "w2", "b2"};

  /// The parameters, or the gradients, as arrays for the kvstore.
  std::array<dtkv_array, kKeys> arrays(std::vector<float>& flat) const {
    std::array<dtkv_array, kKeys> views{};
    for (std::size_t k = 0; k < kKeys; ++k)
      views[k] = {flat.data() + part(k), part(k + 1) - part(k), DTKV_FLOAT32, DTKV_CPU, 0, nullptr};
    return views;
  }
  std::vector<float>& values() { return values_; }
  std::vector<float>& gradients() { return gradients_; }

  void zero_gradients() { std::ranges::fill(gradients_, 0.0F); }

  /// Adds weight * the gradient of one sample's loss; returns the loss.
  float learn(const float* x, std::size_t label, float weight) {
    std::array<float, kClasses> p{};
    const float loss = forward(x, label, p);
    float* gw1 = gradients_.data() + part(0);
    float* gb1 = gradients_.data() + part(1);
    float* gw2 = gradients_.data() + part(2);
    float* gb2 = gradients_.data() + part(3);
    const float* w2 = values_.data() + part(2);
    p[label] -= 1.0F;
    for (std::size_t c = 0; c < kClasses; ++c) p[c] *= weight;
    for (std::size_t c = 0; c < kClasses; ++c) gb2[c] += p[c];
    std::vector<float>& back = hidden_units_;  // reused: unit j is read before it is replaced
    for (std::size_t j = 0; j < hidden_; ++j) {
      const float unit = hidden_units_[j];
      float sum = 0.0F;
      for (std::size_t c = 0; c < kClasses; ++c) {
        gw2[j * kClasses + c] += unit * p[c];
        sum += w2[j * kClasses + c] * p[c];
      }
      back[j] = unit > 0.0F ? sum : 0.0F;
      gb1[j] += back[j];
    }
    for (std::size_t i = 0; i < inputs_; ++i)
      for (std::size_t j = 0; j < hidden_; ++j) gw1[i * hidden_ + j] += x[i] * back[j];
    return loss;
  }

  bool is_right(const float* x, std::size_t label) {
    std::array<float, kClasses> p{};
    forward(x, label, p);
    return static_cast<std::size_t>(std::ranges::max_element(p) - p.begin()) == label;
  }

 private:
  static constexpr std::size_t kClasses = 10;

  /// Where key k begins in the flat arrays; part(kKeys) is their size.
  std::size_t part(std::size_t k) const {
    const std::array<std::size_t, kKeys> sizes{inputs_ * hidden_, hidden_, hidden_ * kClasses,
                                               kClasses};
    std::size_t at = 0;
    for (std::size_t i = 0; i < k; ++i) at += sizes[i];
    return at;
  }
  std::size_t size() const { return part(kKeys); }

  float forward(const float* x, std::size_t label, std::array<float, kClasses>& p) {
    const float* w1 = values_.data() + part(0);
    const float* w2 = values_.data() + part(2);
    std::copy_n(values_.data() + part(1), hidden_, hidden_units_.data());
    for (std::size_t i = 0; i < inputs_; ++i)
      for (std::size_t j = 0; j < hidden_; ++j) hidden_units_[j] += x[i] * w1[i * hidden_ + j];
    for (float& unit : hidden_units_) unit = std::max(unit, 0.0F);
    std::copy_n(values_.data() + part(3), kClasses, p.data());
    for (std::size_t j = 0; j < hidden_; ++j)
      for (std::size_t c = 0; c < kClasses; ++c) p[c] += hidden_units_[j] * w2[j * kClasses + c];
    const float top = *std::ranges::max_element(p);
    float sum = 0.0F;
    for (float& logit : p) sum += logit = std::exp(logit - top);
    for (float& value : p) value /= sum;
    return -std::log(std::max(p[label], 1e-30F));
  }

  std::size_t inputs_;
  std::size_t hidden_;
  std::vector<float> values_;
  std::vector<float> gradients_;
  std::vector<float> hidden_units_;
};

}  // namespace dt::train
