// The waits of workers in a shard's open rounds.
#include <algorithm>
#include <map>

#include "kvstore/server/shard.h"

namespace dt::kv {

void Shard::add_debts(std::set<WorkerId>& owing, std::set<WorkerId>& waiting) const {
  constexpr std::size_t kLookedAt = 16;
  for (std::size_t i = 0; i < std::min(open_.size(), kLookedAt); ++i)
    open_[i]->rounds.add_missing(members_, owing);
  barrier_.add_missing(members_, owing);
  // All of these are needed: a worker that waits for others does not owe a contribution.
  for (const Chunk* chunk : open_)
    for (const auto& one : chunk->waiting) waiting.insert(one.header.worker);
  for (const data::Header& one : at_barrier_) waiting.insert(one.worker);
  // What is pending waits for the first contributor.
  pending_.each([&](const data::Header& one) {
    if (!members_.contains(one.worker)) return;
    waiting.insert(one.worker);
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

std::vector<WaitingFor> Shard::waits() const {
  struct Place {
    KeyId key;
    const RoundMachine* rounds;  ///< Null: it waits for the first contributor.
  };
  std::map<WorkerId, Place> lowest;
  const auto add = [&](WorkerId worker, KeyId key, const RoundMachine* rounds) {
    if (!members_.contains(worker)) return;
    const auto [place, is_new] = lowest.try_emplace(worker, Place{key, rounds});
    if (!is_new && key < place->second.key) place->second = {key, rounds};
  };
  for (const Chunk* chunk : open_)
    for (const auto& one : chunk->waiting) add(one.header.worker, one.header.key, &chunk->rounds);
  for (const data::Header& one : at_barrier_) add(one.worker, WaitingFor::kNoKey, &barrier_);
  pending_.each([&](const data::Header& one) {
    add(one.worker, one.type == data::Type::kInit ? one.key : WaitingFor::kNoKey, nullptr);
  });
  std::vector<WaitingFor> out;
  for (const auto& [worker, place] : lowest) out.push_back({worker, place.key, {}, 0});
  choose_waits(out);
  for (WaitingFor& one : out) {
    std::set<WorkerId> missing;
    if (const auto* rounds = lowest.at(one.worker).rounds)
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
