#include "kvstore/server/round_sum.h"

#include <utility>

namespace dt::kv {

Payload RoundSum::add(Engine& engine, data::Dtype dtype, Payload bytes, bool is_mean,
                      std::uint64_t samples, bool is_last) {
  total_ += samples;
  if (empty()) {
    unit_ = samples;
    sum_ = std::move(bytes);
    return {};
  }
  if (is_last) {
    last_ = std::move(bytes);
    last_samples_ = samples;
    return {};
  }
  const double weight = weigh(engine, dtype, is_mean, samples);
  engine.add(dtype, sum_.data(), bytes.data(), weight, elements(dtype), false);
  return bytes;
}

void RoundSum::add_compressed(Engine& engine, data::Codec codec, const Payload& codes, bool is_mean,
                              std::uint64_t samples) {
  total_ += samples;
  const double weight = weigh(engine, data::Dtype::kFloat32, is_mean, samples);
  engine.decode_add(codec, sum_.data(), codes, static_cast<float>(weight),
                    elements(data::Dtype::kFloat32));
}

double RoundSum::weigh(Engine& engine, data::Dtype dtype, bool is_mean, std::uint64_t samples) {
  if (is_mean && samples != unit_ && !is_weighted_) {
    is_weighted_ = true;
    engine.scale(dtype, sum_.data(), static_cast<double>(unit_), elements(dtype));
  }
  return is_weighted_ ? static_cast<double>(samples) : 1;
}

double RoundSum::append_to(std::vector<Addend>& addends, bool is_mean) const {
  if (empty()) return 0;
  const bool multiplies = is_mean && !is_weighted_;
  addends.push_back({sum_.data(), multiplies ? static_cast<double>(unit_) : 1});
  if (!last_.empty())
    addends.push_back({last_.data(), is_mean ? static_cast<double>(last_samples_) : 1});
  return static_cast<double>(total_);
}

RoundSum::Memory RoundSum::take() {
  unit_ = total_ = last_samples_ = 0;
  is_weighted_ = false;
  return {std::exchange(sum_, Payload()), std::exchange(last_, Payload())};
}

}  // namespace dt::kv
