#include "kvstore/bench/store_exchange.h"

#include <algorithm>
#include <cmath>

namespace dt::bench {

namespace {

constexpr float kLearningRate = 0.01F;
/// Number of an optimizer's weights that are computed again and compared.
constexpr std::size_t kTracked = 4096;

kv::Array array(std::span<float> values) {
  return {values.data(), values.size(), data::Dtype::kFloat32};
}

}  // namespace

Error error_of(const kv::StoreError& error) { return {ErrorKind::kUnavailable, error.message}; }

Result<void> result_of(const kv::Status& status) {
  if (!status) return tl::unexpected(error_of(status.error()));
  return {};
}

Result<TensorMemory> TensorMemory::make(Memory whose, std::size_t elements, kv::Store& store) {
  TensorMemory memory;
  if (whose == Memory::kPrivate) {
    memory.own_ = Buffer(elements);
    memory.values_ = memory.own_.values();
    return memory;
  }
  const auto given = store.allocate(elements * sizeof(float));
  if (!given) return tl::unexpected(error_of(given.error()));
  memory.values_ = {static_cast<float*>(*given), elements};
  memory.store_ = &store;
  return memory;
}

TensorMemory::TensorMemory(TensorMemory&& other) noexcept
    : values_(std::exchange(other.values_, {})),
      own_(std::move(other.own_)),
      store_(std::exchange(other.store_, nullptr)) {}

TensorMemory& TensorMemory::operator=(TensorMemory&& other) noexcept {
  std::swap(values_, other.values_);
  std::swap(own_, other.own_);
  std::swap(store_, other.store_);
  return *this;
}

TensorMemory::~TensorMemory() {
  if (store_) (void)store_->release(values_.data());  // errors do not matter at the end
}

StoreExchange::StoreExchange(const KvOptions& options, const TensorList& list, kv::Store& store,
                             std::string prefix, std::optional<int> device)
    : options_(options), list_(list), store_(store), prefix_(std::move(prefix)), device_(device) {
  push_.learning_rate = kLearningRate;
  push_.is_awaited = awaited_.is_awaited = true;
}

Result<void> StoreExchange::take_memory() {
  for (auto* memory : {&gradient_, &result_}) {
    if (memory == &result_ && options_.is_in_place) continue;
    auto made = TensorMemory::make(options_.memory, list_.total_elements(), store_);
    if (!made) return tl::unexpected(made.error());
    *memory = std::move(*made);
  }
  std::size_t first = 0;
  for (const std::uint64_t count : list_.elements) {
    gradients_.push_back(array(gradient_.values().subspan(first, count)));
    results_.push_back(array(results().subspan(first, count)));
    first += count;
  }
  return {};
}

Result<void> StoreExchange::take_device_memory() {
  const std::string where = fmt::format("cuda:{}", *device_);
  if (auto used = result_of(kv::cuda::use_device(*device_), where); !used) return used;
  if (auto made = result_of(on_device_.stream.create(), where); !made) return made;
  for (auto* tensors : {&on_device_.gradient, &on_device_.result}) {
    if (tensors == &on_device_.result && options_.is_in_place) continue;
    auto made = DeviceTensors::make(*device_, list_, on_device_.stream.get());
    if (!made) return tl::unexpected(made.error());
    *tensors = std::move(*made);
  }
  const auto& result = options_.is_in_place ? on_device_.gradient : on_device_.result;
  for (std::size_t i = 0; i < list_.elements.size(); ++i) {
    gradients_.push_back(on_device_.gradient.array(i));
    results_.push_back(result.array(i));
  }
  return {};
}

Result<void> StoreExchange::prepare() {
  if (auto taken = device_ ? take_device_memory() : take_memory(); !taken) return taken;
  for (std::size_t i = 0; i < list_.elements.size(); ++i)
    keys_.push_back(fmt::format("{}{}", prefix_, i));
  if (auto made = store_.init(keys_, results_, 0); !made) return result_of(made);
  if (options_.codec != data::Codec::kNone) {
    const auto set = store_.set_gradient_compression(std::string(kv::name_of(options_.codec)));
    if (!set) return result_of(set);
  }
  const std::size_t size = list_.total_elements();
  if (options_.optimizer.empty()) {
    if (options_.is_async()) total_.emplace(size);
    return {};
  }
  spec_ = *kv::parse_optimizer(options_.optimizer);
  const std::size_t stride = std::max<std::size_t>(1, size / kTracked);
  for (std::size_t i = 0; i < size; i += stride) tracked_.push_back(i);
  weights_.assign(tracked_.size(), 0.0F);
  return result_of(store_.set_optimizer(options_.optimizer));
}

Result<void> StoreExchange::load() {
  return device_ ? on_device_.gradient.to_device() : Result<void>();
}

Result<void> StoreExchange::fetch() {
  if (!device_) return {};
  return (options_.is_in_place ? on_device_.gradient : on_device_.result).to_mirror();
}

Result<void> StoreExchange::run() {
  switch (options_.operation) {
    case Operation::kPushPull:
      return finish(store_.pushpull(keys_, gradients_, results_, push_));
    case Operation::kPush:
      return finish(store_.push(keys_, gradients_, push_));
    case Operation::kPull:
      return finish(store_.pull(keys_, results_, awaited_));
  }
  return {};
}

Result<void> StoreExchange::run_to_check() {
  const bool is_whole = options_.operation == Operation::kPushPull && !options_.is_async();
  if (is_whole) return run();
  if (options_.operation == Operation::kPull) {
    if (auto pushed = finish(store_.push(keys_, gradients_, push_)); !pushed) return pushed;
  } else if (auto ran = run(); !ran) {
    return ran;
  }
  // The others' pushes are applied when all of them have been answered.
  if (auto met = store_.barrier(); !met) return result_of(met);
  if (auto pulled = finish(store_.pull(keys_, results_, awaited_)); !pulled) return pulled;
  return result_of(store_.barrier());
}

std::uint64_t StoreExchange::count_bad(std::uint32_t workers, std::uint32_t round) {
  if (total_) return count_wrong_total(workers, round);
  if (!spec_ && options_.codec != data::Codec::kNone) return count_wrong_decoded(workers, round);
  if (!spec_) return count_wrong(results(), workers, round);
  if (options_.is_async()) return 0;  // depends on the order of arrival
  round_ = round;
  repeat_update(1);
  return count_wrong_weights();
}

void StoreExchange::was_repeated(std::uint32_t operations) {
  if (spec_ && !options_.is_async()) repeat_update(operations);
}

Result<void> StoreExchange::finish(const kv::StoreResult<kv::Handle>& handle) {
  if (!handle) return tl::unexpected(error_of(handle.error()));
  return result_of(store_.wait(*handle, kWaitLimit));
}

/// dist_async without an optimizer: pushes accumulate, and none may be lost.
std::uint64_t StoreExchange::count_wrong_total(std::uint32_t workers, std::uint32_t round) {
  const auto total = total_->values();
  const float weight = sum_of_ranks(workers);
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < total.size(); ++i) {
    total[i] += weight * value_at(i, round);
    wrong += results()[i] == total[i] ? 0 : 1;
  }
  return wrong;
}

/// Every value is above the thresholds of 1bit and 2bit, and so is its residual. Values of 16 bits
/// are accurate to the last bit of the largest value, in this round and, by the residual, in the
/// last one.
std::uint64_t StoreExchange::count_wrong_decoded(std::uint32_t workers, std::uint32_t round) {
  const bool is_of_few_bits = kv::is_of_few_bits(options_.codec);
  const float step = options_.codec == data::Codec::kOneBit ? 1 : kv::Compression().threshold;
  const float few_bits = static_cast<float>(workers) * step;
  const float weight = sum_of_ranks(workers);
  const float off = weight * (options_.codec == data::Codec::kFp16 ? 0.25F : 2.0F);
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < results().size(); ++i) {
    const float have = results()[i];
    const float want = weight * value_at(i, round);
    const bool is_it = is_of_few_bits ? have == few_bits : std::abs(have - want) <= off;
    wrong += is_it ? 0 : 1;
  }
  return wrong;
}

std::uint64_t StoreExchange::count_wrong_weights() {
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < tracked_.size(); ++i) {
    const float want = weights_[i];
    const float have = results()[tracked_[i]];
    wrong += std::abs(have - want) <= 1e-4F * std::max(1.0F, std::abs(want)) ? 0 : 1;
  }
  return wrong;
}

/// Repeats the servers' update with all workers' gradients on the tracked weights.
void StoreExchange::repeat_update(std::uint32_t operations) {
  std::vector<float> mean;
  for (const std::size_t i : tracked_)
    mean.push_back(sum_of_ranks(options_.workers) * value_at(i, round_) /
                   static_cast<float>(options_.workers));
  const kv::Addend whole{reinterpret_cast<const std::byte*>(mean.data()), 1};
  kv::Reduction gradient;
  gradient.addends = std::span(&whole, 1);
  for (std::uint32_t n = 0; n < operations; ++n)
    kv::update(*spec_, state_, data::Dtype::kFloat32, static_cast<double>(kLearningRate),
               reinterpret_cast<std::byte*>(weights_.data()), gradient, mean.size());
}

}  // namespace dt::bench
