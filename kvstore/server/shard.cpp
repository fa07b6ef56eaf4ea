#include "kvstore/server/shard.h"

#include <algorithm>

#include "kvstore/compute/compression.h"
#include "kvstore/compute/reduce.h"

namespace dt::kv {

using data::Type;

Shard::Shard(ShardOptions options, Answers& answers)
    : options_(std::move(options)),
      answers_(answers),
      context_(options_),
      chunks_(context_, answers),
      restoring_(options_, context_, chunks_, answers,
                 [this](const auto& header) { on_init(header, {}); }),
      rounds_(context_, members_, answers),
      pending_(options_.pending),
      held_(options_.max_held_bytes) {
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

Result<void> Shard::check(const data::Header& header) {
  constexpr std::uint32_t kMaxText = std::uint32_t{16} << 20;
  constexpr std::uint32_t kMaxOptimizerText = 4096;
  std::size_t least = 0;
  std::size_t most = 0;
  switch (header.type) {
    case Type::kRegister:
      most = kMaxText;
      break;
    case Type::kSetOptimizer:
      most = kMaxOptimizerText;
      break;
    case Type::kInit:
      if (header.samples > data::kMaxPayload / data::element_bytes(header.dtype))
        return fail(ErrorKind::kProtocol, "a chunk of {} elements is too large", header.samples);
      if (header.payload != 0) least = most = header.samples * data::element_bytes(header.dtype);
      break;
    case Type::kPush:
    case Type::kPushPull: {
      const ChunkValue* value = chunks_.value_of(header);
      if (!value || value->dtype() != header.dtype)
        return fail(ErrorKind::kProtocol, "a push to a chunk that does not exist here");
      const data::Codec codec = data::codec_of(header);
      if (codec != data::Codec::kNone && !is_compressible(value->dtype(), value->is_auxiliary()))
        return fail(ErrorKind::kProtocol, "a compressed push to a chunk that takes none");
      least = most = header.flags & data::kShared  ? sizeof(data::SharedPlaces)
                     : codec == data::Codec::kNone ? value->bytes()
                                                   : compressed_bytes(codec, value->elements());
      break;
    }
    case Type::kInitState: {
      const ChunkValue* value = chunks_.value_of(header);
      if (!value || value->dtype() != header.dtype)
        return fail(ErrorKind::kProtocol, "a state of a chunk that does not exist here");
      least = most = value->bytes();
      break;
    }
    case Type::kPull:
      if (header.flags & data::kShared) least = most = sizeof(data::SharedPlaces);
      break;
    case Type::kPullState:
    case Type::kFinish:
    case Type::kBarrier:
    case Type::kSync:
    case Type::kBeat:
      break;
    default:
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
  const bool takes_part =
      contributes(header.type) || header.type == Type::kBarrier || header.type == Type::kFinish;
  return takes_part && header.generation > members_.generation();
}

void Shard::handle(const data::Header& header, Payload payload, Time now, SharedBuffers shared) {
  if (is_early(header))
    return held_.hold({now + options_.hold_limit, header, std::move(payload), std::move(shared)});
  switch (header.type) {
    case Type::kRegister:
      return on_register(header, std::move(payload));
    case Type::kInit:
      return on_init(header, std::move(payload));
    case Type::kPush:
    case Type::kPushPull:
      return rounds_.push(chunks_.find(header), header, std::move(payload), std::move(shared), now);
    case Type::kPull:
      return rounds_.pull(chunks_.find(header), header, shared);
    case Type::kPullState:
      return chunks_.answer_state(header);
    case Type::kInitState:
      return chunks_.set_state(header, std::move(payload), members_.is_first(header.worker));
    case Type::kFinish:
      return on_finish(header);
    case Type::kBarrier:
      return on_barrier(header);
    case Type::kSetOptimizer:
      return on_set_optimizer(header, std::move(payload));
    case Type::kSync:
      return on_sync(header);
    case Type::kBeat:
      return;
    default:
      DT_CHECK(false, "a frame that check() refuses");
  }
}

void Shard::handle_unchecked(const data::Header& header, Payload payload, Time now) {
  if (const auto checked = check(header); !checked)
    return answers_.refuse(header, {data::Code::kInvalid, checked.error().message});
  handle(header, std::move(payload), now);
}

Members::Applied Shard::commit(const ServerCommit& commit, Time now, SavedLoop* saved) {
  const auto applied = members_.apply(commit);
  const bool ends_epoch = applied == Members::Applied::kBoundary;
  if (applied != Members::Applied::kYes && !ends_epoch) return applied;
  recheck(ends_epoch);
  if (const auto& gone = members_.departed(); !gone.empty()) {
    chunks_.forget(gone);
    rounds_.forget(gone);
  }
  if (saved) {
    *saved = chunks_.save();
    saved->keys = keys_.keys();
  }
  retry(pending_.take_all());
  for (auto& frame : held_.take(members_.generation()))
    handle(frame.header, std::move(frame.payload), now, std::move(frame.shared));
  return applied;
}

void Shard::disconnect(WorkerId worker) {
  rounds_.disconnect(worker);
  pending_.forget(worker);
  restoring_.disconnect(worker);
  held_.disconnect(worker);
}

void Shard::expire(Time now) {
  for (const auto& frame : held_.expire(now))
    answers_.refuse(frame.header, data::Code::kUnavailable,
                    "the server did not learn of generation {} in time", frame.header.generation);
}

// ---------------------------------------------------------------- keys and chunks

void Shard::on_register(const data::Header& header, Payload payload) {
  if (!options_.is_registrar)
    return answers_.refuse(header, data::Code::kInvalid, "keys are registered at server 0");
  const auto wanted = wire::parse<data::RegisterKeys>(payload.text());
  if (!wanted) return answers_.refuse(header, {data::Code::kInvalid, wanted.error().message});
  const auto are_there = keys_.add(*wanted, header.worker, members_, rounds_.first_is_at_barrier());
  if (!are_there) return answers_.refuse(header, are_there.error());
  if (!*are_there) return park(header, std::move(payload));
  answers_.reply_with(header, Type::kDone, keys_.table(wanted->known));
  if (members_.is_first(header.worker)) retry(pending_.take(header));
}

void Shard::on_init(const data::Header& header, Payload payload) {
  if (const Chunk* chunk = chunks_.find(header)) {
    const ChunkValue& value = chunk->value;
    const bool same = value.dtype() == header.dtype && value.elements() == header.samples;
    if (!same)
      return answers_.refuse(header, data::Code::kMismatch,
                             "chunk {} has {} elements of {}; worker {} has {} of {}", header.chunk,
                             value.elements(), name_of(value.dtype()), header.worker,
                             header.samples, name_of(header.dtype));
    data::Header at = header;
    at.round = chunk->rounds.open();
    return answers_.reply(at, Type::kDone);
  }
  if (restoring_.has(header.key)) return restoring_.ask(header);
  // Kept without its values: if this worker must provide them, it is asked for them again.
  if (!members_.is_first(header.worker)) return park(header, {});
  const bool has_values = !payload.empty() || header.samples == 0;
  if (!has_values) return answers_.reply(header, Type::kNeedValues);
  if (!is_supported(header.dtype))
    return answers_.refuse(header, data::Code::kInvalid,
                           "float32, float64 and int64 keys are supported");
  if (chunks_.size() >= kMaxChunks)
    return answers_.refuse(header, data::Code::kInvalid, "too many chunks");
  const bool is_auxiliary = (header.flags & data::kAuxiliary) != 0;
  const auto why = chunks_.add(header, is_auxiliary, {{std::move(payload)}});
  if (context_.has_lost_device()) return;
  if (!why.empty()) return answers_.refuse(header, {data::Code::kInvalid, why});
  on_init(header, {});  // the chunk is there
  retry(pending_.take(header));
}

// ---------------------------------------------------------------- rounds and epochs

void Shard::on_finish(const data::Header& header) {
  const Epoch next(static_cast<std::uint32_t>(header.step));
  const bool is_steps = (header.flags & data::kStepsOnly) != 0;
  const auto part = is_steps ? Members::Part::kSteps : Members::Part::kEpoch;
  const bool arrives = (header.flags & data::kAtBoundary) != 0;
  if (arrives && header.round.value == members_.phase()) keys_.arrive(header.worker);
  if (members_.finish(header.worker, header.round.value, next, part)) recheck(false);
  answers_.reply(header, Type::kDone);
  if (arrives && members_.is_first(header.worker)) retry(pending_.take_registrations());
}

void Shard::recheck(bool epoch_ends) {
  rounds_.recheck(epoch_ends);
  const std::uint64_t phase = members_.phase();
  std::vector<WorkerId> workers = members_.contributors();
  if (epoch_ends) {
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
    return answers_.refuse(header, data::Code::kInvalid, "the barrier is at server 0");
  rounds_.enter_barrier(header);
  if (members_.is_first(header.worker)) retry(pending_.take_registrations());
}

void Shard::on_sync(const data::Header& header) {
  if (const auto lack = keys_.lack_of(header.worker); !lack.empty())
    return answers_.refuse(header, {data::Code::kMismatch, lack});
  answers_.reply_with(header, Type::kDone,
                      data::SyncState{members_.generation(), members_.phase(), rounds_.barrier(),
                                      chunks_.rounds()});
}

void Shard::on_set_optimizer(const data::Header& header, Payload payload) {
  const bool checks_only = (header.flags & data::kCheckOnly) != 0;
  auto& present = context_.optimizer;
  if (checks_only && payload.empty())
    return answers_.reply(header, Type::kDone,
                          std::make_shared<Payload>(present ? to_string(*present) : ""));
  const auto spec = parse_optimizer(payload.text());
  if (!spec) return answers_.refuse(header, {data::Code::kInvalid, spec.error().message});
  if (present == *spec) return answers_.reply(header, Type::kDone);
  const bool is_member = members_.contains(header.worker);
  if (!present && !is_member) return park(header, std::move(payload));
  const bool may_replace = is_member && !context_.has_state && optimizer_by_ == header.worker;
  if (present && !may_replace)
    return answers_.refuse(header, data::Code::kMismatch,
                           "the optimizer is '{}'; worker {} asks for '{}'", to_string(*present),
                           header.worker, to_string(*spec));
  if (!rounds_.is_between_rounds())
    return answers_.refuse(header, data::Code::kInvalid,
                           "worker {} sets the optimizer in the middle of a round, when others "
                           "have pushed without it: set it before the first push",
                           header.worker);
  if (checks_only) return answers_.reply(header, Type::kDone);
  present = *spec;
  optimizer_by_ = header.worker;
  answers_.reply(header, Type::kDone);
  retry(pending_.take(header));
}

// ---------------------------------------------------------------- waiting

void Shard::park(const data::Header& header, Payload payload) {
  if (pending_.put(header, std::move(payload))) return;
  answers_.refuse(header, data::Code::kInvalid,
                  "too many requests, of worker {} or of all workers, wait for the worker with "
                  "rank 0 to create keys and chunks or for a member to set the optimizer",
                  header.worker);
}

void Shard::retry(std::vector<PendingRequests::Frame> frames) {
  for (auto& frame : frames) handle(frame.header, std::move(frame.payload), Time{});
}

}  // namespace dt::kv
