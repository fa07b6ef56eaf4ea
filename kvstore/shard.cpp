#include "kvstore/shard.h"

#include <algorithm>

#include "kvstore/compression.h"
#include "kvstore/reduce.h"

namespace dt::kv {

namespace {

constexpr std::uint32_t kMaxText = std::uint32_t{16} << 20;
constexpr std::size_t kMaxKeys = std::size_t{1} << 20;
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 40;

std::uint64_t chunk_key(const data::Header& header) {
  return (static_cast<std::uint64_t>(header.key.value) << 32) | header.chunk;
}

/// How the payload of a contribution is compressed.
data::Codec payload_codec(const data::Header& header) {
  return header.flags & data::kShared ? data::Codec::kNone : data::codec_of(header);
}

std::string describe(const data::KeySpec& key) {
  return fmt::format("{} elements of dtype {}{}", key.count, static_cast<int>(key.dtype),
                     key.flags & data::kAuxiliary ? ", auxiliary" : "");
}

}  // namespace

Shard::Shard(ShardOptions options, Answers& answers) : options_(options), answers_(answers) {}

Shard::Chunk* Shard::find(const data::Header& header) {
  // A frame is looked up when it begins, when it takes memory and when it is handled.
  const ChunkKey key = chunk_key(header);
  if (!last_found_ || last_key_ != key) {
    const auto it = chunks_.find(key);
    if (it == chunks_.end()) return nullptr;
    last_key_ = key;
    last_found_ = &it->second;
  }
  return last_found_;
}

Result<void> Shard::check(const data::Header& header) {
  std::size_t least = 0;
  std::size_t most = 0;
  switch (header.type) {
    case data::Type::kRegister:
    case data::Type::kSetOptimizer:
      most = kMaxText;
      break;
    case data::Type::kInit:
      if (header.samples > data::kMaxPayload / data::element_bytes(header.dtype))
        return fail(ErrorKind::kProtocol, "a chunk of {} elements is too large", header.samples);
      if (header.payload != 0) least = most = header.samples * data::element_bytes(header.dtype);
      break;
    case data::Type::kPush:
    case data::Type::kPushPull: {
      const Chunk* chunk = find(header);
      if (!chunk || chunk->dtype != header.dtype)
        return fail(ErrorKind::kProtocol, "a push to a chunk that does not exist here");
      const data::Codec codec = data::codec_of(header);
      if (codec != data::Codec::kNone && !is_compressible(chunk->dtype, chunk->auxiliary))
        return fail(ErrorKind::kProtocol, "a compressed push to a chunk that takes none");
      least = most = header.flags & data::kShared ? data::kSharedPlacesBytes
                     : codec == data::Codec::kNone
                         ? chunk->elements * data::element_bytes(chunk->dtype)
                         : compressed_bytes(codec, chunk->elements);
      break;
    }
    case data::Type::kPull:
      if (header.flags & data::kShared) least = most = data::kSharedPlacesBytes;
      break;
    case data::Type::kFinish:
    case data::Type::kBarrier:
    case data::Type::kSync:
    case data::Type::kBeat:
      break;
    case data::Type::kDone:
    case data::Type::kValue:
    case data::Type::kFailed:
    case data::Type::kNeedValues:
    case data::Type::kShare:
    case data::Type::kUnshare:
      return fail(ErrorKind::kProtocol, "an answer where a request was expected");
  }
  if (header.payload < least || header.payload > most)
    return fail(ErrorKind::kProtocol, "a frame of type {} with {} bytes (expected {} to {})",
                static_cast<int>(header.type), header.payload, least, most);
  if (is_early(header) && held_bytes_ + header.payload > options_.max_held_bytes)
    return fail(ErrorKind::kUnavailable, "too many frames wait for the commit of generation {}",
                header.generation);
  return {};
}

/// A contribution of a generation whose commit has not arrived here yet.
bool Shard::is_early(const data::Header& header) const {
  const bool takes_part = header.type == data::Type::kPush ||
                          header.type == data::Type::kPushPull ||
                          header.type == data::Type::kBarrier || header.type == data::Type::kFinish;
  return takes_part && header.generation > members_.generation();
}

void Shard::hold(Time deadline, Parked frame) {
  held_bytes_ += sizeof(Parked) + frame.payload.size();
  held_.emplace_back(deadline, std::move(frame));
}

std::size_t Shard::chunk_bytes(const data::Header& header) {
  const Chunk* chunk = find(header);
  return chunk ? chunk->elements * data::element_bytes(chunk->dtype) : 0;
}

void Shard::handle(const data::Header& header, Payload payload, Time now, SharedBuffers shared) {
  if (is_early(header))
    return hold(now + options_.hold_limit, {header, std::move(payload), std::move(shared)});
  switch (header.type) {
    case data::Type::kRegister:
      return on_register(header, std::move(payload));
    case data::Type::kInit:
      return on_init(header, std::move(payload));
    case data::Type::kPush:
    case data::Type::kPushPull:
      return on_push(header, std::move(payload), std::move(shared));
    case data::Type::kPull:
      return on_pull(header, shared);
    case data::Type::kFinish:
      return on_finish(header);
    case data::Type::kBarrier:
      return on_barrier(header);
    case data::Type::kSetOptimizer:
      return on_set_optimizer(header, std::move(payload));
    case data::Type::kSync:
      return on_sync(header);
    case data::Type::kBeat:
      return;
    case data::Type::kDone:
    case data::Type::kValue:
    case data::Type::kFailed:
    case data::Type::kNeedValues:
    case data::Type::kShare:
    case data::Type::kUnshare:
      break;
  }
  DT_CHECK(false, "a frame that check() refuses");
}

Members::Adopted Shard::commit(const ServerCommit& commit, Time now) {
  const auto adopted = members_.adopt(commit);
  if (adopted != Members::Adopted::kYes) return adopted;
  recheck(commit.boundary);
  retry_all_parked();
  held_bytes_ = 0;
  for (auto& [deadline, frame] : std::exchange(held_, {})) {
    if (is_early(frame.header))
      hold(deadline, std::move(frame));
    else
      handle(frame.header, std::move(frame.payload), now, std::move(frame.shared));
  }
  return adopted;
}

void Shard::forget_requests(WorkerId worker) {
  for (Chunk* chunk : open_)
    std::erase_if(chunk->waiting, [&](const auto& w) { return w.header.worker == worker; });
  held_bytes_ = 0;
  for (auto& [deadline, frame] : std::exchange(held_, {}))
    if (frame.header.worker != worker) hold(deadline, std::move(frame));
}

void Shard::expire(Time now) {
  held_bytes_ = 0;
  for (auto& [deadline, frame] : std::exchange(held_, {})) {
    if (deadline > now)
      hold(deadline, std::move(frame));
    else
      refuse(frame.header, data::Code::kTimeout,
             fmt::format("the server did not learn of generation {} in time",
                         frame.header.generation));
  }
}

// ---------------------------------------------------------------- keys

void Shard::on_register(const data::Header& header, Payload payload) {
  if (!options_.is_registrar)
    return refuse(header, data::Code::kInvalid, "keys are registered at server 0");
  const auto wanted = wire::parse<data::RegisterKeys>(payload.text());
  if (!wanted) return refuse(header, data::Code::kInvalid, wanted.error().message);
  bool all = true;
  bool created = false;
  for (const auto& key : wanted->keys) {
    const auto it = key_index_.find(key.name);
    if (it != key_index_.end()) {
      const auto& have = keys_[it->second];
      if (have != key)
        return refuse(header, data::Code::kMismatch,
                      fmt::format("key '{}' has {}; worker {} wants {}", key.name, describe(have),
                                  header.worker, describe(key)));
    } else if (members_.is_first(header.worker)) {
      if (keys_.size() >= kMaxKeys || key.count > kMaxElements)
        return refuse(header, data::Code::kInvalid,
                      fmt::format("key '{}': too many keys or elements", key.name));
      key_index_.emplace(key.name, keys_.size());
      keys_.push_back(key);
      created = true;
    } else {
      all = false;
    }
  }
  if (all) {
    data::KeyTable table;
    table.from = std::min(wanted->known, static_cast<std::uint32_t>(keys_.size()));
    table.keys.assign(keys_.begin() + table.from, keys_.end());
    answer(header, data::Type::kDone, std::make_shared<Payload>(wire::body_of(table)));
  } else {
    park(parked_registers_, header, std::move(payload));
  }
  if (created) retry(std::exchange(parked_registers_, {}));
}

void Shard::on_init(const data::Header& header, Payload payload) {
  if (const Chunk* chunk = find(header)) {
    const bool same = chunk->dtype == header.dtype && chunk->elements == header.samples;
    if (!same)
      return refuse(header, data::Code::kMismatch,
                    fmt::format("chunk {} has {} elements; worker {} has {}", header.chunk,
                                chunk->elements, header.worker, header.samples));
    return answer(header, data::Type::kDone);
  }
  if (!members_.is_first(header.worker))
    return park(parked_inits_[chunk_key(header)], header, std::move(payload));
  const bool has_values = !payload.empty() || header.samples == 0;
  if (!has_values) return answer(header, data::Type::kNeedValues);
  if (!is_supported(header.dtype))
    return refuse(header, data::Code::kInvalid, "float32, float64 and int64 keys are supported");
  if (chunks_.size() >= kMaxKeys * 4)
    return refuse(header, data::Code::kInvalid, "too many chunks");
  Chunk chunk;
  chunk.dtype = header.dtype;
  chunk.auxiliary = (header.flags & data::kAuxiliary) != 0;
  chunk.elements = header.samples;
  chunk.value = make_value(std::move(payload));
  chunks_.emplace(chunk_key(header), std::move(chunk));
  answer(header, data::Type::kDone);
  if (auto parked = parked_inits_.extract(chunk_key(header))) retry(std::move(parked.mapped()));
}

// ---------------------------------------------------------------- rounds

void Shard::on_push(const data::Header& header, Payload payload, SharedBuffers shared) {
  Chunk* found = find(header);
  DT_CHECK(found, "check() lets no push through to a chunk that does not exist");
  Chunk& chunk = *found;
  const auto why = refusal(chunk, header, payload, shared);
  if (!why.empty()) return refuse(header, data::Code::kInvalid, why);
  if (header.flags & data::kAsync) return apply_async(chunk, header, std::move(payload), shared);
  const auto admission =
      chunk.rounds.admit(members_, header.worker, header.generation, header.round);
  switch (admission) {
    case Admission::kCounted:
      if (chunk.parts.empty()) open(chunk);
      wait_for_round(chunk, header, shared);
      if (chunk.rounds.is_complete(members_)) {
        contribute(chunk, header, std::move(payload), std::move(shared), true);
        close(chunk);
        complete(chunk);
      } else {
        contribute(chunk, header, std::move(payload), std::move(shared), false);
      }
      return;
    case Admission::kDuplicate:
      pool_->give(std::move(payload));
      return wait_for_round(chunk, header, shared);
    case Admission::kPast:
      pool_->give(std::move(payload));
      if (chunk.failed && chunk.failed->first == header.round)
        return refuse(header, data::Code::kMismatch, chunk.failed->second);
      if (header.type == data::Type::kPush) return answer(header, data::Type::kDone);
      return answer_value(header, shared, chunk, false);
    case Admission::kHeld:
    case Admission::kFenced:
    case Admission::kMissed:
    case Admission::kAhead:
      pool_->give(std::move(payload));
      return admission_failed(header, admission, chunk.rounds);
  }
}

std::string Shard::refusal(const Chunk& chunk, const data::Header& header, const Payload& payload,
                           const SharedBuffers& shared) {
  const data::Codec codec = payload_codec(header);
  const auto error = payload_error(codec, payload.data());
  if (!error.empty())
    return fmt::format("worker {}: a gradient compressed with {}: {}", header.worker,
                       name_of(codec), error);
  if (!options_.refuse_nonfinite) return {};
  const std::size_t count =
      codec == data::Codec::kNone
          ? count_nonfinite(chunk.dtype, shared.in ? shared.in : payload.data(), chunk.elements)
          : count_nonfinite(codec, payload.data(), chunk.elements);
  if (count == 0) return {};
  nonfinite_ += count;
  return fmt::format(
      "worker {}: {} of {} elements of chunk {} of its gradient are infinite or NaN "
      "(--refuse-nonfinite)",
      header.worker, count, chunk.elements, header.chunk);
}

Payload Shard::take(const data::Header& header) {
  const bool contributes = header.type == data::Type::kPush || header.type == data::Type::kPushPull;
  const bool is_plain = contributes && data::codec_of(header) == data::Codec::kNone;
  Chunk* chunk = is_plain ? find(header) : nullptr;
  if (chunk && chunk->sum.empty() && !chunk->spare.empty())
    return std::exchange(chunk->spare, Payload());
  return pool_->take(header.payload);
}

void Shard::open(Chunk& chunk) {
  chunk.open_at = open_.size();
  open_.push_back(&chunk);
}

void Shard::close(Chunk& chunk) {
  open_.back()->open_at = chunk.open_at;
  open_[chunk.open_at] = open_.back();
  open_.pop_back();
}

void Shard::contribute(Chunk& chunk, const data::Header& header, Payload payload,
                       SharedBuffers shared, bool is_last) {
  if (chunk.wrong.empty()) chunk.wrong = disagreement(chunk, header);
  const bool adds = header.samples > 0 && chunk.elements > 0 && chunk.wrong.empty();
  if (!adds) shared.in = nullptr;
  // What is shared lies still until the round is over: one pass reads all of it then.
  const bool keeps = adds && !shared.in && options_.deterministic;
  const data::Codec codec = adds ? payload_codec(header) : data::Codec::kNone;
  const bool is_compressed = codec != data::Codec::kNone;
  const bool adds_codes = is_compressed && !keeps && !chunk.sum.empty();
  if (codec == data::Codec::kTwoBit)  // its values are finite: they are not counted with the sum
    nonfinite_ += count_nonfinite(codec, payload.data(), chunk.elements);
  if (is_compressed && !adds_codes) payload = decoded(chunk, codec, std::move(payload));
  const bool is_mean = reduce_of(chunk, header.reduce) == data::Reduce::kMean;
  if (adds_codes)
    chunk.sum.add_compressed(codec, payload, is_mean, header.samples);
  else if (adds && !shared.in && !keeps)
    payload = chunk.sum.add(chunk.dtype, std::move(payload), is_mean, header.samples, is_last);
  if (!keeps) pool_->give(std::exchange(payload, Payload()));
  chunk.parts.push_back({header, std::move(payload), std::move(shared)});
}

Payload Shard::decoded(Chunk& chunk, data::Codec codec, Payload codes) {
  Payload values = chunk.spare.empty() ? pool_->take(chunk.elements * sizeof(float))
                                       : std::exchange(chunk.spare, Payload());
  decode(codec, reinterpret_cast<float*>(values.data()), codes.data(), chunk.elements);
  pool_->give(std::move(codes));
  return values;
}

void Shard::wait_for_round(Chunk& chunk, const data::Header& header, const SharedBuffers& shared) {
  std::erase_if(chunk.waiting, [&](const auto& w) { return w.header.worker == header.worker; });
  chunk.waiting.push_back({header, shared});
}

bool Shard::uses_optimizer(const Chunk& chunk) const {
  return optimizer_ && !chunk.auxiliary && chunk.dtype != data::Dtype::kInt64;
}

data::Reduce Shard::reduce_of(const Chunk& chunk, data::Reduce asked) const {
  if (asked != data::Reduce::kAuto) return asked;
  const bool mean =
      uses_optimizer(chunk) || (chunk.auxiliary && chunk.dtype != data::Dtype::kInt64);
  return mean ? data::Reduce::kMean : data::Reduce::kSum;
}

std::string Shard::disagreement(const Chunk& chunk, const data::Header& header) const {
  if (chunk.dtype == data::Dtype::kInt64 && header.reduce == data::Reduce::kMean)
    return "int64 values have no mean: push them with reduce = sum";
  if (chunk.parts.empty()) return {};
  const auto& first = chunk.parts.front().header;
  if (header.step != first.step)
    return fmt::format("round {}: worker {} is at step {}, worker {} at step {}", first.round,
                       first.worker, first.step, header.worker, header.step);
  if (uses_optimizer(chunk) && header.learning_rate != first.learning_rate)
    return fmt::format("round {}: worker {} has learning rate {}, worker {} has {}", first.round,
                       first.worker, first.learning_rate, header.worker, header.learning_rate);
  if (data::codec_of(header) != data::codec_of(first))
    return fmt::format("round {}: worker {} has gradient compression {}, worker {} has {}",
                       first.round, first.worker, name_of(data::codec_of(first)), header.worker,
                       name_of(data::codec_of(header)));
  if (reduce_of(chunk, header.reduce) != reduce_of(chunk, first.reduce))
    return fmt::format("round {}: worker {} and worker {} ask for different reductions",
                       first.round, first.worker, header.worker);
  return {};
}

Payload& Shard::writable(Chunk& chunk) {
  if (chunk.value.use_count() > 1) {  // answers of an earlier round are still being sent
    auto fresh = make_value(pool_->take(chunk.value->size()));
    if (!fresh->empty()) std::memcpy(fresh->data(), chunk.value->data(), fresh->size());
    chunk.value = std::move(fresh);
  }
  return *chunk.value;
}

void Shard::complete(Chunk& chunk) {
  const Round round = chunk.rounds.open();
  values_are_there_ = false;
  if (chunk.wrong.empty()) apply(chunk);
  auto [sum, last] = chunk.sum.take();
  pool_->give(std::move(sum));
  pool_->give(std::move(last));
  chunk.failed.reset();
  if (!chunk.wrong.empty()) chunk.failed.emplace(round, std::exchange(chunk.wrong, {}));
  for (auto& part : chunk.parts) pool_->give(std::move(part.bytes));
  chunk.parts.clear();
  chunk.rounds.advance();
  auto& waiting = answering_;
  waiting.swap(chunk.waiting);
  for (const auto& [request, shared] : waiting) {
    if (chunk.failed)
      refuse(request, data::Code::kMismatch, chunk.failed->second);
    else if (request.type == data::Type::kPush)
      answer(request, data::Type::kDone);
    else
      answer_value(request, shared, chunk, values_are_there_);
  }
  waiting.clear();
  waiting.swap(chunk.waiting);  // its memory serves the next round
}

/// The open round's parts take effect on the value.
void Shard::apply(Chunk& chunk) {
  const Reduction reduction = contributions(chunk);
  if (reduction.addends.empty()) return;
  const auto& first = chunk.parts.front();
  if (uses_optimizer(chunk)) {
    nonfinite_ += update(*optimizer_, chunk.state, chunk.dtype,
                         static_cast<double>(first.header.learning_rate), writable(chunk).data(),
                         reduction, chunk.elements);
    has_state_ = true;
    return;
  }
  const bool shares = std::any_of(chunk.parts.begin(), chunk.parts.end(),
                                  [](const Part& part) { return part.shared.in != nullptr; });
  if (shares) return sum_shared(chunk, reduction);
  Payload& out = options_.deterministic ? chunk.parts.front().bytes : chunk.sum.bytes();
  const bool is_it = reduction.addends.size() == 1 && reduction.divisor == 1;
  if (!is_it)
    nonfinite_ += reduce(chunk.dtype, reduction, out.data(), chunk.elements);
  else if (data::codec_of(first.header) != data::Codec::kTwoBit)  // added without being counted
    nonfinite_ += count_nonfinite(chunk.dtype, out.data(), chunk.elements);
  publish(chunk, std::exchange(out, Payload()));
}

/// The open round's contributions with their weights. Deterministic: in worker id order.
Reduction Shard::contributions(Chunk& chunk) {
  const bool is_mean = reduce_of(chunk, chunk.parts.front().header.reduce) == data::Reduce::kMean;
  if (options_.deterministic)  // those that add nothing at the end
    std::sort(chunk.parts.begin(), chunk.parts.end(), [](const Part& a, const Part& b) {
      return std::pair(a.values() == nullptr, a.header.worker) <
             std::pair(b.values() == nullptr, b.header.worker);
    });
  addends_.clear();
  double samples = 0;
  for (const auto& part : chunk.parts) {
    if (part.values() == nullptr) continue;
    const auto n = static_cast<double>(part.header.samples);
    addends_.push_back({part.values(), is_mean ? n : 1});
    samples += n;
  }
  samples += chunk.sum.append_to(addends_, is_mean);
  Reduction reduction;
  reduction.addends = addends_;
  if (!is_mean || addends_.empty()) return reduction;
  reduction.divisor = samples;
  // Equal weights, the usual case, are the plain sum divided by how many there are.
  const double weight = addends_.front().weight;
  const bool equal = std::all_of(addends_.begin(), addends_.end(),
                                 [&](const Addend& addend) { return addend.weight == weight; });
  if (equal) {
    for (auto& addend : addends_) addend.weight = 1;
    reduction.divisor = samples / weight;
  }
  return reduction;
}

/// Sums and hands the result to everyone who shares memory while it is in the cache.
void Shard::sum_shared(Chunk& chunk, const Reduction& reduction) {
  constexpr std::size_t kBlock = 4096;  // elements
  const std::size_t width = data::element_bytes(chunk.dtype);
  if (chunk.value.use_count() > 1) chunk.value = make_value(pool_->take(chunk.value->size()));
  Reduction part;
  part.divisor = reduction.divisor;
  for (std::size_t at = 0; at < chunk.elements; at += kBlock) {
    const std::size_t n = std::min(kBlock, chunk.elements - at);
    block_.assign(reduction.addends.begin(), reduction.addends.end());
    for (auto& addend : block_) addend.data += at * width;
    part.addends = block_;
    std::byte* value = chunk.value->data() + at * width;
    nonfinite_ += reduce(chunk.dtype, part, value, n);
    for (const auto& waiting : chunk.waiting)
      if (waiting.shared.out) std::memcpy(waiting.shared.out + at * width, value, n * width);
  }
  values_are_there_ = true;
}

/// `bytes` are the new value; the old one's memory serves a later round, unless answers of an
/// earlier one are still being sent from it.
void Shard::publish(Chunk& chunk, Payload bytes) {
  if (chunk.value.use_count() == 1)
    chunk.spare = std::exchange(*chunk.value, std::move(bytes));
  else
    chunk.value = make_value(std::move(bytes));
}

std::shared_ptr<Payload> Shard::make_value(Payload bytes) {
  // An answer may outlive the shard.
  auto back_to_pool = [pool = std::weak_ptr(pool_)](Payload* value) {
    const std::unique_ptr<Payload> owner(value);
    if (const auto alive = pool.lock()) alive->give(std::move(*value));
  };
  return {std::make_unique<Payload>(std::move(bytes)).release(), std::move(back_to_pool)};
}

void Shard::apply_async(Chunk& chunk, const data::Header& header, Payload payload,
                        const SharedBuffers& shared) {
  const auto admission =
      chunk.rounds.admit_async(members_, header.worker, header.generation, header.round);
  if (admission == Admission::kCounted && header.samples > 0 && chunk.elements > 0) {
    const data::Codec codec = payload_codec(header);
    if (codec == data::Codec::kTwoBit)
      nonfinite_ += count_nonfinite(codec, payload.data(), chunk.elements);
    if (codec != data::Codec::kNone) payload = decoded(chunk, codec, std::move(payload));
    const std::byte* gradient = shared.in ? shared.in : payload.data();
    if (uses_optimizer(chunk)) {
      const Addend whole{gradient, 1};
      Reduction reduction;
      reduction.addends = std::span(&whole, 1);
      nonfinite_ +=
          update(*optimizer_, chunk.state, chunk.dtype, static_cast<double>(header.learning_rate),
                 writable(chunk).data(), reduction, chunk.elements);
      has_state_ = true;
    } else if (reduce_of(chunk, header.reduce) == data::Reduce::kMean) {
      // The mean of one contribution is that contribution.
      if (shared.in)
        std::memcpy(writable(chunk).data(), gradient, chunk.value->size());
      else
        publish(chunk, std::exchange(payload, Payload()));
    } else {
      nonfinite_ += add_to(chunk.dtype, writable(chunk).data(), gradient, 1, chunk.elements);
    }
  }
  pool_->give(std::move(payload));
  if (admission != Admission::kCounted && admission != Admission::kPast)
    return admission_failed(header, admission, chunk.rounds);
  if (header.type == data::Type::kPush) return answer(header, data::Type::kDone);
  answer_value(header, shared, chunk, false);
}

void Shard::admission_failed(const data::Header& to, Admission why, const RoundMachine& rounds) {
  if (why == Admission::kFenced)
    return refuse(to, data::Code::kFenced,
                  fmt::format("worker {} is not a member (generation {}): it was removed, or has "
                              "not joined at an epoch boundary yet",
                              to.worker, members_.generation()));
  if (why == Admission::kMissed)
    return refuse(to, data::Code::kInvalid,
                  fmt::format("round {} was completed without worker {}, which had finished its "
                              "epoch: call epoch_boundary before the next push",
                              to.round, to.worker));
  refuse(to, data::Code::kInvalid,
         fmt::format("worker {} pushes round {} while round {} is open", to.worker, to.round,
                     rounds.open()));
}

void Shard::on_pull(const data::Header& header, const SharedBuffers& shared) {
  const Chunk* chunk = find(header);
  if (!chunk) return refuse(header, data::Code::kInvalid, "pull of a chunk that was not created");
  answer_value(header, shared, *chunk, false);
}

// ---------------------------------------------------------------- epochs, barrier

void Shard::on_finish(const data::Header& header) {
  if (members_.finish(header.worker, header.round.value)) {
    recheck(false);
  }
  answer(header, data::Type::kDone);
}

void Shard::recheck(bool epoch_ends) {
  for (Chunk* chunk : std::exchange(open_, {})) {
    if (epoch_ends || chunk->rounds.is_complete(members_))
      complete(*chunk);
    else
      open(*chunk);
  }
  if (barrier_.counted() > 0 && (epoch_ends || barrier_.is_complete(members_))) {
    barrier_.advance();
    std::vector<data::Header> waiting;
    waiting.swap(at_barrier_);
    for (const auto& request : waiting) answer(request, data::Type::kDone);
  }
  if (epoch_ends)
    members_.begin_epoch();
  else
    members_.clear_if_all_finished();
}

void Shard::on_barrier(const data::Header& header) {
  if (!options_.is_registrar)
    return refuse(header, data::Code::kInvalid, "the barrier is at server 0");
  const auto admission = barrier_.admit(members_, header.worker, header.generation, header.round);
  switch (admission) {
    case Admission::kCounted:
    case Admission::kDuplicate:
      std::erase_if(at_barrier_, [&](const auto& w) { return w.worker == header.worker; });
      at_barrier_.push_back(header);
      return recheck(false);
    case Admission::kPast:
      return answer(header, data::Type::kDone);
    case Admission::kHeld:
    case Admission::kFenced:
    case Admission::kMissed:
    case Admission::kAhead:
      return admission_failed(header, admission, barrier_);
  }
}

void Shard::on_sync(const data::Header& header) {
  data::SyncState state;
  state.generation = members_.generation();
  state.phase = members_.phase();
  state.barrier = barrier_.open();
  for (const auto& [key, chunk] : chunks_)
    state.chunks.push_back({KeyId(static_cast<std::uint32_t>(key >> 32)),
                            static_cast<std::uint32_t>(key), chunk.rounds.open()});
  answer(header, data::Type::kDone, std::make_shared<Payload>(wire::body_of(state)));
}

// ---------------------------------------------------------------- optimizer

void Shard::on_set_optimizer(const data::Header& header, Payload payload) {
  const auto spec = parse_optimizer(payload.text());
  if (!spec) return refuse(header, data::Code::kInvalid, spec.error().message);
  if (optimizer_ == *spec) return answer(header, data::Type::kDone);
  const bool is_member = members_.contains(header.worker);
  if (!optimizer_ && !is_member) return park(parked_optimizers_, header, std::move(payload));
  const bool may_replace = is_member && !has_state_ && optimizer_by_ == header.worker;
  if (optimizer_ && !may_replace)
    return refuse(header, data::Code::kMismatch,
                  fmt::format("the optimizer is '{}'; worker {} asks for '{}'",
                              to_string(*optimizer_), header.worker, to_string(*spec)));
  if (!(header.flags & data::kCheckOnly)) {
    optimizer_ = *spec;
    optimizer_by_ = header.worker;
  }
  answer(header, data::Type::kDone);
  if (!(header.flags & data::kCheckOnly)) retry(std::exchange(parked_optimizers_, {}));
}

// ---------------------------------------------------------------- waiting and answering

void Shard::park(std::vector<Parked>& where, const data::Header& header, Payload payload) {
  // A request that arrives again (its connection broke) takes the place of the earlier one, so
  // there is never more than what the workers have outstanding.
  std::erase_if(where, [&](const Parked& p) {
    return p.header.worker == header.worker && p.header.request == header.request;
  });
  where.push_back({header, std::move(payload), {}});
}

void Shard::retry(std::vector<Parked> frames) {
  for (auto& frame : frames) handle(frame.header, std::move(frame.payload), Time{});
}

void Shard::retry_all_parked() {
  retry(std::exchange(parked_registers_, {}));
  retry(std::exchange(parked_optimizers_, {}));
  for (auto& [key, frames] : std::exchange(parked_inits_, {})) retry(std::move(frames));
}

void Shard::answer(const data::Header& to, data::Type type,
                   std::shared_ptr<const Payload> payload) {
  data::Header header = to;
  header.type = type;
  header.flags &= static_cast<std::uint8_t>(~data::kShared);
  header.payload = payload ? static_cast<std::uint32_t>(payload->size()) : 0;
  answers_.answer(to.worker, header, std::move(payload));
}

/// The chunk's value: in the memory shared with the worker, where it wants it there, else sent.
void Shard::answer_value(const data::Header& to, const SharedBuffers& shared, const Chunk& chunk,
                         bool is_there) {
  if (!shared.out) return answer(to, data::Type::kValue, chunk.value);
  if (!is_there) std::memcpy(shared.out, chunk.value->data(), chunk.value->size());
  data::Header header = to;
  header.type = data::Type::kValue;
  header.payload = 0;
  answers_.answer(to.worker, header, nullptr);
}

void Shard::refuse(const data::Header& to, data::Code code, std::string message) {
  data::Failure failure;
  failure.code = code;
  failure.message = std::move(message);
  answer(to, data::Type::kFailed, std::make_shared<Payload>(wire::body_of(failure)));
}

}  // namespace dt::kv
