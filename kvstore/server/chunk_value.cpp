#include "kvstore/server/chunk_value.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kvstore/compute/compression.h"
#include "kvstore/compute/kernels/kernels.h"

namespace dt::kv {

namespace {

/// Elements that stay in the cache while they are computed and written to the shared places.
constexpr std::size_t kBlock = 4096;

/// How the payload of a contribution is compressed.
data::Codec payload_codec(const data::Header& header) {
  return header.flags & data::kShared ? data::Codec::kNone : data::codec_of(header);
}

/// Non-temporal stores, unless the place was read just now.
void hand_out(std::byte* place, std::span<const Addend> read, const std::byte* bytes,
              std::size_t size) {
  if (std::ranges::find(read, place, &Addend::data) != read.end())
    std::memcpy(place, bytes, size);
  else
    kernels().copy_streaming(place, bytes, size);
}

}  // namespace

ChunkValue::ChunkValue(ShardContext& context, data::Dtype dtype, bool is_auxiliary,
                       std::size_t elements, Payload value)
    : context_(context),
      engine_(context.device && DeviceEngine::computes(dtype)
                  ? static_cast<Engine&>(*context.device)
                  : context.host),
      dtype_(dtype),
      is_auxiliary_(is_auxiliary),
      elements_(elements),
      value_(engine_.share(engine_.bring(std::move(value)))) {}

bool ChunkValue::is_mean(const data::Header& header) const {
  if (header.reduce != data::Reduce::kAuto) return header.reduce == data::Reduce::kMean;
  return uses_optimizer() || (is_auxiliary_ && dtype_ != data::Dtype::kInt64);
}

// ---------------------------------------------------------------- contributions

Payload ChunkValue::take(std::size_t bytes) {
  if (sum_.empty() && !spare_.empty()) return std::exchange(spare_, Payload());
  return context_.pool->take(bytes);
}

Payload ChunkValue::take_ours() {
  if (sum_.empty() && !spare_.empty()) return std::exchange(spare_, Payload());
  return engine_.take(bytes());
}

Payload ChunkValue::copy_of(const std::byte* shared) {
  Payload ours = take_ours();
  engine_.copy(ours.data(), shared, bytes());
  return ours;
}

Payload ChunkValue::bring(Payload payload, const std::byte* shared) {
  if (!is_on_device()) return payload;
  return shared ? copy_of(shared) : engine_.bring(std::move(payload));
}

std::string ChunkValue::refusal(const data::Header& header, const Payload& payload) {
  const data::Codec codec = payload_codec(header);
  const auto error = payload_error(codec, payload.data());
  if (error.empty()) return {};
  return fmt::format("worker {}: a gradient compressed with {}: {}", header.worker, name_of(codec),
                     error);
}

std::string ChunkValue::nonfinite_in(const data::Header& header, const Payload& payload,
                                     const SharedBuffers& shared) {
  if (!context_.refuse_nonfinite || header.samples == 0 || !is_parameter()) return {};
  const data::Codec codec = payload_codec(header);
  std::size_t count = 0;
  if (shared.in && shared.in_is_on_device)
    count = nonfinite_at(shared.in);
  else if (codec == data::Codec::kNone)
    count = count_nonfinite(dtype_, shared.in ? shared.in : payload.data(), elements_);
  else
    count = count_nonfinite(codec, payload.data(), elements_);
  if (count == 0) return {};
  context_.nonfinite += count;
  return fmt::format(
      "worker {}: {} of {} elements of chunk {} of its gradient are infinite or NaN "
      "(--refuse-nonfinite)",
      header.worker, count, elements_, header.chunk);
}

std::size_t ChunkValue::nonfinite_at(const std::byte* values) {
  Payload copy = engine_.take(bytes());
  if (!engine_.goes_on()) return 0;  // the next call of failure() returns the cause
  const Addend whole{values, 1};
  engine_.reduce(dtype_, {{&whole, 1}}, copy.data(), elements_);
  engine_.wait();
  engine_.give(std::move(copy));
  return engine_.take_nonfinite();
}

void ChunkValue::contribute(const data::Header& header, Payload payload, SharedBuffers shared,
                            bool is_last) {
  if (wrong_.empty()) wrong_ = disagreement(header);
  if (uses_optimizer()) context_.step = std::max(context_.step, header.step);
  const bool adds = header.samples > 0 && elements_ > 0 && wrong_.empty();
  if (!adds) shared.in = nullptr;
  const bool is_read_later = shared.in && (!is_on_device() || shared.in_is_on_device);
  const bool is_copied = !is_read_later;
  const bool keeps = adds && is_copied && (shared.in || context_.deterministic);
  const data::Codec codec = adds ? payload_codec(header) : data::Codec::kNone;
  const bool is_compressed = codec != data::Codec::kNone;
  const bool adds_codes = is_compressed && !keeps && !sum_.empty();
  if (codec == data::Codec::kTwoBit)  // its values are finite: they are not counted with the sum
    context_.nonfinite += count_nonfinite(codec, payload.data(), elements_);
  if (is_compressed && !adds_codes)
    payload = decoded(codec, std::move(payload));
  else if (adds && !is_compressed && is_copied)
    payload = bring(std::move(payload), shared.in);
  if (is_read_later && shared.in_is_on_device) ++context_.in_place;
  if (adds_codes)
    sum_.add_compressed(engine_, codec, payload, is_mean(header), header.samples);
  else if (adds && !shared.in && !keeps)
    payload =
        sum_.add(engine_, dtype_, std::move(payload), is_mean(header), header.samples, is_last);
  if (!keeps) engine_.give(std::exchange(payload, Payload()));
  if (auto why = failure(); !why.empty()) wrong_ = std::move(why);
  parts_.push_back({header, std::move(payload), std::move(shared)});
}

std::size_t ChunkValue::sort_waiting() {
  const auto is_waiting = [](const Part& part) { return part.values() != nullptr; };
  std::ranges::sort(parts_, {}, [&](const Part& part) {
    return std::pair(!is_waiting(part), part.header.worker);
  });
  return static_cast<std::size_t>(std::ranges::count_if(parts_, is_waiting));
}

void ChunkValue::add_in_order(std::optional<WorkerId> missing) {
  if (!wrong_.empty()) return;
  // Contributions in workers' memory wait for apply(), since they take no memory here; those before
  // one that takes memory here are added now.
  const std::size_t waiting = sort_waiting();
  std::size_t end = 0;
  for (std::size_t i = 0; i < waiting; ++i) {
    if (missing && *missing < parts_[i].header.worker) break;
    if (!parts_[i].bytes.empty()) end = i + 1;
  }
  for (std::size_t i = 0; i < end; ++i) add_part(parts_[i], false);
  if (auto why = failure(); !why.empty()) wrong_ = std::move(why);
}

void ChunkValue::add_part(Part& part, bool is_last) {
  Payload values = std::exchange(part.bytes, Payload());
  if (values.empty()) values = copy_of(part.shared.in);
  part.is_added = true;
  const auto& header = part.header;
  engine_.give(
      sum_.add(engine_, dtype_, std::move(values), is_mean(header), header.samples, is_last));
}

void ChunkValue::prepare_in_order() {
  const std::size_t waiting = sort_waiting();
  if (!is_mean(parts_.front().header) || waiting == 0) return;
  const std::uint64_t samples = parts_.front().header.samples;
  const bool are_equal =
      sum_.is_of(samples) &&
      std::all_of(parts_.begin(), parts_.begin() + static_cast<std::ptrdiff_t>(waiting),
                  [&](const Part& part) { return part.header.samples == samples; });
  if (are_equal) return;  // the plain sum, divided by the number of contributions
  for (std::size_t i = 0; i < waiting; ++i) add_part(parts_[i], i + 1 == waiting);
}

void ChunkValue::detach(WorkerId worker) {
  for (auto& part : parts_) {
    if (part.header.worker != worker || !part.shared.in) continue;
    if (part.is_added) {
      engine_.wait();
      part.shared = {};
      continue;
    }
    if (part.bytes.empty()) {
      part.bytes = copy_of(part.shared.in);
      if (auto why = failure(); !why.empty() && wrong_.empty()) wrong_ = std::move(why);
    }
    engine_.wait();  // it has read the worker's memory
    part.shared = {};
    if (!wrong_.empty())
      engine_.give(std::exchange(part.bytes, Payload()));
    else if (!context_.deterministic)
      add_part(part, false);
  }
}

std::string ChunkValue::disagreement(const data::Header& header) const {
  if (dtype_ == data::Dtype::kInt64 && header.reduce == data::Reduce::kMean)
    return "int64 values have no mean: push them with reduce = sum";
  if (parts_.empty()) return {};
  const auto& first = parts_.front().header;
  if (header.step != first.step)
    return fmt::format("round {}: worker {} is at step {}, worker {} at step {}", first.round,
                       first.worker, first.step, header.worker, header.step);
  if (uses_optimizer() && header.learning_rate != first.learning_rate)
    return fmt::format("round {}: worker {} has learning rate {}, worker {} has {}", first.round,
                       first.worker, first.learning_rate, header.worker, header.learning_rate);
  if (data::codec_of(header) != data::codec_of(first))
    return fmt::format("round {}: worker {} has gradient compression {}, worker {} has {}",
                       first.round, first.worker, name_of(data::codec_of(first)), header.worker,
                       name_of(data::codec_of(header)));
  if (is_mean(header) != is_mean(first))
    return fmt::format("round {}: worker {} and worker {} ask for different reductions",
                       first.round, first.worker, header.worker);
  return {};
}

Payload ChunkValue::decoded(data::Codec codec, Payload codes) {
  Payload values = spare_.empty() ? take_ours() : std::exchange(spare_, Payload());
  engine_.decode(codec, values.data(), codes, elements_);
  engine_.give(std::move(codes));
  return values;
}

// ---------------------------------------------------------------- taking effect

ChunkValue::Applied ChunkValue::apply(std::span<std::byte* const> places) {
  Applied applied;
  applied.wrong = std::exchange(wrong_, {});
  if (applied.wrong.empty()) applied.is_there = apply_parts(places);
  if (is_on_device()) finish_on_device(places, applied);
  count_nonfinite_of(engine_.take_nonfinite());
  auto [sum, last] = sum_.take();
  engine_.give(std::move(sum));
  engine_.give(std::move(last));
  for (auto& part : parts_) engine_.give(std::move(part.bytes));
  parts_.clear();
  return applied;
}

/// Copies the value to `places` and waits for the device: afterwards the contributions' memory is
/// free and the values of answers are complete.
void ChunkValue::finish_on_device(std::span<std::byte* const> places, Applied& applied) {
  if (auto why = failure(); !why.empty()) applied.wrong = std::move(why);
  if (applied.wrong.empty()) {
    const bool is_sent = std::any_of(parts_.begin(), parts_.end(), [](const Part& part) {
      return part.header.type == data::Type::kPushPull && !part.shared.out;
    });
    for (std::byte* place : places) engine_.copy(place, value_->data(), bytes());
    if (is_sent && !shown_) show();
    applied.is_there = !places.empty();
  }
  engine_.wait();
}

const std::shared_ptr<Payload>& ChunkValue::present() {
  if (!is_on_device()) return value_;
  if (!shown_) {
    show();
    engine_.wait();
  }
  return shown_;
}

void ChunkValue::write_to(const SharedBuffers& shared) {
  if (shared.out_is_on_device) {
    engine_.copy(shared.out, value_->data(), bytes());
    engine_.wait();
  } else if (const auto& value = present(); engine_.goes_on()) {
    std::memcpy(shared.out, value->data(), value->size());
  }
}

void ChunkValue::show() {
  Payload host = context_.pool->take(bytes());
  engine_.copy(host.data(), value_->data(), bytes());
  shown_ = context_.host.share(std::move(host));
}

bool ChunkValue::apply_parts(std::span<std::byte* const> places) {
  if (context_.deterministic) prepare_in_order();
  const Reduction reduction = contributions();
  if (reduction.addends.empty()) {
    if (!uses_optimizer() && elements_ > 0) publish(zeros());
    return false;
  }
  const auto& first = parts_.front();
  if (uses_optimizer()) {
    update_with(reduction, first.header.learning_rate);
    return false;
  }
  const bool shares = std::any_of(parts_.begin(), parts_.end(), [](const Part& part) {
    return part.shared.in != nullptr && !part.is_added;
  });
  if (shares && !is_on_device()) {
    sum_shared(reduction, places);
    return true;
  }
  if (shares) {
    Payload out = take_ours();
    engine_.reduce(dtype_, reduction, out.data(), elements_);
    publish(std::move(out));
    return false;
  }
  Payload& out = sum_.empty() ? parts_.front().bytes : sum_.bytes();
  const bool is_it = reduction.addends.size() == 1 && reduction.divisor == 1;
  if (!is_it)
    engine_.reduce(dtype_, reduction, out.data(), elements_);
  else if (payload_codec(first.header) != data::Codec::kTwoBit)  // added without being counted
    engine_.count(dtype_, out.data(), elements_);
  publish(std::exchange(out, Payload()));
  return false;
}

Payload ChunkValue::zeros() {
  Payload zeros = context_.pool->take(bytes());
  std::fill_n(zeros.data(), zeros.size(), std::byte{0});
  return engine_.bring(std::move(zeros));
}

/// The open round's contributions with their weights. Deterministic: in worker id order; the sum,
/// which holds the lowest ids, comes first.
Reduction ChunkValue::contributions() {
  const bool weighs = is_mean(parts_.front().header);
  auto& addends = context_.addends;
  addends.clear();
  double samples = context_.deterministic ? sum_.append_to(addends, weighs) : 0;
  for (const auto& part : parts_) {
    if (part.values() == nullptr) continue;
    const auto n = static_cast<double>(part.header.samples);
    addends.push_back({part.values(), weighs ? n : 1});
    samples += n;
  }
  if (!context_.deterministic) samples += sum_.append_to(addends, weighs);
  Reduction reduction;
  reduction.addends = addends;
  if (!weighs || addends.empty()) return reduction;
  reduction.divisor = samples;
  // Equal weights, the usual case: the plain sum divided by the number of contributions.
  const double weight = addends.front().weight;
  const bool equal = std::all_of(addends.begin(), addends.end(),
                                 [&](const Addend& addend) { return addend.weight == weight; });
  if (equal) {
    for (auto& addend : addends) addend.weight = 1;
    reduction.divisor = samples / weight;
  }
  return reduction;
}

/// Sums block by block and writes each block to all shared places while it is in the cache.
void ChunkValue::sum_shared(const Reduction& reduction, std::span<std::byte* const> places) {
  constexpr std::size_t kBytes = 16 << 10;  // in the first-level cache
  alignas(64) std::array<std::byte, kBytes> result;
  replace();
  const std::size_t width = data::element_bytes(dtype_);
  const std::size_t whole = elements_ * width;
  for (std::size_t at = 0; at < whole; at += kBytes) {
    const std::size_t bytes = std::min(kBytes, whole - at);
    context_.block.assign(reduction.addends.begin(), reduction.addends.end());
    for (auto& addend : context_.block) addend.data += at;
    const Reduction part{context_.block, reduction.divisor};
    count_nonfinite_of(reduce(dtype_, part, result.data(), bytes / width));
    for (std::byte* place : places) hand_out(place + at, context_.block, result.data(), bytes);
    kernels().copy_streaming(value_->data() + at, result.data(), bytes);
  }
}

void ChunkValue::update_with(const Reduction& gradient, float learning_rate) {
  engine_.update(*context_.optimizer, state_, dtype_, static_cast<double>(learning_rate),
                 writable().data(), gradient, elements_);
  context_.has_state = true;
  is_state_set_ = false;
}

bool ChunkValue::apply_async(const data::Header& header, Payload payload,
                             const SharedBuffers& shared) {
  bool is_there = false;
  if (header.samples > 0 && elements_ > 0) {
    const data::Codec codec = payload_codec(header);
    if (codec == data::Codec::kTwoBit)
      context_.nonfinite += count_nonfinite(codec, payload.data(), elements_);
    if (codec != data::Codec::kNone)
      payload = decoded(codec, std::move(payload));
    else if (!shared.in_is_on_device)
      payload = bring(std::move(payload), shared.in);
    if (shared.in_is_on_device) ++context_.in_place;
    const std::byte* gradient = payload.empty() ? shared.in : payload.data();
    if (uses_optimizer()) {
      const Addend whole{gradient, 1};
      update_with({{&whole, 1}}, header.learning_rate);
      context_.step = std::max(context_.step, header.step);
    } else if (is_mean(header)) {
      // The mean of one contribution is that contribution.
      if (payload.empty()) payload = copy_of(gradient);
      publish(std::exchange(payload, Payload()));
    } else if (is_on_device()) {
      engine_.add(dtype_, writable().data(), gradient, 1, elements_, true);
    } else {
      add_async(gradient, shared.out);
      is_there = shared.out != nullptr;
    }
  }
  engine_.give(std::move(payload));
  engine_.wait();  // afterwards the memory that it read is free
  context_.nonfinite += engine_.take_nonfinite();
  return is_there;
}

/// Adds the gradient in one pass over memory, even if answers hold the present value; writes the
/// answer's place, if there is one, in the same pass.
void ChunkValue::add_async(const std::byte* gradient, std::byte* place) {
  const std::size_t width = data::element_bytes(dtype_);
  const auto held = replace();
  for (std::size_t at = 0; at < elements_; at += kBlock) {
    const std::size_t n = std::min(kBlock, elements_ - at);
    const std::byte* more = gradient + at * width;
    std::byte* value = value_->data() + at * width;
    if (held) {
      const Addend both[] = {{held->data() + at * width, 1}, {more, 1}};
      const bool is_finite = reduce(dtype_, {both}, value, n) == 0;
      if (!is_finite) context_.nonfinite += count_nonfinite(dtype_, more, n);
    } else {
      engine_.add(dtype_, value, more, 1, n, true);
    }
    if (place) std::memcpy(place + at * width, value, n * width);
  }
}

// ---------------------------------------------------------------- checkpoints

void ChunkValue::restore(RestoredSlice slice) {
  DT_CHECK(parts_.empty(), "restored before the first contribution");
  if (slice.updates > 0) context_.has_state = true;
  const auto ours = [this](Payload bytes) {
    return bytes.empty() ? nullptr : engine_.share(engine_.bring(std::move(bytes)));
  };
  state_ = {ours(std::move(slice.arrays[1])), ours(std::move(slice.arrays[2])), slice.updates};
}

std::shared_ptr<const Payload> ChunkValue::state(bool second) {
  const auto& present = second ? state_.second : state_.first;
  if (present && present->memory() == Memory::kHost) return present;
  auto copy = std::make_shared<Payload>(context_.pool->take(bytes()));
  if (present) {
    engine_.copy(copy->data(), present->data(), bytes());
    engine_.wait();
  } else {
    std::fill_n(copy->data(), copy->size(), std::byte{0});
  }
  return copy;
}

void ChunkValue::set_state(bool second, Payload values, std::uint64_t updates) {
  DT_CHECK(parts_.empty() && may_set_state(), "set between rounds, before the first update");
  (second ? state_.second : state_.first) = engine_.share(engine_.bring(std::move(values)));
  state_.updates = updates;
  is_state_set_ = true;
  context_.has_state = true;
}

SavedChunk ChunkValue::save() const {
  return {.dtype = dtype_,
          .elements = elements_,
          .updates = state_.updates,
          .arrays = {value_, state_.first, state_.second}};
}

void ChunkValue::leave_saved(std::mutex& guard) {
  for (auto* array : {&value_, &state_.first, &state_.second}) {
    if (!*array || array->use_count() == 1 || (*array)->memory() != Memory::kDevice) continue;
    Payload ours = engine_.swap_out(**array, guard);
    if (!ours.empty()) *array = engine_.share(std::move(ours));
  }
}

// ---------------------------------------------------------------- the value's memory

/// `bytes` are the new value; the old one's memory serves a later round, unless answers of an
/// earlier one are still being sent from it.
void ChunkValue::publish(Payload bytes) {
  if (!engine_.goes_on()) return engine_.give(std::move(bytes));
  shown_.reset();
  if (value_.use_count() != 1)
    value_ = engine_.share(std::move(bytes));
  else if (is_on_device())
    engine_.give(std::exchange(*value_, std::move(bytes)));
  else
    spare_ = std::exchange(*value_, std::move(bytes));
}

Payload& ChunkValue::writable() {
  const auto held = replace();
  if (held && !held->empty()) engine_.copy(value_->data(), held->data(), held->size());
  return *value_;
}

std::shared_ptr<Payload> ChunkValue::replace() {
  shown_.reset();
  if (value_.use_count() == 1) return nullptr;
  Payload fresh = engine_.take(value_->size());
  if (value_.use_count() == 1) {  // take() made room: the checkpoint now has a copy on the host
    engine_.give(std::move(fresh));
    static_cast<void>(engine_.take_failure());
    return nullptr;
  }
  if (!engine_.goes_on()) return nullptr;
  return std::exchange(value_, engine_.share(std::move(fresh)));
}

}  // namespace dt::kv
