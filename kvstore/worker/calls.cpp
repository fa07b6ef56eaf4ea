#include "kvstore/worker/calls.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "kvstore/worker/chunk.h"
#include "kvstore/worker/dispatch.h"

namespace dt::kv {

namespace {

/// The device calls for the arrays of one key, one for each device; empty: the array is in host
/// memory.
struct OnDevices {
  DeviceCalls in;
  DeviceCalls out;
};

/// One for each key; empty: all arrays are in ordinary host memory.
StoreResult<std::vector<OnDevices>> begin_calls(const KeyedCall& call, KnownDevices& devices,
                                                Dispatch& dispatch) {
  std::vector<OnDevices> calls;
  for (const auto* arrays : {call.values, call.out}) {
    if (!arrays || std::ranges::none_of(*arrays, &Array::is_ordered)) continue;
    if (auto known = devices.check(*arrays); !known) return tl::unexpected(known.error());
    calls.resize(call.keys.size());
  }
  // There are few streams, mostly one of each device.
  DeviceCalls begun;
  const auto begin = [&](const Array& array, DeviceCalls& all) -> Status {
    if (!array.is_ordered()) return {};
    for (const Array& one : array.group ? std::span(*array.group) : std::span(&array, 1)) {
      const auto is_same = [&](const std::shared_ptr<DeviceCall>& other) {
        return other->stream == one.stream && other->device == one.place.device;
      };
      auto found = std::find_if(begun.begin(), begun.end(), is_same);
      if (found == begun.end()) {
        auto fresh = dispatch.begin_call(one);
        if (!fresh) return tl::unexpected(fresh.error());
        found = begun.insert(begun.end(), std::move(*fresh));
      }
      all.push_back(*found);
    }
    return {};
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    Status done;
    if (call.values) done = begin((*call.values)[i], calls[i].in);
    if (done && call.out) done = begin((*call.out)[i], calls[i].out);
    if (!done) return tl::unexpected(done.error());
  }
  return calls;
}

/// Where the arrays of key number `k` are that are on devices; none: nowhere.
std::optional<MemorySharing::Devices> devices_of(const KeyedCall& call, std::size_t k) {
  std::optional<MemorySharing::Devices> found;
  for (const auto* arrays : {call.values, call.out}) {
    const Array* array = arrays ? &(*arrays)[k] : nullptr;
    if (!array || !array->is_on_device()) continue;
    const int device = array->place.device;
    if (!found) found = {device, device};
    if (array->group || found->first != device) found->only.reset();
  }
  return found;
}

/// Arrays on devices are copied to and from `place`.
void attach(Request& request, const OnDevices& calls, const Array* value, const Array* out,
            std::byte* place) {
  if (calls.in.empty() && calls.out.empty()) return;
  auto ends = std::make_shared<DeviceEnds>();
  ends->place = place;
  const auto take = [&request](const DeviceCalls& begun, const Array* array,
                               std::shared_ptr<DeviceCall>& single, std::vector<GroupEnd>& group) {
    if (begun.empty()) return;
    if (!array->group) {
      single = begun.front();
      return;
    }
    const std::size_t offset = request.chunk->place.first * data::element_bytes(array->dtype);
    for (std::size_t rank = 0; rank < begun.size() && request.into_bytes > 0; ++rank)
      group.push_back({begun[rank]->device,
                       static_cast<std::byte*>((*array->group)[rank].data) + offset,
                       {begun[rank], &begun[rank]->begin},
                       DeviceCopies::stream_out(*begun[rank])});
  };
  take(calls.in, value, ends->in, ends->all_from);
  take(calls.out, out, ends->out, ends->all_into);
  if (value && value->is_on_device() && request.into_bytes > 0)
    ends->from = static_cast<const std::byte*>(std::exchange(request.from, ends->place));
  if (out && out->is_on_device() && request.into_bytes > 0)
    ends->into = static_cast<std::byte*>(std::exchange(request.into, ends->place));
  request.device = std::move(ends);
}

/// Over shared memory compression would only cost time; the server gets the setting all the same.
void compress(Request& request, const data::KeySpec& key, const Compression& compression) {
  const bool auxiliary = (key.flags & data::kAuxiliary) != 0;
  if (compression.codec == data::Codec::kNone || !is_compressible(key.dtype, auxiliary)) return;
  data::set_codec(request.header, compression.codec);
  if (request.chunk->is_shared) return;
  request.encoder = &request.chunk->encoder;
  request.compression = compression;
  request.header.payload =
      static_cast<std::uint32_t>(compressed_bytes(compression.codec, request.chunk->place.count));
}

/// The request for the chunk of key number `k` of the call; `calls`: null, or the key's. `place`:
/// for arrays on devices.
Request make_request(const KeyedCall& call, std::size_t k, ChunkState& chunk,
                     const OnDevices* calls, std::byte* place) {
  const data::KeySpec& key = call.keys[k]->spec;
  const Array* value = call.values ? &(*call.values)[k] : nullptr;
  const Array* out = call.out ? &(*call.out)[k] : nullptr;
  const std::size_t offset = chunk.place.first * data::element_bytes(key.dtype);
  Request request = request_for(chunk, call.type, key.dtype);
  request.header.reduce = call.options.reduce;
  request.header.flags = is_async(call.is_async, key) ? data::kAsync : 0;
  request.header.priority = call.options.priority;
  request.header.step = call.options.step;
  request.header.samples = call.options.samples;
  request.header.learning_rate = call.options.learning_rate;
  if (value) {
    request.from = static_cast<const std::byte*>(value->data) + offset;
    request.header.payload = static_cast<std::uint32_t>(chunk.bytes);
  }
  request.into_bytes = chunk.bytes;
  if (out) request.into = static_cast<std::byte*>(out->data) + offset;
  if (calls) attach(request, *calls, value, out, place);
  if (contributes(call.type)) compress(request, key, call.compression);
  return request;
}

}  // namespace

bool is_async(bool is_async_store, const data::KeySpec& key) {
  return is_async_store && (key.flags & data::kAuxiliary) == 0;
}

StoreResult<std::vector<Request>> make_requests(const KeyedCall& call, KnownDevices& devices,
                                                Dispatch& dispatch, MemorySharing& memory,
                                                Operations::Uses& uses) {
  const auto calls = begin_calls(call, devices, dispatch);
  if (!calls) return tl::unexpected(calls.error());
  for (const auto& of_key : *calls) {
    if (of_key.in.size() == 1) uses.calls.push_back(of_key.in.front());
    uses.calls.insert(uses.calls.end(), of_key.out.begin(), of_key.out.end());
  }
  std::size_t left = 0;  // bytes of chunks that may need a place and have none yet
  for (const KeyTable::Key* key : call.keys)
    for (const auto& chunk : key->chunks) left += Staging::rounded(chunk->bytes);
  std::vector<Request> requests;
  requests.reserve(call.keys.size());
  for (std::size_t k = 0; k < call.keys.size(); ++k) {
    const KeyTable::Key& key = *call.keys[k];
    const auto on = devices_of(call, k);
    const std::size_t bytes = key.spec.count * data::element_bytes(key.spec.dtype);
    const ClientMemory* from =
        call.values ? memory.holding((*call.values)[k].data, bytes) : nullptr;
    const ClientMemory* into = call.out ? memory.holding((*call.out)[k].data, bytes) : nullptr;
    for (const ClientMemory* one : {from, into})
      if (one && (uses.memories.empty() || uses.memories.back() != one->number))
        uses.memories.push_back(one->number);
    for (const auto& chunk : key.chunks) {
      const OnDevices* on_devices = calls->empty() ? nullptr : &(*calls)[k];
      const std::size_t all = std::exchange(left, left - Staging::rounded(chunk->bytes));
      MemoryPlace device_place;
      if (on && chunk->bytes > 0) {
        auto taken = memory.device_place_for(*chunk, key.spec.dtype, *on, all);
        if (!taken) return tl::unexpected(taken.error());
        device_place = *taken;
        uses.add_staged(device_place);
      }
      Request& request =
          requests.emplace_back(make_request(call, k, *chunk, on_devices, device_place.at));
      if (!chunk->is_shared || !use_shared_memory(request, from, into, device_place)) continue;
      const auto place = memory.staging_for(*chunk, all);
      if (!place) return tl::unexpected(place.error());
      use_staging(request, *place);
      uses.add_staged(*place);
    }
  }
  return requests;
}

}  // namespace dt::kv
