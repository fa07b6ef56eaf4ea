#include "kvstore/round_sum.h"

#include <utility>

namespace dt::kv {

Payload RoundSum::add(data::Dtype dtype, Payload bytes, bool is_mean, std::uint64_t samples,
                      bool is_last) {
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
  const std::size_t elements = sum_.size() / data::element_bytes(dtype);
  if (is_mean && samples != unit_ && !is_weighted_) {
    is_weighted_ = true;
    scale(dtype, sum_.data(), static_cast<double>(unit_), elements);
  }
  add_to(dtype, sum_.data(), bytes.data(), is_weighted_ ? static_cast<double>(samples) : 1,
         elements);
  return bytes;
}

Reduction RoundSum::reduction(bool is_mean) {
  const bool differs = is_mean && (is_weighted_ || (!last_.empty() && last_samples_ != unit_));
  const bool scales_sum = differs && !is_weighted_;
  addends_[0] = {sum_.data(), scales_sum ? static_cast<double>(unit_) : 1};
  addends_[1] = {last_.data(), differs ? static_cast<double>(last_samples_) : 1};
  Reduction out;
  out.addends = std::span(addends_).first(last_.empty() ? 1 : 2);
  if (differs)
    out.divisor = static_cast<double>(total_);
  else if (is_mean)
    out.divisor = static_cast<double>(total_) / static_cast<double>(unit_);
  return out;
}

RoundSum::Memory RoundSum::take() {
  unit_ = total_ = last_samples_ = 0;
  is_weighted_ = false;
  return {std::exchange(sum_, Payload()), std::exchange(last_, Payload())};
}

}  // namespace dt::kv
