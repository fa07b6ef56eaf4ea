#include "kvstore/worker/figure_board.h"

#include <cmath>
#include <utility>

namespace dt::kv {
namespace {

constexpr std::size_t kNames = 32;

}  // namespace

void FigureBoard::pushed(const std::string& key, std::uint64_t samples) {
  if (counted_key_.empty()) counted_key_ = key;
  if (key != counted_key_) return;
  samples_.fetch_add(samples, std::memory_order_relaxed);
  steps_.fetch_add(1, std::memory_order_relaxed);
}

bool FigureBoard::report(const std::string& name, double value) {
  has_changed_ = true;
  if (!std::isfinite(value)) {
    ++dropped_;
  } else if (name == "steps_in_epoch") {
    steps_in_epoch_ = value > 0 && value < 1e15 ? static_cast<std::uint64_t>(value) : 0;
  } else if (values_.size() < kNames || values_.contains(name)) {
    values_[name] = value;
  } else {
    return !refused_.insert(name).second;
  }
  return true;
}

void FigureBoard::waits(KeyId key, std::string in) {
  if (key == waits_key_ && in == waits_in_) return;
  has_changed_ = true;
  waits_key_ = key;
  waits_in_ = std::move(in);
}

std::optional<Figures> FigureBoard::take(Duration waited) {
  const std::uint64_t samples = samples_.load(std::memory_order_relaxed);
  if (!has_changed_ && samples == samples_taken_ && waited == waited_taken_) return std::nullopt;
  waited_taken_ = waited;
  has_changed_ = false;
  samples_taken_ = samples;
  return Figures{samples,
                 steps_in_epoch_,
                 dropped_,
                 {values_.begin(), values_.end()},
                 waits_key_,
                 waits_in_,
                 steps_.load(std::memory_order_relaxed),
                 static_cast<std::uint64_t>(waited.count())};
}

}  // namespace dt::kv
