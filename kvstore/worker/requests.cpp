#include "kvstore/worker/requests.h"

#include "kvstore/worker/chunk.h"

namespace dt::kv {

namespace {

/// Over shared memory compression would only cost time; the server gets the setting all the same.
void compress(Request& request, const data::KeySpec& key, const Compression& compression) {
  const bool auxiliary = (key.flags & data::kAuxiliary) != 0;
  if (compression.codec == data::Codec::kNone || !is_compressible(key.dtype, auxiliary)) return;
  data::set_codec(request.header, compression.codec);
  if (request.chunk->staging.at) return;
  request.encoder = &request.chunk->encoder;
  request.compression = compression;
  request.header.payload =
      static_cast<std::uint32_t>(compressed_bytes(compression.codec, request.chunk->place.count));
}

/// The request for the chunk of key number `k` of the call.
Request make_request(const KeyedCall& call, std::size_t k, ChunkState& chunk) {
  const data::KeySpec& key = call.keys[k]->spec;
  const Array* value = call.values ? &(*call.values)[k] : nullptr;
  const Array* out = call.out ? &(*call.out)[k] : nullptr;
  const std::size_t offset = chunk.place.first * data::element_bytes(key.dtype);
  Request request;
  request.chunk = &chunk;
  request.header.type = call.type;
  request.header.dtype = key.dtype;
  request.header.reduce = call.options.reduce;
  request.header.flags = is_async(call.is_async, key) ? data::kAsync : 0;
  request.header.priority = call.options.priority;
  request.header.key = chunk.key;
  request.header.chunk = chunk.index;
  request.header.step = call.options.step;
  request.header.samples = call.options.samples;
  request.header.learning_rate = call.options.learning_rate;
  if (value) {
    request.from = static_cast<const std::byte*>(value->data) + offset;
    request.header.payload = static_cast<std::uint32_t>(chunk.bytes);
  }
  request.into_bytes = chunk.bytes;
  if (out) request.into = static_cast<std::byte*>(out->data) + offset;
  if (!call.on_devices.empty()) ArrayCalls::attach(request, call.on_devices[k], value, out);
  if (contributes(call.type)) compress(request, key, call.compression);
  return request;
}

}  // namespace

bool is_async(bool is_async_store, const data::KeySpec& key) {
  return is_async_store && (key.flags & data::kAuxiliary) == 0;
}

std::vector<Request> make_requests(const KeyedCall& call, const MemorySharing& memory,
                                   std::vector<std::uint32_t>& used) {
  std::vector<Request> requests;
  requests.reserve(call.keys.size());
  for (std::size_t k = 0; k < call.keys.size(); ++k) {
    const KeyTable::Key& key = *call.keys[k];
    const std::size_t bytes = key.spec.count * data::element_bytes(key.spec.dtype);
    const ClientMemory* from =
        call.values ? memory.holding((*call.values)[k].data, bytes) : nullptr;
    const ClientMemory* into = call.out ? memory.holding((*call.out)[k].data, bytes) : nullptr;
    for (const ClientMemory* one : {from, into})
      if (one && (used.empty() || used.back() != one->number)) used.push_back(one->number);
    for (const auto& chunk : key.chunks) {
      Request& request = requests.emplace_back(make_request(call, k, *chunk));
      if (chunk->staging.at) use_shared_memory(request, from, into);
    }
  }
  return requests;
}

}  // namespace dt::kv
