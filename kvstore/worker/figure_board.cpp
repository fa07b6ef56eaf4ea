#include "kvstore/worker/figure_board.h"

#include <cmath>
#include <utility>

#include "kvstore/worker/chunk.h"

namespace dt::kv {
namespace {

constexpr std::size_t kNames = 32;

std::string name_of(const Request& request) {
  switch (request.header.type) {
    case data::Type::kInit:
      return "init of " + *request.chunk->name;
    case data::Type::kRegister: {
      const auto wanted = wire::parse<data::RegisterKeys>(*request.keep);
      return "init of " + (wanted && !wanted->keys.empty() ? wanted->keys.front().name : "keys");
    }
    case data::Type::kBarrier:
      return "barrier()";
    case data::Type::kSetOptimizer:
      return "set_optimizer()";
    default:
      return request.chunk ? *request.chunk->name : "a call";
  }
}

}  // namespace

void FigureBoard::pushed(const std::string& key, std::uint64_t samples) {
  if (counted_key_.empty()) counted_key_ = key;
  if (key != counted_key_) return;
  samples_.fetch_add(samples, std::memory_order_relaxed);
  steps_.fetch_add(1, std::memory_order_relaxed);
}

bool FigureBoard::report(const std::string& name, const Figure& value) {
  has_changed_ = true;
  const double* number = std::get_if<double>(&value);
  if (number && !std::isfinite(*number)) {
    ++dropped_;
  } else if (number && name == "steps_in_epoch") {
    steps_in_epoch_ = *number > 0 && *number < 1e15 ? static_cast<std::uint64_t>(*number) : 0;
  } else if (values_.size() < kNames || values_.contains(name)) {
    values_[name] = value;
  } else {
    return !refused_.insert(name).second;
  }
  return true;
}

void FigureBoard::own(const std::string& name, double value) {
  has_changed_ = true;
  own_[name] = value;
}

void FigureBoard::waits(const Request* request) {
  const KeyId key = request ? key_of(*request) : KeyId();
  std::string in = request ? name_of(*request) : "";
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
  Figures out{.samples = samples,
              .steps_in_epoch = steps_in_epoch_,
              .dropped = dropped_,
              .waits_key = waits_key_,
              .waits_in = waits_in_,
              .steps = steps_.load(std::memory_order_relaxed),
              .waited_ns = static_cast<std::uint64_t>(waited.count())};
  for (const auto& [name, value] : values_)
    if (const double* number = std::get_if<double>(&value))
      out.values.emplace_back(name, *number);
    else
      out.texts.emplace_back(name, std::get<std::string>(value));
  out.values.insert(out.values.end(), own_.begin(), own_.end());
  return out;
}

}  // namespace dt::kv
