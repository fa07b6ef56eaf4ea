// A shard's pushes and pulls: from a frame to its round and its answers.
#include <algorithm>

#include "kvstore/server/shard.h"

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

void Shard::on_push(const data::Header& header, Payload payload, SharedBuffers shared, Time now) {
  Chunk* found = chunks_.find(header);
  DT_CHECK(found, "check() lets no push through to a chunk that does not exist");
  Chunk& chunk = *found;
  if (const auto why = ChunkValue::refusal(header, payload); !why.empty())
    return answers_.refuse(header, {data::Code::kInvalid, why});
  if (header.flags & data::kAsync) return on_async_push(chunk, header, std::move(payload), shared);
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

void Shard::on_async_push(Chunk& chunk, const data::Header& header, Payload payload,
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

void Shard::note_arrival(Chunk& chunk, WorkerId worker, bool is_last, Time now) {
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
bool Shard::is_gone(const Chunk& chunk, const data::Header& push) const {
  const bool is_last = push.round.next() == chunk.rounds.open();
  const bool is_state =
      chunk.value.is_auxiliary() || (context_.optimizer && chunk.value.is_parameter());
  const bool wants_sum = push.type == data::Type::kPushPull && !failure_of(chunk, push);
  return wants_sum && !is_last && !is_state;
}

// ---------------------------------------------------------------- rounds

void Shard::close(Chunk& chunk) {
  open_.back()->open_at = chunk.open_at;
  open_[chunk.open_at] = open_.back();
  open_.pop_back();
}

void Shard::complete(Chunk& chunk) {
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

// ---------------------------------------------------------------- answers

void Shard::on_pull(const data::Header& header, const SharedBuffers& shared) {
  if (Chunk* chunk = chunks_.find(header)) return answer_value(*chunk, header, shared, false);
  answers_.refuse(header, data::Code::kInvalid, "pull of a chunk that was not created");
}

void Shard::answer_push(Chunk& chunk, const data::Header& header, const SharedBuffers& shared,
                        bool is_there) {
  if (const auto* why = failure_of(chunk, header)) return answers_.refuse(header, *why);
  if (header.type == data::Type::kPush) return answers_.reply(header, data::Type::kDone);
  answer_value(chunk, header, shared, is_there);
}

void Shard::answer_value(Chunk& chunk, const data::Header& header, const SharedBuffers& shared,
                         bool is_there) {
  std::shared_ptr<const Payload> value;
  if (!shared.out)
    value = chunk.value.present();
  else if (!is_there)
    chunk.value.write_to(shared);
  if (!context_.has_lost_device()) answers_.reply(header, data::Type::kValue, std::move(value));
}

void Shard::admission_failed(const data::Header& to, Admission why, const RoundMachine& rounds) {
  if (why == Admission::kFenced) {
    ++fenced_;
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

}  // namespace dt::kv
