#include "kvstore/server/shard.h"

#include <algorithm>
#include <cstring>

#include "core/base/quantity.h"
#include "kvstore/compute/compression.h"
#include "kvstore/compute/reduce.h"

namespace dt::kv {

namespace {

constexpr std::uint32_t kMaxText = std::uint32_t{16} << 20;
constexpr std::uint32_t kMaxOptimizerText = 4096;

std::uint64_t chunk_key(const data::Header& header) {
  return (static_cast<std::uint64_t>(header.key.value) << 32) | header.chunk;
}

std::string cannot_hold(const data::Header& header, const std::string& why) {
  return fmt::format("chunk {} of key {}, {} elements of {}: {}", header.chunk, header.key,
                     header.samples, name_of(header.dtype), why);
}

}  // namespace

Shard::Shard(ShardOptions options, Answers& answers)
    : options_(options),
      answers_(answers),
      context_(options.device),
      pending_(options.pending),
      held_(options.max_held_bytes) {
  context_.deterministic = options.deterministic;
  context_.refuse_nonfinite = options.refuse_nonfinite;
  if (context_.device) context_.device->on_no_memory([this] { return make_room(); });
  if (!options_.restore) return;
  if (const auto& text = options_.restore->optimizer(); !text.empty()) {
    const auto spec = parse_optimizer(text);
    DT_CHECK(spec, "a server refuses a checkpoint whose optimizer it does not know");
    context_.optimizer = *spec;
    context_.has_state = true;
  }
  context_.step = options_.restore->manifest().step;
  if (options_.is_registrar) keys_.restore(options_.restore->keys());
}

Shard::~Shard() {
  if (context_.device) context_.device->on_no_memory({});
}

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
      most = kMaxText;
      break;
    case data::Type::kSetOptimizer:
      most = kMaxOptimizerText;
      break;
    case data::Type::kInit:
      if (header.samples > data::kMaxPayload / data::element_bytes(header.dtype))
        return fail(ErrorKind::kProtocol, "a chunk of {} elements is too large", header.samples);
      if (header.payload != 0) least = most = header.samples * data::element_bytes(header.dtype);
      break;
    case data::Type::kPush:
    case data::Type::kPushPull: {
      const Chunk* chunk = find(header);
      if (!chunk || chunk->value.dtype() != header.dtype)
        return fail(ErrorKind::kProtocol, "a push to a chunk that does not exist here");
      const ChunkValue& value = chunk->value;
      const data::Codec codec = data::codec_of(header);
      if (codec != data::Codec::kNone && !is_compressible(value.dtype(), value.is_auxiliary()))
        return fail(ErrorKind::kProtocol, "a compressed push to a chunk that takes none");
      least = most = header.flags & data::kShared  ? sizeof(data::SharedPlaces)
                     : codec == data::Codec::kNone ? value.bytes()
                                                   : compressed_bytes(codec, value.elements());
      break;
    }
    case data::Type::kPull:
      if (header.flags & data::kShared) least = most = sizeof(data::SharedPlaces);
      break;
    case data::Type::kInitState: {
      const Chunk* chunk = find(header);
      if (!chunk || chunk->value.dtype() != header.dtype)
        return fail(ErrorKind::kProtocol, "a state of a chunk that does not exist here");
      least = most = chunk->value.bytes();
      break;
    }
    case data::Type::kPullState:
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
  if (is_early(header) && !held_.has_room(header.payload))
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

std::size_t Shard::chunk_bytes(const data::Header& header) {
  const Chunk* chunk = find(header);
  return chunk ? chunk->value.bytes() : 0;
}

bool Shard::is_on_device(const data::Header& header) {
  const Chunk* chunk = find(header);
  return chunk && chunk->value.is_on_device();
}

void Shard::handle(const data::Header& header, Payload payload, Time now, SharedBuffers shared) {
  if (is_early(header))
    return held_.hold({now + options_.hold_limit, header, std::move(payload), std::move(shared)});
  switch (header.type) {
    case data::Type::kRegister:
      return on_register(header, std::move(payload));
    case data::Type::kInit:
      return on_init(header, std::move(payload));
    case data::Type::kPush:
    case data::Type::kPushPull:
      return on_push(header, std::move(payload), std::move(shared), now);
    case data::Type::kPull:
      return on_pull(header, shared);
    case data::Type::kPullState:
      return on_pull_state(header);
    case data::Type::kInitState:
      return on_init_state(header, std::move(payload));
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

void Shard::handle_unchecked(const data::Header& header, Payload payload, Time now) {
  if (const auto checked = check(header); !checked)
    return refuse(header, data::Code::kInvalid, checked.error().message);
  handle(header, std::move(payload), now);
}

Members::Applied Shard::commit(const ServerCommit& commit, Time now, SavedLoop* saved) {
  const auto applied = members_.apply(commit);
  const bool ends_epoch = applied == Members::Applied::kBoundary;
  if (applied != Members::Applied::kYes && !ends_epoch) return applied;
  recheck(ends_epoch);
  if (!members_.departed().empty()) {
    for (auto& [key, chunk] : chunks_) chunk.rounds.forget(members_.departed());
    barrier_.forget(members_.departed());
  }
  if (saved) *saved = save();
  retry(pending_.take_all());
  for (auto& frame : held_.take(members_.generation()))
    handle(frame.header, std::move(frame.payload), now, std::move(frame.shared));
  return applied;
}

SavedLoop Shard::save() {
  SavedLoop saved;
  if (context_.device) {
    context_.device->wait();
    saved.device = context_.device->number();
    saved.guard = std::make_shared<std::mutex>();
    saved_guard_ = saved.guard;
    saved_.clear();
  }
  saved.keys = keys_.keys();
  saved.step = context_.step;
  if (context_.optimizer) saved.optimizer = to_string(*context_.optimizer);
  saved.chunks.reserve(chunks_.size());
  for (const auto& [key, chunk] : chunks_) {
    if (chunk.is_transient) continue;
    SavedChunk one = chunk.value.save();
    one.key = KeyId(static_cast<std::uint32_t>(key >> 32));
    one.chunk = static_cast<std::uint32_t>(key);
    for (const auto& array : one.arrays)
      if (array && array->memory() == Memory::kDevice) saved_.emplace_back(array);
    saved.chunks.push_back(std::move(one));
  }
  std::sort(saved.chunks.begin(), saved.chunks.end(), [](const auto& a, const auto& b) {
    return std::pair(a.key, a.chunk) < std::pair(b.key, b.chunk);
  });
  return saved;
}

bool Shard::make_room() {
  const auto guard = saved_guard_.lock();
  if (!guard || saved_.empty()) return false;
  for (auto& [key, chunk] : chunks_) chunk.value.leave_saved(*guard);
  for (const auto& kept : std::exchange(saved_, {})) {
    // No chunk references it any more; only this thread changes the count.
    const auto array = std::const_pointer_cast<Payload>(kept.lock());
    if (array && array->memory() == Memory::kDevice)
      context_.device->give(context_.device->swap_out(*array, *guard));
  }
  return true;
}

void Shard::disconnect(WorkerId worker) {
  for (Chunk* chunk : open_) {
    std::erase_if(chunk->waiting, [&](const auto& w) { return w.header.worker == worker; });
    chunk->value.detach(worker);
  }
  pending_.forget(worker);
  for (auto& [key, waiting] : restoring_)
    std::erase_if(waiting, [&](const auto& header) { return header.worker == worker; });
  held_.disconnect(worker);
}

void Shard::expire(Time now) {
  for (const auto& frame : held_.expire(now))
    refuse(
        frame.header, data::Code::kUnavailable,
        fmt::format("the server did not learn of generation {} in time", frame.header.generation));
}

// ---------------------------------------------------------------- keys

void Shard::on_register(const data::Header& header, Payload payload) {
  if (!options_.is_registrar)
    return refuse(header, data::Code::kInvalid, "keys are registered at server 0");
  const auto wanted = wire::parse<data::RegisterKeys>(payload.text());
  if (!wanted) return refuse(header, data::Code::kInvalid, wanted.error().message);
  const auto are_there = keys_.add(*wanted, header.worker, members_, first_is_at_barrier());
  if (!are_there) return refuse(header, are_there.error().code, are_there.error().message);
  if (!*are_there) return park(header, std::move(payload));
  const auto table = wire::body_of(keys_.table(wanted->known));
  answer(header, data::Type::kDone, std::make_shared<Payload>(table));
  if (members_.is_first(header.worker)) retry(pending_.take(header));
}

bool Shard::first_is_at_barrier() const {
  return std::any_of(at_barrier_.begin(), at_barrier_.end(),
                     [&](const auto& at) { return members_.is_first(at.worker); });
}

void Shard::on_init(const data::Header& header, Payload payload) {
  if (const Chunk* chunk = find(header)) {
    const ChunkValue& value = chunk->value;
    const bool same = value.dtype() == header.dtype && value.elements() == header.samples;
    if (!same)
      return refuse(header, data::Code::kMismatch,
                    fmt::format("chunk {} has {} elements of {}; worker {} has {} of {}",
                                header.chunk, value.elements(), name_of(value.dtype()),
                                header.worker, header.samples, name_of(header.dtype)));
    data::Header at = header;
    at.round = chunk->rounds.open();
    return answer(at, data::Type::kDone);
  }
  if (options_.restore && options_.restore->has(header.key)) return restore_chunk(header);
  // Kept without its values: if this worker must provide them, it is asked for them again.
  if (!members_.is_first(header.worker)) return park(header, {});
  const bool has_values = !payload.empty() || header.samples == 0;
  if (!has_values) return answer(header, data::Type::kNeedValues);
  if (!is_supported(header.dtype))
    return refuse(header, data::Code::kInvalid, "float32, float64 and int64 keys are supported");
  if (chunks_.size() >= kMaxChunks) return refuse(header, data::Code::kInvalid, "too many chunks");
  const bool is_auxiliary = (header.flags & data::kAuxiliary) != 0;
  ChunkValue value(context_, header.dtype, is_auxiliary, header.samples, std::move(payload));
  if (add_chunk(header, std::move(value))) retry(pending_.take(header));
}

bool Shard::add_chunk(const data::Header& header, ChunkValue value) {
  const auto why = value.failure();
  if (has_lost_device()) return false;
  if (!why.empty()) {
    refuse(header, data::Code::kInvalid, cannot_hold(header, why));
    return false;
  }
  data::Header at = header;
  at.round = keep_chunk(header, std::move(value)).rounds.open();
  answer(at, data::Type::kDone);
  return true;
}

Shard::Chunk& Shard::keep_chunk(const data::Header& header, ChunkValue value) {
  const auto until = value.is_auxiliary() ? Members::Part::kEpoch : Members::Part::kSteps;
  const auto added =
      chunks_.emplace(chunk_key(header), Chunk{std::move(value),
                                               RoundMachine(until),
                                               (header.flags & data::kTransient) != 0,
                                               0,
                                               {},
                                               {},
                                               {},
                                               {},
                                               {}});
  return added.first->second;
}

bool Shard::has_lost_device() {
  if (!context_.device || !context_.device->is_broken()) return false;
  if (options_.on_device_lost) options_.on_device_lost(context_.device->take_failure());
  return true;
}

void Shard::restore_chunk(const data::Header& header) {
  const auto& key = options_.restore->keys()[header.key.value];
  if (header.dtype != key.dtype)
    return refuse(header, data::Code::kMismatch,
                  fmt::format("key '{}' is of another dtype in the checkpoint", key.name));
  const auto [loading, is_first] = restoring_.try_emplace(chunk_key(header));
  std::erase_if(loading->second, [&](const auto& h) { return h.worker == header.worker; });
  loading->second.push_back(header);
  if (!is_first) return;
  auto work = [this, restore = options_.restore, header]() -> std::function<void()> {
    auto slice = std::make_shared<Result<RestoredSlice>>(
        restore->load(header.key, header.step, header.samples));
    return [this, header, slice] { on_restored(header, std::move(*slice)); };
  };
  if (options_.offload) return options_.offload(std::move(work));
  work()();
}

/// The chunk was read, or reading failed: answers the requests that wait for it.
void Shard::on_restored(const data::Header& asked, Result<RestoredSlice> slice) {
  const auto waiting = std::move(restoring_.extract(chunk_key(asked)).mapped());
  const auto& key = options_.restore->keys()[asked.key.value];
  const bool is_part = asked.samples <= key.count && asked.step <= key.count - asked.samples;
  if (!slice && is_part && options_.on_damage) return options_.on_damage(slice.error().message);
  if (!slice) {  // other requests may name a part that exists
    for (const auto& header : waiting) {
      if (header.samples == asked.samples && header.step == asked.step)
        refuse(header, data::Code::kInvalid, slice.error().message);
      else
        on_init(header, {});
    }
    return;
  }
  const auto shared = [](Payload bytes) {
    return bytes.empty() ? nullptr : std::make_shared<Payload>(std::move(bytes));
  };
  OptimizerState state;
  auto& [bytes, first, second] = slice->arrays;
  state.first = shared(std::move(first));
  state.second = shared(std::move(second));
  state.updates = slice->updates;
  const bool is_auxiliary = (key.flags & data::kAuxiliary) != 0;
  ChunkValue value(context_, key.dtype, is_auxiliary, asked.samples, std::move(bytes));
  value.restore(std::move(state));
  const auto why = value.failure();
  if (has_lost_device()) return;
  if (why.empty()) keep_chunk(asked, std::move(value));
  for (const auto& header : waiting) {
    if (why.empty())
      on_init(header, {});
    else
      refuse(header, data::Code::kInvalid, cannot_hold(header, why));
  }
}

// ---------------------------------------------------------------- epochs, barrier

void Shard::on_finish(const data::Header& header) {
  const Epoch next(static_cast<std::uint32_t>(header.step));
  const bool is_steps = (header.flags & data::kStepsOnly) != 0;
  const auto part = is_steps ? Members::Part::kSteps : Members::Part::kEpoch;
  const bool arrives = (header.flags & data::kAtBoundary) != 0;
  if (arrives && header.round.value == members_.phase()) keys_.arrive(header.worker);
  if (members_.finish(header.worker, header.round.value, next, part)) recheck(false);
  answer(header, data::Type::kDone);
  if (arrives && members_.is_first(header.worker)) retry_registrations();
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
  end_epoch_if_finished(epoch_ends);
}

void Shard::end_epoch_if_finished(bool is_finished) {
  const std::uint64_t phase = members_.phase();
  std::vector<WorkerId> workers = members_.contributors();
  if (is_finished) {
    // Those that have just joined have not ended an epoch.
    std::erase_if(workers, [&](WorkerId worker) { return !members_.is_finished(worker); });
    members_.begin_epoch();
  } else {
    members_.clear_if_all_finished();
  }
  if (members_.phase() != phase) keys_.end_epoch(workers);
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
      recheck(false);
      if (members_.is_first(header.worker)) retry_registrations();
      return;
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
  if (const auto lack = keys_.lack_of(header.worker); !lack.empty())
    return refuse(header, data::Code::kMismatch, lack);
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

std::string Shard::state_refusal(const data::Header& header, const Chunk& chunk) const {
  if (!chunk.value.is_parameter()) return "an auxiliary or integer key has no optimizer state";
  if (!context_.optimizer) return "no optimizer was set: there is no state of it";
  const unsigned wanted = header.flags & data::kSecondState ? 2 : 1;
  if (wanted > states_of(*context_.optimizer))
    return fmt::format("the optimizer '{}' has {}, not a state {}", to_string(*context_.optimizer),
                       count_text(states_of(*context_.optimizer), "state"), wanted);
  return {};
}

void Shard::on_pull_state(const data::Header& header) {
  Chunk* chunk = find(header);
  if (!chunk)
    return refuse(header, data::Code::kInvalid, "the state of a chunk that was not created");
  if (const auto wrong = state_refusal(header, *chunk); !wrong.empty())
    return refuse(header, data::Code::kInvalid, wrong);
  const auto state = chunk->value.state((header.flags & data::kSecondState) != 0);
  if (has_lost_device()) return;
  data::Header at = header;
  at.step = chunk->value.updates();
  answer(at, data::Type::kValue, state);
}

void Shard::on_init_state(const data::Header& header, Payload payload) {
  Chunk& chunk = *find(header);  // check() has found it
  if (const auto wrong = state_refusal(header, chunk); !wrong.empty())
    return refuse(header, data::Code::kInvalid, wrong);
  const bool is_taken =
      members_.is_first(header.worker) && chunk.value.may_set_state() && header.step > 0;
  if (is_taken && chunk.value.has_contributions())
    return refuse(header, data::Code::kInvalid,
                  "others have pushed already: set the state before the first epoch_boundary");
  if (is_taken)
    chunk.value.set_state((header.flags & data::kSecondState) != 0, std::move(payload),
                          header.step);
  const auto why = chunk.value.failure();
  if (has_lost_device()) return;
  if (!why.empty()) return refuse(header, data::Code::kInvalid, cannot_hold(header, why));
  answer(header, data::Type::kDone);
}

void Shard::on_set_optimizer(const data::Header& header, Payload payload) {
  if ((header.flags & data::kCheckOnly) && payload.empty()) {
    const std::string text = context_.optimizer ? to_string(*context_.optimizer) : "";
    return answer(header, data::Type::kDone, std::make_shared<Payload>(text));
  }
  const auto spec = parse_optimizer(payload.text());
  if (!spec) return refuse(header, data::Code::kInvalid, spec.error().message);
  if (context_.optimizer == *spec) return answer(header, data::Type::kDone);
  const bool is_member = members_.contains(header.worker);
  if (!context_.optimizer && !is_member) return park(header, std::move(payload));
  const bool may_replace = is_member && !context_.has_state && optimizer_by_ == header.worker;
  if (context_.optimizer && !may_replace)
    return refuse(header, data::Code::kMismatch,
                  fmt::format("the optimizer is '{}'; worker {} asks for '{}'",
                              to_string(*context_.optimizer), header.worker, to_string(*spec)));
  const bool is_between_rounds = std::none_of(
      open_.begin(), open_.end(), [](const Chunk* c) { return c->value.is_parameter(); });
  if (!is_between_rounds)
    return refuse(header, data::Code::kInvalid,
                  fmt::format("worker {} sets the optimizer in the middle of a round, when others "
                              "have pushed without it: set it before the first push",
                              header.worker));
  if (!(header.flags & data::kCheckOnly)) {
    context_.optimizer = *spec;
    optimizer_by_ = header.worker;
  }
  answer(header, data::Type::kDone);
  if (!(header.flags & data::kCheckOnly)) retry(pending_.take(header));
}

// ---------------------------------------------------------------- waiting and answering

void Shard::park(const data::Header& header, Payload payload) {
  if (pending_.put(header, std::move(payload))) return;
  refuse(header, data::Code::kInvalid,
         fmt::format("too many requests, of worker {} or of all workers, wait for the worker with "
                     "rank 0 to create keys and chunks or for a member to set the optimizer",
                     header.worker));
}

void Shard::retry_registrations() {
  data::Header registrations;
  registrations.type = data::Type::kRegister;
  retry(pending_.take(registrations));
}

void Shard::retry(std::vector<PendingRequests::Frame> frames) {
  for (auto& frame : frames) handle(frame.header, std::move(frame.payload), Time{});
}

void Shard::answer(const data::Header& to, data::Type type,
                   std::shared_ptr<const Payload> payload) {
  data::Header header = to;
  header.type = type;
  header.flags &= static_cast<std::uint8_t>(~data::kShared);
  header.payload = payload ? static_cast<std::uint32_t>(payload->size()) : 0;
  answers_.answer(to.worker, header, std::move(payload));
}

/// Answers with the chunk's value: written to shared memory if the worker named a place there, else
/// sent.
void Shard::answer_value(const data::Header& to, const SharedBuffers& shared, Chunk& chunk,
                         bool is_there) {
  if (!shared.out) {
    const auto value = chunk.value.present();
    if (!has_lost_device()) answer(to, data::Type::kValue, value);
    return;
  }
  if (!is_there) chunk.value.write_to(shared);
  if (has_lost_device()) return;
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
