// A shard's pushes and pulls: from a frame to its round and its answers.
#include <algorithm>

#include "kvstore/server/shard.h"

namespace dt::kv {

void Shard::on_push(const data::Header& header, Payload payload, SharedBuffers shared, Time now) {
  Chunk* found = find(header);
  DT_CHECK(found, "check() lets no push through to a chunk that does not exist");
  Chunk& chunk = *found;
  const auto why = ChunkValue::refusal(header, payload);
  if (!why.empty()) return refuse(header, data::Code::kInvalid, why);
  if (header.flags & data::kAsync) return on_async_push(chunk, header, std::move(payload), shared);
  const auto admission =
      chunk.rounds.admit(members_, header.worker, header.generation, header.round);
  switch (admission) {
    case Admission::kCounted: {
      if (!chunk.value.has_contributions()) open(chunk);
      wait_for_round(chunk, header, shared);
      auto counted = header;
      if (auto bad = chunk.value.nonfinite_in(header, payload, shared); !bad.empty()) {
        counted.samples = 0;
        chunk.refused.push_back({header.worker, header.round, std::move(bad)});
      }
      const bool is_last = chunk.rounds.is_complete(members_);
      note_arrival(chunk, header.worker, is_last, now);
      chunk.value.contribute(counted, std::move(payload), std::move(shared), is_last);
      if (!is_last && context_.deterministic)
        chunk.value.add_in_order(chunk.rounds.lowest_missing(members_));
      if (!is_last) return;
      close(chunk);
      return complete(chunk);
    }
    case Admission::kDuplicate:
      context_.pool->give(std::move(payload));
      return wait_for_round(chunk, header, shared);
    case Admission::kPast:
      context_.pool->give(std::move(payload));
      if (chunk.failed && chunk.failed->first == header.round)
        return refuse(header, data::Code::kMismatch, chunk.failed->second);
      if (const Refused* refused = find_refused(chunk, header))
        return refuse(header, data::Code::kNonfinite, refused->why);
      if (header.type == data::Type::kPush) return answer(header, data::Type::kDone);
      if (is_gone(chunk, header.round))
        return refuse(
            header, data::Code::kInvalid,
            fmt::format("the sum of round {} is gone: worker {}'s connection broke before "
                        "it got it, and it had finished its epoch, so that round {} is "
                        "open now",
                        header.round, header.worker, chunk.rounds.open()));
      return answer_value(header, shared, chunk, false);
    case Admission::kHeld:
    case Admission::kFenced:
    case Admission::kMissed:
    case Admission::kAhead:
      context_.pool->give(std::move(payload));
      return admission_failed(header, admission, chunk.rounds);
  }
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
bool Shard::is_gone(const Chunk& chunk, Round round) const {
  const bool is_last = round.next() == chunk.rounds.open();
  const bool is_state =
      chunk.value.is_auxiliary() || (context_.optimizer && chunk.value.is_parameter());
  return !is_last && !is_state;
}

Payload Shard::take(const data::Header& header) {
  const bool contributes = header.type == data::Type::kPush || header.type == data::Type::kPushPull;
  const bool is_plain = contributes && data::codec_of(header) == data::Codec::kNone;
  Chunk* chunk = is_plain ? find(header) : nullptr;
  return chunk ? chunk->value.take(header.payload) : context_.pool->take(header.payload);
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

void Shard::wait_for_round(Chunk& chunk, const data::Header& header, const SharedBuffers& shared) {
  std::erase_if(chunk.waiting, [&](const auto& w) { return w.header.worker == header.worker; });
  chunk.waiting.push_back({header, shared});
}

void Shard::complete(Chunk& chunk) {
  const Round round = chunk.rounds.open();
  places_.clear();
  for (const auto& waiting : chunk.waiting)
    if (waiting.shared.out && !find_refused(chunk, waiting.header))
      places_.push_back(waiting.shared.out);
  auto applied = chunk.value.apply(places_);
  if (has_lost_device()) return chunk.waiting.clear();
  chunk.failed.reset();
  if (!applied.wrong.empty()) chunk.failed.emplace(round, std::move(applied.wrong));
  chunk.rounds.advance();
  auto& waiting = answering_;
  waiting.swap(chunk.waiting);
  for (const auto& [request, shared] : waiting) {
    if (chunk.failed)
      refuse(request, data::Code::kMismatch, chunk.failed->second);
    else if (const Refused* refused = find_refused(chunk, request))
      refuse(request, data::Code::kNonfinite, refused->why);
    else if (request.type == data::Type::kPush)
      answer(request, data::Type::kDone);
    else
      answer_value(request, shared, chunk, applied.is_there);
  }
  waiting.clear();
  waiting.swap(chunk.waiting);  // its memory serves the next round
  std::erase_if(chunk.refused, [round](const Refused& r) { return r.round < round; });
}

const Shard::Refused* Shard::find_refused(const Chunk& chunk, const data::Header& header) {
  const auto found = std::find_if(
      chunk.refused.begin(), chunk.refused.end(),
      [&](const Refused& r) { return r.worker == header.worker && r.round == header.round; });
  return found == chunk.refused.end() ? nullptr : &*found;
}

void Shard::on_async_push(Chunk& chunk, const data::Header& header, Payload payload,
                          const SharedBuffers& shared) {
  const auto admission =
      chunk.rounds.admit_async(members_, header.worker, header.generation, header.round);
  bool is_there = false;
  if (admission == Admission::kCounted) {
    std::erase_if(chunk.refused, [&](const Refused& r) { return r.worker == header.worker; });
    if (auto bad = chunk.value.nonfinite_in(header, payload, shared); !bad.empty()) {
      chunk.refused.push_back({header.worker, header.round, std::move(bad)});
      context_.pool->give(std::move(payload));
    } else {
      is_there = chunk.value.apply_async(header, std::move(payload), shared);
    }
    if (auto failure = chunk.value.failure(); !failure.empty())
      chunk.refused.push_back(
          {header.worker, header.round, std::move(failure), data::Code::kMismatch});
  } else {
    context_.pool->give(std::move(payload));
  }
  if (has_lost_device()) return;
  if (admission == Admission::kAhead)
    return refuse(
        header, data::Code::kInvalid,
        fmt::format("worker {} says that this is its push {} to the chunk: some before it "
                    "are missing",
                    header.worker, header.round));
  if (admission != Admission::kCounted && admission != Admission::kPast)
    return admission_failed(header, admission, chunk.rounds);
  if (const Refused* refused = find_refused(chunk, header))
    return refuse(header, refused->code, refused->why);
  if (header.type == data::Type::kPush) return answer(header, data::Type::kDone);
  answer_value(header, shared, chunk, is_there);
}

void Shard::admission_failed(const data::Header& to, Admission why, const RoundMachine& rounds) {
  if (why == Admission::kFenced) {
    ++fenced_;
    return refuse(to, data::Code::kFenced,
                  fmt::format("worker {} is not a member (generation {}): it was removed, or has "
                              "not joined at an epoch boundary yet",
                              to.worker, members_.generation()));
  }
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
  Chunk* chunk = find(header);
  if (!chunk) return refuse(header, data::Code::kInvalid, "pull of a chunk that was not created");
  answer_value(header, shared, *chunk, false);
}

}  // namespace dt::kv
