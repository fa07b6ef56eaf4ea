#include "kvstore/compute/device_engine.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "kvstore/compute/compression.h"
#include "kvstore/compute/cuda/codecs.h"
#include "kvstore/compute/cuda/cuda_steps.h"
#include "kvstore/compute/cuda/launch.h"
#include "kvstore/compute/cuda/sum.h"

namespace dt::kv {

namespace {

using cuda::Float32;
using cuda::Float64;

constexpr std::size_t kMostSources = 8;  ///< Sources of one launch.
/// Host bytes kept for the stream from which on the loop waits for it.
constexpr std::size_t kMostKept = std::size_t{64} << 20;
constexpr std::size_t kMostPinned = std::size_t{512} << 20;  ///< Spare ones.

/// Calls run(Format{}).
template <class Run>
void as_format(data::Dtype dtype, Run run) {
  if (dtype == data::Dtype::kFloat32) return run(Float32{});
  DT_CHECK(dtype == data::Dtype::kFloat64, "devices compute with float32 and float64");
  run(Float64{});
}

/// The sum of `count` addends from `first` on, for an operation over up to kMost.
template <class Format, unsigned kMost, class Array>
cuda::Weighted<Format, kMost> weighted(const Reduction& reduction, const Array* (&sources)[kMost]) {
  using Math = typename Format::Math;
  cuda::Weighted<Format, kMost> sum;
  sum.count = static_cast<unsigned>(reduction.addends.size());
  for (unsigned k = 0; k < sum.count; ++k) {
    sum.weights[k] = static_cast<Math>(reduction.addends[k].weight);
    sources[k] = reinterpret_cast<const Array*>(reduction.addends[k].data);
  }
  sum.divisor = static_cast<Math>(reduction.divisor);
  return sum;
}

template <class Format, unsigned kMost>
cuda::Status launch_sum(const Reduction& reduction, std::byte* out, std::size_t elements,
                        std::uint64_t* nonfinite, cuda::Stream stream) {
  cuda::Sum<Format, kMost> operation;
  typename cuda::Sum<Format, kMost>::Tensor tensor;
  operation.sum = weighted<Format, kMost>(reduction, tensor.sources);
  tensor.out = reinterpret_cast<typename Format::Math*>(out);
  tensor.elements = elements;
  return cuda::launch(operation, tensor, nonfinite, stream);
}

/// The sum of one to kMostSources addends.
template <class Format>
cuda::Status launch_sum(const Reduction& reduction, std::byte* out, std::size_t elements,
                        std::uint64_t* nonfinite, cuda::Stream stream) {
  const std::size_t count = reduction.addends.size();
  if (count == 1) return launch_sum<Format, 1>(reduction, out, elements, nonfinite, stream);
  if (count == 2) return launch_sum<Format, 2>(reduction, out, elements, nonfinite, stream);
  if (count <= 4) return launch_sum<Format, 4>(reduction, out, elements, nonfinite, stream);
  return launch_sum<Format, 8>(reduction, out, elements, nonfinite, stream);
}

template <class Format, template <class, unsigned> class Rule, class Constants>
cuda::Status launch_step(const Constants& constants, const Reduction& gradient, std::byte* values,
                         std::byte* first, std::byte* second, std::size_t elements,
                         std::uint64_t* nonfinite, cuda::Stream stream) {
  const auto run = [&](auto operation) {
    using T = typename Format::Math;
    typename decltype(operation)::Tensor tensor;
    operation.gradient = weighted<Format>(gradient, tensor.gradients);
    operation.step = constants;
    tensor.values = reinterpret_cast<T*>(values);
    tensor.first = reinterpret_cast<T*>(first);
    tensor.second = reinterpret_cast<T*>(second);
    tensor.elements = elements;
    return cuda::launch(operation, tensor, nonfinite, stream);
  };
  if (gradient.addends.size() == 1) return run(Rule<Format, 1>{});
  return run(Rule<Format, 8>{});
}

const std::uint8_t* two_bit_codes(const std::byte* payload) {
  return reinterpret_cast<const std::uint8_t*>(payload + kTwoBitHeadBytes);
}

}  // namespace

// ---------------------------------------------------------------- begin and end

DeviceEngine::DeviceEngine(int number)
    : number_(number),
      host_pool_(std::make_shared<PayloadPool>(Memory::kPinned, kMostPinned)),
      // Freeing memory waits for the whole device.
      pool_(std::make_shared<PayloadPool>(Memory::kDevice,
                                          std::numeric_limits<std::size_t>::max())) {}

Result<std::shared_ptr<DeviceEngine>> DeviceEngine::open(int number) {
  if (const auto why = cuda::why_no_device(number); !why.empty())
    return fail(ErrorKind::kUnavailable, "{}", why);
  std::shared_ptr<DeviceEngine> engine(new DeviceEngine(number));
  if (const auto started = engine->start(); !started.ok())
    return fail(ErrorKind::kUnavailable, "CUDA device {} cannot be used: {}", number,
                started.error);
  return engine;
}

cuda::Status DeviceEngine::start() {
  if (const auto status = cuda::use_device(number_); !status.ok()) return status;
  if (const auto status = stream_.create(); !status.ok()) return status;
  if (const auto status = ordered_.create(); !status.ok()) return status;
  if (const auto status = found_.allocate(sizeof(std::uint64_t)); !status.ok()) return status;
  *found() = 0;
  return {};
}

DeviceEngine::~DeviceEngine() {
  static_cast<void>(cuda::wait(stream_.get()));  // it may read what is kept
}

// ---------------------------------------------------------------- memory

void DeviceEngine::expect(cuda::Status status) {
  if (status.ok() || !goes_on()) return;
  failure_ = fmt::format("CUDA device {}: {}", number_, status.error);
  is_broken_ = true;
}

Payload DeviceEngine::take(std::size_t bytes) {
  if (!goes_on() || bytes == 0) return {};
  Payload ours = pool_->take(bytes);
  if (ours.size() != bytes && make_room_ && make_room_() && goes_on()) ours = pool_->take(bytes);
  if (ours.size() == bytes || !goes_on()) return ours;
  std::size_t left = 0;
  std::size_t all = 0;
  expect(cuda::device_memory(left, all));
  if (goes_on())
    failure_ = fmt::format(
        "CUDA device {} is out of memory: {} bytes are needed, {} of {} are left; take more "
        "servers or a larger device, or leave --server-device out",
        number_, bytes, left, all);
  return {};
}

void DeviceEngine::give(Payload payload) {
  // Work that is on the stream comes before the next use of the memory.
  if (payload.memory() == Memory::kDevice) return pool_->give(std::move(payload));
  keep(std::move(payload));
}

Payload DeviceEngine::swap_out(Payload& ours, std::mutex& guard) {
  Payload host(ours.size());
  copy(host.data(), ours.data(), ours.size());
  finish();
  if (!goes_on()) return {};
  const std::lock_guard lock(guard);
  return std::exchange(ours, std::move(host));
}

Payload DeviceEngine::bring(Payload host) {
  Payload ours = take(host.size());
  if (!ours.empty()) copy(ours.data(), host.data(), host.size());
  keep(std::move(host));
  return ours;
}

void DeviceEngine::keep(Payload host) {
  if (host.empty()) return;
  kept_bytes_ += host.size();
  kept_.push_back(std::move(host));
  if (kept_bytes_ > kMostKept) finish();
}

void DeviceEngine::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (goes_on() && bytes > 0) expect(cuda::copy(to, from, bytes, stream_.get()));
}

void DeviceEngine::order(cuda::Stream first, cuda::Stream second) {
  if (goes_on()) expect(ordered_.record(first));
  if (goes_on()) expect(ordered_.make_wait(second));
}

void DeviceEngine::wait() {
  if (!is_lazy_) finish();
}

void DeviceEngine::finish() {
  const auto status = cuda::wait(stream_.get());
  for (auto& payload : kept_) host_pool_->give(std::move(payload));
  kept_.clear();
  kept_bytes_ = 0;
  if (!status.ok()) return expect(status);
  seen_ += *found() - std::exchange(told_, *found());
}

std::string DeviceEngine::take_failure() {
  if (is_broken_) return failure_;
  return std::exchange(failure_, {});
}

// ---------------------------------------------------------------- arithmetic

template <class Format>
void DeviceEngine::reduce_as(const Reduction& reduction, std::byte* out, std::size_t elements,
                             std::uint64_t* found) {
  if (reduction.addends.size() <= kMostSources)
    return expect(launch_sum<Format>(reduction, out, elements, found, stream_.get()));
  // Those before the last launch into memory of their own: `out` may be any of the addends.
  Payload before = take(elements * sizeof(typename Format::Element));
  std::vector<Addend> addends(reduction.addends.begin(), reduction.addends.end());
  while (goes_on() && addends.size() > kMostSources) {
    const Reduction part{std::span(addends).first(kMostSources)};
    expect(launch_sum<Format>(part, before.data(), elements, nullptr, stream_.get()));
    addends.erase(addends.begin() + 1, addends.begin() + kMostSources);
    addends.front() = {before.data(), 1};
  }
  const Reduction rest{addends, reduction.divisor};
  if (goes_on()) expect(launch_sum<Format>(rest, out, elements, found, stream_.get()));
  give(std::move(before));
}

void DeviceEngine::reduce(data::Dtype dtype, const Reduction& reduction, std::byte* out,
                          std::size_t elements) {
  if (!goes_on() || elements == 0) return;
  as_format(dtype,
            [&](auto format) { reduce_as<decltype(format)>(reduction, out, elements, found()); });
}

void DeviceEngine::count(data::Dtype dtype, std::byte* values, std::size_t elements) {
  const Addend whole{values, 1};
  reduce(dtype, {{&whole, 1}}, values, elements);
}

void DeviceEngine::add(data::Dtype dtype, std::byte* into, const std::byte* from, double weight,
                       std::size_t elements, bool counts) {
  if (!goes_on() || elements == 0) return;
  as_format(dtype, [&](auto format) {
    using Format = decltype(format);
    using T = typename Format::Math;
    expect(cuda::launch(cuda::Add<Format>{static_cast<T>(weight)},
                        {reinterpret_cast<T*>(into), reinterpret_cast<const T*>(from), elements},
                        counts ? found() : nullptr, stream_.get()));
  });
}

void DeviceEngine::scale(data::Dtype dtype, std::byte* values, double factor,
                         std::size_t elements) {
  if (!goes_on() || elements == 0) return;
  const Addend whole{values, factor};
  as_format(dtype, [&](auto format) {
    using Format = decltype(format);
    expect(launch_sum<Format>({{&whole, 1}}, values, elements, nullptr, stream_.get()));
  });
}

/// Calls run(codes on the device).
template <class Run>
void DeviceEngine::with_codes(const Payload& codes, Run run) {
  Payload ours = take(codes.size());
  copy(ours.data(), codes.data(), codes.size());
  if (goes_on() && !ours.empty()) run(ours.data());
  give(std::move(ours));
}

void DeviceEngine::decode(data::Codec codec, std::byte* out, const Payload& codes,
                          std::size_t elements) {
  with_codes(codes, [&](const std::byte* ours) {
    if (codec == data::Codec::kTwoBit)
      return expect(cuda::launch(cuda::DecodeTwoBit{two_bit_threshold(codes.data())},
                                 {reinterpret_cast<float*>(out), two_bit_codes(ours), elements},
                                 nullptr, stream_.get()));
    const Addend whole{ours, 1};
    const Reduction cast{{&whole, 1}};
    expect(codec == data::Codec::kFp16
               ? launch_sum<cuda::Fp16, 1>(cast, out, elements, nullptr, stream_.get())
               : launch_sum<cuda::Bf16, 1>(cast, out, elements, nullptr, stream_.get()));
  });
}

void DeviceEngine::decode_add(data::Codec codec, std::byte* into, const Payload& codes,
                              float weight, std::size_t elements) {
  with_codes(codes, [&](const std::byte* ours) {
    auto* sum = reinterpret_cast<float*>(into);
    if (codec == data::Codec::kTwoBit)
      return expect(cuda::launch(cuda::AddTwoBit{two_bit_threshold(codes.data()), weight},
                                 {sum, two_bit_codes(ours), elements}, nullptr, stream_.get()));
    const auto add_halves = [&](const auto& operation) {
      expect(cuda::launch(operation, {sum, reinterpret_cast<const std::uint16_t*>(ours), elements},
                          nullptr, stream_.get()));
    };
    if (codec == data::Codec::kFp16) return add_halves(cuda::Add<cuda::Fp16>{weight});
    add_halves(cuda::Add<cuda::Bf16>{weight});
  });
}

// ---------------------------------------------------------------- optimizer

/// As in optimizer.cpp: zeroed at first; a copy if there is another reference and there is room.
std::byte* DeviceEngine::moments(std::shared_ptr<Payload>& state, std::size_t bytes) {
  if (state && state.use_count() == 1) return state->data();
  if (!goes_on()) return nullptr;
  Payload fresh = take(bytes);
  if (state && state.use_count() == 1) {  // take() made room: the checkpoint now has a copy
    give(std::move(fresh));
    if (!is_broken_) failure_.clear();
    return state->data();
  }
  if (!goes_on()) return nullptr;
  if (state)
    copy(fresh.data(), state->data(), bytes);
  else
    expect(cuda::fill(fresh.data(), 0, bytes, stream_.get()));
  state = share(std::move(fresh));
  return state->data();
}

template <class Format>
void DeviceEngine::update_as(const OptimizerSpec& spec, OptimizerState& state, double learning_rate,
                             std::byte* values, const Reduction& gradient, std::size_t elements) {
  using T = typename Format::Math;
  const std::size_t bytes = elements * sizeof(T);
  const bool is_sgd = spec.rule == OptimizerSpec::Rule::kSgd;
  // All memory first: if it cannot be taken, nothing changes.
  const bool has_first = !is_sgd || spec.momentum != 0;
  std::byte* first = has_first ? moments(state.first, bytes) : nullptr;
  std::byte* second = is_sgd ? nullptr : moments(state.second, bytes);
  if (!goes_on()) return;
  ++state.updates;
  if (is_sgd)
    return expect(launch_step<Format, cuda::Sgd>(sgd_constants<T>(spec, learning_rate), gradient,
                                                 values, first, second, elements, found(),
                                                 stream_.get()));
  expect(launch_step<Format, cuda::Adam>(adam_constants<T>(spec, learning_rate, state.updates),
                                         gradient, values, first, second, elements, found(),
                                         stream_.get()));
}

void DeviceEngine::update(const OptimizerSpec& spec, OptimizerState& state, data::Dtype dtype,
                          double learning_rate, std::byte* values, const Reduction& gradient,
                          std::size_t elements) {
  if (!goes_on()) return;
  if (gradient.addends.size() <= kMostSources) {
    as_format(dtype, [&](auto format) {
      update_as<decltype(format)>(spec, state, learning_rate, values, gradient, elements);
    });
    return;
  }
  // Sums the gradient into separate memory first, which gives the same bits.
  Payload sum = take(elements * data::element_bytes(dtype));
  if (!goes_on()) return;
  const Addend whole{sum.data(), 1};
  const Reduction summed{{&whole, 1}};
  as_format(dtype, [&](auto format) {
    using Format = decltype(format);
    reduce_as<Format>(gradient, sum.data(), elements, nullptr);
    update_as<Format>(spec, state, learning_rate, values, summed, elements);
  });
  give(std::move(sum));
}

// ---------------------------------------------------------------- checkpoints

Result<std::vector<std::shared_ptr<const Payload>>> DeviceEngine::fetch(
    int number, const std::vector<const Payload*>& from) {
  std::vector<std::shared_ptr<const Payload>> out;
  cuda::UniqueStream stream;
  cuda::Status status = cuda::use_device(number);
  if (status.ok()) status = stream.create();
  for (const Payload* ours : from) {
    auto host = std::make_shared<Payload>(ours ? ours->size() : 0);
    if (status.ok() && host->size() > 0)
      status = cuda::copy(host->data(), ours->data(), host->size(), stream.get());
    out.push_back(ours ? std::move(host) : nullptr);
  }
  const cuda::Status waited = stream.get() ? cuda::wait(stream.get()) : cuda::Status{};
  if (status.ok()) status = waited;
  if (!status.ok())
    return fail(ErrorKind::kUnavailable, "CUDA device {}: {}", number, status.error);
  return out;
}

}  // namespace dt::kv
