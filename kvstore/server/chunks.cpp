#include "kvstore/server/chunks.h"

#include <algorithm>

#include "core/base/quantity.h"

namespace dt::kv {

namespace {

std::uint64_t number_of(const data::Header& header) {
  return (static_cast<std::uint64_t>(header.key.value) << 32) | header.chunk;
}
KeyId key_of(std::uint64_t number) { return KeyId(static_cast<std::uint32_t>(number >> 32)); }

/// Why the device cannot hold `value`, which is for the frame's chunk; empty: it can.
std::string failure_of(const data::Header& header, ChunkValue& value) {
  const auto why = value.failure();
  if (why.empty()) return {};
  return fmt::format("chunk {} of key {}, {} elements of {}: {}", header.chunk, header.key,
                     header.samples, name_of(header.dtype), why);
}

/// Why a request cannot be for the chunk's optimizer state; empty: it can.
std::string state_refusal(const std::optional<OptimizerSpec>& optimizer, const Chunk& chunk,
                          const data::Header& header) {
  if (!chunk.value.is_parameter()) return "an auxiliary or integer key has no optimizer state";
  if (!optimizer) return "no optimizer was set: there is no state of it";
  const unsigned wanted = header.flags & data::kSecondState ? 2 : 1;
  if (wanted > states_of(*optimizer))
    return fmt::format("the optimizer '{}' has {}, not a state {}", to_string(*optimizer),
                       count_text(states_of(*optimizer), "state"), wanted);
  return {};
}

}  // namespace

Chunks::Chunks(ShardContext& context, Answers& answers) : context_(context), answers_(answers) {
  if (context_.device) context_.device->on_no_memory([this] { return make_room(); });
}

Chunks::~Chunks() {
  if (context_.device) context_.device->on_no_memory({});
}

Chunk* Chunks::find(const data::Header& header) {
  // A frame is looked up when it begins, when it takes memory and when it is handled.
  const Number number = number_of(header);
  if (!last_found_ || last_number_ != number) {
    const auto it = all_.find(number);
    if (it == all_.end()) return nullptr;
    last_number_ = number;
    last_found_ = &it->second;
  }
  return last_found_;
}

Payload Chunks::take(const data::Header& header) {
  const bool is_plain = contributes(header.type) && data::codec_of(header) == data::Codec::kNone;
  Chunk* chunk = is_plain ? find(header) : nullptr;
  return chunk ? chunk->value.take(header.payload) : context_.pool->take(header.payload);
}

std::string Chunks::add(const data::Header& header, bool is_auxiliary, RestoredSlice slice) {
  ChunkValue value(context_, header.dtype, is_auxiliary, header.samples,
                   std::move(slice.arrays[0]));
  value.restore(std::move(slice));
  auto why = failure_of(header, value);
  const bool is_transient = (header.flags & data::kTransient) != 0;
  if (why.empty()) all_.try_emplace(number_of(header), std::move(value), is_transient);
  return why;
}

void Chunks::answer_state(const data::Header& header) {
  Chunk* chunk = find(header);
  const auto wrong = chunk ? state_refusal(context_.optimizer, *chunk, header)
                           : "the state of a chunk that was not created";
  if (!wrong.empty()) return answers_.refuse(header, {data::Code::kInvalid, wrong});
  const auto state = chunk->value.state((header.flags & data::kSecondState) != 0);
  if (context_.has_lost_device()) return;
  data::Header at = header;
  at.step = chunk->value.updates();
  answers_.reply(at, data::Type::kValue, state);
}

void Chunks::set_state(const data::Header& header, Payload payload, bool is_first) {
  Chunk& chunk = *find(header);  // check() has found it
  auto wrong = state_refusal(context_.optimizer, chunk, header);
  const bool is_taken = is_first && chunk.value.may_set_state() && header.step > 0;
  if (wrong.empty() && is_taken && chunk.value.has_contributions())
    wrong = "others have pushed already: set the state before the first epoch_boundary";
  if (!wrong.empty()) return answers_.refuse(header, {data::Code::kInvalid, wrong});
  if (is_taken)
    chunk.value.set_state((header.flags & data::kSecondState) != 0, std::move(payload),
                          header.step);
  wrong = failure_of(header, chunk.value);
  if (context_.has_lost_device()) return;
  if (!wrong.empty()) return answers_.refuse(header, {data::Code::kInvalid, wrong});
  answers_.reply(header, data::Type::kDone);
}

std::vector<data::ChunkRound> Chunks::rounds() const {
  std::vector<data::ChunkRound> out;
  for (const auto& [number, chunk] : all_)
    out.push_back({key_of(number), static_cast<std::uint32_t>(number), chunk.rounds.open()});
  return out;
}

SavedLoop Chunks::save() {
  SavedLoop saved;
  if (context_.device) {
    context_.device->wait();
    saved.device = context_.device->number();
    saved.guard = std::make_shared<std::mutex>();
    saved_guard_ = saved.guard;
    saved_.clear();
  }
  saved.step = context_.step;
  if (context_.optimizer) saved.optimizer = to_string(*context_.optimizer);
  saved.chunks.reserve(all_.size());
  for (const auto& [number, chunk] : all_) {
    if (chunk.is_transient) continue;
    SavedChunk one = chunk.value.save();
    one.key = key_of(number);
    one.chunk = static_cast<std::uint32_t>(number);
    for (const auto& array : one.arrays)
      if (array && array->memory() == Memory::kDevice) saved_.emplace_back(array);
    saved.chunks.push_back(std::move(one));
  }
  std::ranges::sort(saved.chunks, {},
                    [](const auto& one) { return std::pair(one.key, one.chunk); });
  return saved;
}

bool Chunks::make_room() {
  const auto guard = saved_guard_.lock();
  if (!guard || saved_.empty()) return false;
  for (auto& [number, chunk] : all_) chunk.value.leave_saved(*guard);
  for (const auto& kept : std::exchange(saved_, {})) {
    // No chunk references it any more; only this thread changes the count.
    const auto array = std::const_pointer_cast<Payload>(kept.lock());
    if (array && array->memory() == Memory::kDevice)
      context_.device->give(context_.device->swap_out(*array, *guard));
  }
  return true;
}

}  // namespace dt::kv
