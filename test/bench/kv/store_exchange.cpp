#include "test/bench/kv/store_exchange.h"

#include <algorithm>
#include <cmath>

#include "test/bench/kv/failure.h"

namespace dt::bench {

namespace {

constexpr float kLearningRate = 0.01F;
/// Number of an optimizer's weights that are computed again and compared.
constexpr std::size_t kTracked = 4096;

kv::Array array(std::span<float> values) {
  return {values.data(), values.size(), data::Dtype::kFloat32};
}

}  // namespace

TensorMemory::TensorMemory(Memory whose, std::size_t elements, kv::Store& store) {
  if (whose == Memory::kPrivate) {
    own_ = Buffer(elements);
    values_ = own_.values();
    return;
  }
  given_ = {static_cast<float*>(must(store.allocate(elements * sizeof(float)))), Release{&store}};
  values_ = {given_.get(), elements};
}

void TensorMemory::Release::operator()(float* memory) const {
  (void)store->release(memory);  // errors do not matter at the end
}

StoreExchange::StoreExchange(const KvOptions& options, const TensorList& list, kv::Store& store,
                             const std::string& prefix, std::optional<int> device)
    : options_(options), list_(list), store_(store), device_(device) {
  push_.learning_rate = kLearningRate;
  push_.is_awaited = awaited_.is_awaited = true;
  if (device_)
    take_device_memory();
  else
    take_memory();
  for (std::size_t i = 0; i < list_.elements.size(); ++i)
    keys_.push_back(fmt::format("{}{}", prefix, i));
  must(store_.init(keys_, results_, 0));
  if (options_.codec != data::Codec::kNone)
    must(store_.set_gradient_compression(std::string(kv::name_of(options_.codec))));
  const std::size_t size = list_.total_elements();
  if (options_.optimizer.empty()) {
    if (options_.is_async()) total_.emplace(size);
    return;
  }
  spec_ = *kv::parse_optimizer(options_.optimizer);
  const std::size_t stride = std::max<std::size_t>(1, size / kTracked);
  for (std::size_t i = 0; i < size; i += stride) tracked_.push_back(i);
  weights_.assign(tracked_.size(), 0.0F);
  must(store_.set_optimizer(options_.optimizer));
}

void StoreExchange::take_memory() {
  gradient_ = TensorMemory(options_.memory, list_.total_elements(), store_);
  if (!options_.is_in_place)
    result_ = TensorMemory(options_.memory, list_.total_elements(), store_);
  std::size_t first = 0;
  for (const std::uint64_t count : list_.elements) {
    gradients_.push_back(array(gradient_.values().subspan(first, count)));
    results_.push_back(array(results().subspan(first, count)));
    first += count;
  }
}

void StoreExchange::take_device_memory() {
  const std::string where = fmt::format("cuda:{}", *device_);
  must(kv::cuda::use_device(*device_), where);
  must(on_device_.stream.create(), where);
  on_device_.gradient = DeviceTensors(*device_, list_, on_device_.stream.get());
  if (!options_.is_in_place)
    on_device_.result = DeviceTensors(*device_, list_, on_device_.stream.get());
  for (std::size_t i = 0; i < list_.elements.size(); ++i) {
    gradients_.push_back(on_device_.gradient.array(i));
    results_.push_back(device_result().array(i));
  }
}

void StoreExchange::load() {
  if (device_) on_device_.gradient.to_device();
}

void StoreExchange::fetch() {
  if (device_) device_result().to_mirror();
}

void StoreExchange::run() {
  if (!options_.is_streamed) return exchange(keys_, gradients_, results_);
  for (std::size_t i = 0; i < keys_.size(); ++i)
    exchange({keys_[i]}, {gradients_[i]}, {results_[i]});
}

void StoreExchange::exchange(const kv::Keys& keys, const kv::Arrays& gradients,
                             const kv::Arrays& results) {
  switch (options_.operation) {
    case Operation::kPushPull:
      return wait(store_.pushpull(keys, gradients, results, push_));
    case Operation::kPush:
      return wait(store_.push(keys, gradients, push_));
    case Operation::kPull:
      return wait(store_.pull(keys, results, awaited_));
  }
}

void StoreExchange::run_to_check() {
  const bool is_whole = options_.operation == Operation::kPushPull && !options_.is_async();
  if (is_whole) return run();
  if (options_.operation == Operation::kPull)
    wait(store_.push(keys_, gradients_, push_));
  else
    run();
  // The others' pushes are applied when all of them have been answered.
  must(store_.barrier());
  wait(store_.pull(keys_, results_, awaited_));
  must(store_.barrier());
}

std::uint64_t StoreExchange::count_bad(std::uint32_t workers, std::uint32_t round) {
  if (total_) return count_wrong_total(workers, round);
  if (!spec_ && options_.codec != data::Codec::kNone) return count_wrong_decoded(workers, round);
  if (!spec_) return count_wrong(results(), sum_of_ranks(workers), round);
  if (options_.is_async()) return 0;  // depends on the order of arrival
  round_ = round;
  repeat_update(1);
  return count_wrong_weights();
}

void StoreExchange::was_repeated(std::uint32_t operations) {
  if (spec_ && !options_.is_async()) repeat_update(operations);
}

void StoreExchange::wait(const kv::StoreResult<kv::Handle>& handle) {
  must(store_.wait(must(handle), kWaitLimit));
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

/// Every value is above the threshold of 2bit, and so is its residual. Values of 16 bits
/// are accurate to the last bit of the largest value, in this round and, by the residual, in the
/// last one.
std::uint64_t StoreExchange::count_wrong_decoded(std::uint32_t workers, std::uint32_t round) {
  const bool is_two_bit = options_.codec == data::Codec::kTwoBit;
  const float two_bits = static_cast<float>(workers) * kv::Compression().threshold;
  const float weight = sum_of_ranks(workers);
  const float off = weight * (options_.codec == data::Codec::kFp16 ? 0.25F : 2.0F);
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < results().size(); ++i) {
    const float have = results()[i];
    const float want = weight * value_at(i, round);
    const bool is_it = is_two_bit ? have == two_bits : std::abs(have - want) <= off;
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
  const kv::Reduction gradient{{&whole, 1}};
  for (std::uint32_t n = 0; n < operations; ++n)
    kv::update(*spec_, state_, data::Dtype::kFloat32, static_cast<double>(kLearningRate),
               reinterpret_cast<std::byte*>(weights_.data()), gradient, mean.size());
}

}  // namespace dt::bench
