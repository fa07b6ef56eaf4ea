#include "kvstore/round_sum.h"

#include "kvstore/reduce.h"

namespace dt::kv {

Payload RoundSum::add(data::Dtype dtype, Payload bytes, bool is_mean, std::uint64_t samples) {
  total_ += samples;
  if (empty()) {
    unit_ = samples;
    bytes_ = std::move(bytes);
    return {};
  }
  const std::size_t elements = bytes_.size() / data::element_bytes(dtype);
  if (is_mean && samples != unit_ && !is_weighted_) {
    is_weighted_ = true;
    scale(dtype, bytes_.data(), static_cast<double>(unit_), elements);
  }
  const double weight = is_mean && is_weighted_ ? static_cast<double>(samples) : 1;
  add_to(dtype, bytes_.data(), bytes.data(), weight, elements);
  return bytes;
}

double RoundSum::divisor(bool is_mean) const {
  if (!is_mean) return 1;
  if (is_weighted_) return static_cast<double>(total_);
  return static_cast<double>(total_) / static_cast<double>(unit_);
}

Payload RoundSum::take() {
  unit_ = total_ = 0;
  is_weighted_ = false;
  return std::exchange(bytes_, Payload());
}

}  // namespace dt::kv
