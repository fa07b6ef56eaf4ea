#include "kvstore/server/restoring.h"

namespace dt::kv {

void Restoring::ask(const data::Header& header) {
  const auto& key = options_.restore->keys()[header.key.value];
  if (header.dtype != key.dtype)
    return answers_.refuse(header, data::Code::kMismatch,
                           "key '{}' is of another dtype in the checkpoint", key.name);
  const auto [chunk, is_first] = waiting_.try_emplace({header.key, header.chunk});
  std::erase_if(chunk->second, [&](const auto& h) { return h.worker == header.worker; });
  chunk->second.push_back(header);
  if (!is_first) return;
  auto work = [this, restore = options_.restore, header]() -> std::function<void()> {
    auto slice = std::make_shared<Result<RestoredSlice>>(
        restore->load(header.key, header.step, header.samples));
    return [this, header, slice] { on_read(header, std::move(*slice)); };
  };
  if (options_.offload) return options_.offload(std::move(work));
  work()();
}

void Restoring::on_read(const data::Header& asked, Result<RestoredSlice> slice) {
  const auto waiting = std::move(waiting_.extract({asked.key, asked.chunk}).mapped());
  const auto& key = options_.restore->keys()[asked.key.value];
  const bool is_part = asked.samples <= key.count && asked.step <= key.count - asked.samples;
  if (!slice && is_part && options_.on_damage) return options_.on_damage(slice.error().message);
  const bool is_auxiliary = (key.flags & data::kAuxiliary) != 0;
  const std::string why =
      slice ? chunks_.add(asked, is_auxiliary, std::move(*slice)) : slice.error().message;
  if (context_.has_lost_device()) return;
  for (const auto& header : waiting) {
    const bool is_same = header.samples == asked.samples && header.step == asked.step;
    if (why.empty() || (!slice && !is_same))  // another part of the key may be there
      again_(header);
    else
      answers_.refuse(header, {data::Code::kInvalid, why});
  }
}

void Restoring::disconnect(WorkerId worker) {
  for (auto& [chunk, waiting] : waiting_)
    std::erase_if(waiting, [&](const auto& header) { return header.worker == worker; });
}

}  // namespace dt::kv
