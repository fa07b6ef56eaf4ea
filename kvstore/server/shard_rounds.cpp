#include "kvstore/server/shard_rounds.h"

#include <algorithm>

namespace dt::kv {

namespace {

void wait_for_round(Chunk& chunk, const data::Header& header, const SharedBuffers& shared) {
  std::erase_if(chunk.waiting, [&](const auto& w) { return w.header.worker == header.worker; });
  chunk.waiting.push_back({header, shared});
}

/// Why the worker's contribution to a round is refused; null: it is not.
const data::Failure* failure_of(const Chunk& chunk, const data::Header& header) {
  if (chunk.failed && chunk.failed->first == header.round) return &chunk.failed->second;
  const auto found = std::ranges::find_if(chunk.refused, [&](const Chunk::Refused& r) {
    return r.worker == header.worker && r.round == header.round;
  });
  return found == chunk.refused.end() ? nullptr : &found->why;
}

}  // namespace

// ---------------------------------------------------------------- contributions

void Rounds::push(Chunk* to, const data::Header& header, Payload payload, SharedBuffers shared,
                  Time now) {
  DT_CHECK(to, "check() lets no push through to a chunk that does not exist");
  Chunk& chunk = *to;
  if (const auto why = ChunkValue::refusal(header, payload); !why.empty())
    return answers_.refuse(header, {data::Code::kInvalid, why});
  if (header.flags & data::kAsync) return async_push(chunk, header, std::move(payload), shared);
  const auto admission =
      chunk.rounds.admit(members_, header.worker, header.generation, header.round);
  if (admission != Admission::kCounted) {
    context_.pool->give(std::move(payload));
    if (admission == Admission::kDuplicate) return wait_for_round(chunk, header, shared);
    if (admission != Admission::kPast) return admission_failed(header, admission, chunk.rounds);
    if (!is_gone(chunk, header)) return answer_push(chunk, header, shared, false);
    return answers_.refuse(header, data::Code::kInvalid,
                           "the sum of round {} is gone: worker {}'s connection broke before it "
                           "got it, and it had finished its epoch, so that round {} is open now",
                           header.round, header.worker, chunk.rounds.open());
  }
  if (!chunk.value.has_contributions()) open(chunk);
  wait_for_round(chunk, header, shared);
  auto counted = header;
  if (auto bad = chunk.value.nonfinite_in(header, payload, shared); !bad.empty()) {
    counted.samples = 0;
    chunk.refuse(header, data::Code::kNonfinite, std::move(bad));
  }
  const bool is_last = chunk.rounds.is_complete(members_);
  note_arrival(chunk, header.worker, is_last, now);
  chunk.value.contribute(counted, std::move(payload), std::move(shared), is_last);
  if (!is_last && context_.deterministic)
    chunk.value.add_in_order(chunk.rounds.lowest_missing(members_));
  if (!is_last) return;
  close(chunk);
  complete(chunk);
}

void Rounds::async_push(Chunk& chunk, const data::Header& header, Payload payload,
                        const SharedBuffers& shared) {
  const auto admission =
      chunk.rounds.admit_async(members_, header.worker, header.generation, header.round);
  bool is_there = false;
  if (admission == Admission::kCounted) {
    std::erase_if(chunk.refused, [&](const auto& r) { return r.worker == header.worker; });
    if (auto bad = chunk.value.nonfinite_in(header, payload, shared); !bad.empty()) {
      chunk.refuse(header, data::Code::kNonfinite, std::move(bad));
      context_.pool->give(std::move(payload));
    } else {
      is_there = chunk.value.apply_async(header, std::move(payload), shared);
    }
    if (auto failure = chunk.value.failure(); !failure.empty())
      chunk.refuse(header, data::Code::kMismatch, std::move(failure));
  } else {
    context_.pool->give(std::move(payload));
  }
  if (context_.has_lost_device()) return;
  if (admission == Admission::kCounted || admission == Admission::kPast)
    return answer_push(chunk, header, shared, is_there);
  admission_failed(header, admission, chunk.rounds);
}

void Rounds::note_arrival(Chunk& chunk, WorkerId worker, bool is_last, Time now) {
  constexpr int kPartOfRound = 20;
  if (is_last && chunk.rounds.counted() > 1) {
    ++late_.rounds;
    if ((now - chunk.arrived_at) * kPartOfRound > now - chunk.completed_at) ++late_.late[worker];
  }
  chunk.arrived_at = now;
  if (is_last) chunk.completed_at = now;
}

/// Rounds go on without a worker that has finished its epoch; only then can a resent request name a
/// round before the last one. The sum of such a round is gone; for weights the present value
/// serves, which the worker would pull next.
bool Rounds::is_gone(const Chunk& chunk, const data::Header& push) const {
  const bool is_last = push.round.next() == chunk.rounds.open();
  const bool is_state =
      chunk.value.is_auxiliary() || (context_.optimizer && chunk.value.is_parameter());
  const bool wants_sum = push.type == data::Type::kPushPull && !failure_of(chunk, push);
  return wants_sum && !is_last && !is_state;
}

// ---------------------------------------------------------------- rounds

void Rounds::complete(Chunk& chunk) {
  const Round round = chunk.rounds.open();
  places_.clear();
  for (const auto& [header, shared] : chunk.waiting)
    if (shared.out && !failure_of(chunk, header)) places_.push_back(shared.out);
  auto applied = chunk.value.apply(places_);
  if (context_.has_lost_device()) return chunk.waiting.clear();
  chunk.failed.reset();
  if (!applied.wrong.empty())
    chunk.failed.emplace(round, data::Failure{data::Code::kMismatch, std::move(applied.wrong)});
  chunk.rounds.advance();
  auto& waiting = answering_;
  waiting.swap(chunk.waiting);
  for (const auto& [request, shared] : waiting)
    answer_push(chunk, request, shared, applied.is_there);
  waiting.clear();
  waiting.swap(chunk.waiting);  // its memory serves the next round
  std::erase_if(chunk.refused, [round](const auto& r) { return r.round < round; });
}

void Rounds::recheck(bool epoch_ends) {
  for (Chunk* chunk : std::exchange(open_, {})) {
    if (epoch_ends || chunk->rounds.is_complete(members_))
      complete(*chunk);
    else
      open(*chunk);
  }
  complete_barrier(epoch_ends);
}

void Rounds::disconnect(WorkerId worker) {
  for (Chunk* chunk : open_) {
    std::erase_if(chunk->waiting, [&](const auto& w) { return w.header.worker == worker; });
    chunk->value.detach(worker);
  }
}

// ---------------------------------------------------------------- the barrier

void Rounds::enter_barrier(const data::Header& header) {
  const auto admission = barrier_.admit(members_, header.worker, header.generation, header.round);
  if (admission == Admission::kPast) return answers_.reply(header, data::Type::kDone);
  if (admission != Admission::kCounted && admission != Admission::kDuplicate)
    return admission_failed(header, admission, barrier_);
  std::erase_if(at_barrier_, [&](const auto& at) { return at.worker == header.worker; });
  at_barrier_.push_back(header);
  complete_barrier(false);
}

void Rounds::complete_barrier(bool epoch_ends) {
  const bool is_due = epoch_ends ? barrier_.counted() > 0 : barrier_.is_complete(members_);
  if (!is_due) return;
  barrier_.advance();
  for (const auto& request : std::exchange(at_barrier_, {}))
    answers_.reply(request, data::Type::kDone);
}

// ---------------------------------------------------------------- answers

void Rounds::answer_push(Chunk& chunk, const data::Header& header, const SharedBuffers& shared,
                         bool is_there) {
  if (const auto* why = failure_of(chunk, header)) return answers_.refuse(header, *why);
  if (header.type == data::Type::kPush) return answers_.reply(header, data::Type::kDone);
  answer_value(chunk, header, shared, is_there);
}

void Rounds::answer_value(Chunk& chunk, const data::Header& header, const SharedBuffers& shared,
                          bool is_there) {
  std::shared_ptr<const Payload> value;
  if (!shared.out)
    value = chunk.value.present();
  else if (!is_there)
    chunk.value.write_to(shared);
  if (!context_.has_lost_device()) answers_.reply(header, data::Type::kValue, std::move(value));
}

void Rounds::admission_failed(const data::Header& to, Admission why, const RoundMachine& rounds) {
  if (why == Admission::kFenced) {
    ++context_.fenced;
    return answers_.refuse(to, data::Code::kFenced,
                           "worker {} is not a member (generation {}): it was removed, or has "
                           "not joined at an epoch boundary yet",
                           to.worker, members_.generation());
  }
  if (why == Admission::kMissed)
    return answers_.refuse(to, data::Code::kInvalid,
                           "round {} was completed without worker {}, which had finished its "
                           "epoch: call epoch_boundary before the next push",
                           to.round, to.worker);
  if (to.flags & data::kAsync)
    return answers_.refuse(to, data::Code::kInvalid,
                           "worker {} says that this is its push {} to the chunk: some before it "
                           "are missing",
                           to.worker, to.round);
  answers_.refuse(to, data::Code::kInvalid, "worker {} pushes round {} while round {} is open",
                  to.worker, to.round, rounds.open());
}

// ---------------------------------------------------------------- who waits

template <class F>
void Rounds::each_waiting(const PendingRequests& pending, F f) const {
  for (const Chunk* chunk : open_)
    for (const auto& one : chunk->waiting) f(one.header, &chunk->rounds);
  for (const data::Header& one : at_barrier_) f(one, &barrier_);
  const RoundMachine* none = nullptr;
  pending.each([&](const data::Header& one) {
    if (members_.contains(one.worker)) f(one, none);
  });
}

void Rounds::add_debts(const PendingRequests& pending, std::set<WorkerId>& owing,
                       std::set<WorkerId>& waiting) const {
  constexpr std::size_t kLookedAt = 16;
  for (std::size_t i = 0; i < std::min(open_.size(), kLookedAt); ++i)
    open_[i]->rounds.add_missing(members_, owing);
  barrier_.add_missing(members_, owing);
  // All of these are needed: a worker that waits for others does not owe a contribution.
  each_waiting(pending, [&](const data::Header& one, const RoundMachine* rounds) {
    waiting.insert(one.worker);
    if (rounds) return;
    const WorkerId first = members_.contributors().front();
    if (!members_.is_finished(first)) owing.insert(first);
  });
}

void choose_waits(std::vector<WaitingFor>& waits) {
  if (waits.size() <= kMostWaits) return;
  std::set<KeyId> seen;
  std::ranges::stable_partition(
      waits, [&seen](const WaitingFor& one) { return seen.insert(one.key).second; });
  waits.resize(kMostWaits);
}

std::vector<WaitingFor> Rounds::waits(const PendingRequests& pending) const {
  std::map<WorkerId, std::pair<KeyId, const RoundMachine*>> lowest;
  each_waiting(pending, [&](const data::Header& one, const RoundMachine* rounds) {
    if (!members_.contains(one.worker)) return;
    const bool has_key = one.type == data::Type::kInit || contributes(one.type);
    const std::pair place(has_key ? one.key : WaitingFor::kNoKey, rounds);
    auto& known = lowest.try_emplace(one.worker, place).first->second;
    if (place.first < known.first) known = place;
  });
  std::vector<WaitingFor> out;
  for (const auto& [worker, place] : lowest) out.push_back({worker, place.first, {}, 0});
  choose_waits(out);
  for (WaitingFor& one : out) {
    std::set<WorkerId> missing;
    if (const auto* rounds = lowest.at(one.worker).second)
      rounds->add_missing(members_, missing);
    else
      missing.insert(members_.contributors().front());
    if (missing.empty()) continue;
    one.lacks = *missing.begin();
    one.more = static_cast<std::uint32_t>(missing.size() - 1);
  }
  return out;
}

}  // namespace dt::kv
