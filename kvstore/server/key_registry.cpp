#include "kvstore/server/key_registry.h"

#include <algorithm>
#include <utility>

#include "kvstore/compute/reduce.h"
#include "kvstore/protocol/layout.h"

namespace dt::kv {

namespace {

/// A table of all keys has to fit into an answer.
constexpr std::size_t kMaxTable = data::kMaxPayload - 64;
constexpr std::size_t kMaxKeys = kMaxChunks / 4;
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 40;

std::string describe(const data::KeySpec& key) {
  return fmt::format("{} elements of {}{}{}", key.count, name_of(key.dtype),
                     key.flags & data::kAuxiliary ? ", auxiliary" : "",
                     key.flags & data::kTransient ? ", transient" : "");
}

std::string origin(std::optional<WorkerId> creator) {
  return creator ? fmt::format(", from worker {}", *creator) : std::string();
}

/// The least number of chunks of a key, whatever their size.
std::size_t chunks_of(const data::KeySpec& key) {
  return 1 + key.count * data::element_bytes(key.dtype) / Layout::kDefaultChunkBytes;
}

/// Why a key that a worker registers is invalid; empty: it is valid.
std::string refusal(const data::KeySpec& key) {
  const auto name = std::string_view(key.name).substr(0, 100);
  if (!is_supported(key.dtype))
    return fmt::format("key '{}': float32, float64 and int64 keys are supported, not dtype {}",
                       name, static_cast<int>(key.dtype));
  if ((key.flags & ~(data::kAuxiliary | data::kTransient)) != 0)
    return fmt::format("key '{}': unknown flags {:#x}", name, static_cast<int>(key.flags));
  if (key.count > kMaxElements)
    return fmt::format("key '{}': {} elements are too many", name, key.count);
  return {};
}

}  // namespace

tl::expected<bool, data::Failure> KeyRegistry::add(const data::RegisterKeys& wanted,
                                                   WorkerId worker, const Members& members,
                                                   bool first_is_at_barrier) {
  const auto failed = [](data::Code code, std::string why) {
    return tl::unexpected(data::Failure{code, std::move(why)});
  };
  const data::KeySpec* missing = nullptr;
  for (const auto& key : wanted.keys) {
    if (auto wrong = refusal(key); !wrong.empty())
      return failed(data::Code::kInvalid, std::move(wrong));
    auto it = index_.find(key.name);
    if (it == index_.end() && members.is_first(worker)) {
      if (!has_room_for(key))
        return failed(data::Code::kInvalid,
                      fmt::format("key '{}': too many keys or elements, or too long names",
                                  std::string_view(key.name).substr(0, 100)));
      it = create(key, worker);
    }
    if (it == index_.end()) {
      if (!missing) missing = &key;
      continue;
    }
    const std::size_t id = it->second;
    if (keys_[id] != key)
      return failed(data::Code::kMismatch,
                    fmt::format("key '{}' has {}{}; worker {} wants {}", key.name,
                                describe(keys_[id]), origin(creators_[id]), worker, describe(key)));
    if (is_compared_ || (key.flags & data::kAuxiliary) != 0) continue;
    auto& has = has_[worker];
    has.resize(std::max(has.size(), id + 1));
    has[id] = true;
  }
  if (!missing) return true;
  if (auto why = never_created(missing->name, worker, members, first_is_at_barrier); !why.empty())
    return failed(data::Code::kMismatch, std::move(why));
  return false;
}

bool KeyRegistry::has_room_for(const data::KeySpec& key) const {
  return keys_.size() < kMaxKeys && chunks_ + chunks_of(key) <= kMaxChunks &&
         bytes_ + wire::body_of(key).size() <= kMaxTable;
}

KeyRegistry::Index::iterator KeyRegistry::create(const data::KeySpec& key,
                                                 std::optional<WorkerId> creator) {
  bytes_ += wire::body_of(key).size();
  chunks_ += chunks_of(key);
  keys_.push_back(key);
  creators_.push_back(creator);
  return index_.emplace(key.name, keys_.size() - 1).first;
}

data::KeyTable KeyRegistry::table(std::uint32_t known) const {
  data::KeyTable table;
  table.from = std::min(known, static_cast<std::uint32_t>(keys_.size()));
  table.keys.assign(keys_.begin() + table.from, keys_.end());
  return table;
}

std::string KeyRegistry::never_created(const std::string& key, WorkerId worker,
                                       const Members& members, bool first_is_at_barrier) const {
  if (!members.contains(worker)) return {};  // nobody waits for a newcomer
  const WorkerId first = members.contributors().front();
  if (!first_is_at_barrier && !arrived_.contains(first)) return {};
  std::string why = fmt::format(
      "key '{}': worker {} initialises it, and worker {}, which has rank 0, waits at the {} "
      "without it",
      key, worker, first, first_is_at_barrier ? "barrier" : "epoch boundary");
  if (const auto* other = lack_of(worker, first))
    why += fmt::format("; it has '{}', which worker {} has not", *other, worker);
  return why + ": all workers initialise the same keys";
}

const std::string* KeyRegistry::lack_of(WorkerId worker, WorkerId first) const {
  const auto mine = has_.find(worker);
  const auto wanted = has_.find(first);
  if (mine == has_.end() || wanted == has_.end()) return nullptr;
  for (std::size_t i = 0; i < wanted->second.size(); ++i) {
    const bool is_there = i < mine->second.size() && mine->second[i];
    if (wanted->second[i] && !is_there) return &keys_[i].name;
  }
  return nullptr;
}

void KeyRegistry::end_epoch(const std::vector<WorkerId>& workers) {
  arrived_.clear();
  if (is_compared_) return;
  is_compared_ = true;
  for (const WorkerId worker : workers)
    if (const auto* key = lack_of(worker, workers.front()))
      lacks_[worker] = fmt::format(
          "key '{}': worker {}, which had rank 0, has initialised it before the first epoch "
          "boundary, and worker {} has not: all workers initialise the same keys",
          *key, workers.front(), worker);
  has_.clear();
}

std::string KeyRegistry::lack_of(WorkerId worker) const {
  const auto found = lacks_.find(worker);
  return found == lacks_.end() ? std::string() : found->second;
}

}  // namespace dt::kv
