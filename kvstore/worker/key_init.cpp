#include "kvstore/worker/key_init.h"

#include <set>
#include <utility>

#include "kvstore/compute/reduce.h"
#include "kvstore/worker/chunk.h"
#include "kvstore/worker/dispatch.h"
#include "kvstore/worker/links/server_links.h"

namespace dt::kv {

namespace {

/// Has a chunk created. The server has its values already, or asks for them.
Request creation(const data::KeySpec& key, ChunkState& chunk) {
  Request request = request_for(chunk, data::Type::kInit, key.dtype);
  request.header.flags = key.flags;
  request.header.samples = chunk.place.count;
  request.header.step = chunk.place.first;
  return request;
}

}  // namespace

Status KeyInit::init(const Keys& keys, const Arrays& values, std::uint8_t flags) {
  data::RegisterKeys wanted;
  wanted.known = keys_.size();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!is_supported(values[i].dtype))
      return store_error(Code::kInvalid,
                         fmt::format("worker {}: key '{}': float32, float64 and int64 values are "
                                     "supported, not {}",
                                     options_.worker, keys[i], name_of(values[i].dtype)));
    wanted.keys.push_back({keys[i], values[i].count, values[i].dtype, flags});
  }
  if (auto done = register_keys(wanted); !done) return done;
  const bool is_lead = member_.is_lead();
  std::vector<Request> requests;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const KeyTable::Key* key = keys_.find(keys[i]);
    if (!key) return store_error(Code::kInternal, "the server's key table lacks a key");
    const std::size_t width = data::element_bytes(key->spec.dtype);
    for (const auto& chunk : key->chunks) {
      Request& request = requests.emplace_back(creation(key->spec, *chunk));
      request.from = static_cast<const std::byte*>(values[i].data) + chunk->place.first * width;
      // The others send theirs only when they are asked to.
      if (is_lead) request.header.payload = static_cast<std::uint32_t>(chunk->bytes);
    }
  }
  return create(std::move(requests));
}

Status KeyInit::learn_all() {
  if (auto done = register_keys({keys_.size(), {}}); !done) return done;
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < keys_.size(); ++i)
    for (const auto& chunk : keys_.at(KeyId(i)).chunks)
      requests.push_back(creation(keys_.at(KeyId(i)).spec, *chunk));
  return create(std::move(requests));
}

Status KeyInit::register_keys(const data::RegisterKeys& wanted) {
  const Request request = request_with(data::Type::kRegister, wire::body_of(wanted));
  if (request.keep->size() > (std::size_t{16} << 20))
    return store_error(Code::kInvalid, "too many keys in one init: split the list");
  const auto answer = links_.ask_first(request, options_.start_limit);
  if (!answer && answer.error().code == Code::kTimeout)
    return store_error(Code::kTimeout,
                       fmt::format("worker {}: the worker with rank 0 has not initialised '{}' "
                                   "within {:.0f} s",
                                   options_.worker, wanted.keys.empty() ? "" : wanted.keys[0].name,
                                   seconds(options_.start_limit)));
  if (!answer) return tl::unexpected(answer.error());
  const auto table = wire::parse<data::KeyTable>(answer->text);
  if (!table) return store_error(table.error());
  const auto learnt = keys_.learn(*table, links_.by_loop());
  if (!learnt) return store_error(learnt.error());
  if (auto done = reach_owners(*learnt); !done) return done;
  if (auto done = memory_.stage(*learnt); !done) return done;
  keys_.settled();
  return {};
}

Status KeyInit::reach_owners(std::span<const KeyTable::Key> keys) {
  std::set<ServerLink*> owners;
  for (const auto& key : keys)
    for (const auto& chunk : key.chunks) owners.insert(chunk->owner);
  links_.connect_to(owners);
  if (auto done = connected_(); !done) return done;
  return memory_.share_with(owners);
}

Status KeyInit::create(std::vector<Request> requests) {
  auto handle = dispatch_.hand_over(std::move(requests));
  if (!handle) return tl::unexpected(handle.error());
  auto done = dispatch_.wait(*handle, seconds(options_.start_limit));
  if (!done &&
      done.error().code == Code::kTimeout) {  // the requests point into the caller's memory
    dispatch_.break_store(done.error());
    (void)dispatch_.wait(*handle, 0);
  }
  return done;
}

}  // namespace dt::kv
