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
                                                Dispatch& dispatch, MemorySharing& memory) {
  std::vector<OnDevices> calls;
  std::vector<MemorySharing::OnDevice> on_device;
  for (const auto* arrays : {call.values, call.out}) {
    if (!arrays || std::ranges::none_of(*arrays, &Array::is_ordered)) continue;
    if (auto known = devices.check(*arrays); !known) return tl::unexpected(known.error());
    calls.resize(call.keys.size());
    for (std::size_t i = 0; i < call.keys.size(); ++i) {
      const Array& array = (*arrays)[i];
      if (!array.is_on_device()) continue;
      const int device = array.place.device;
      on_device.push_back(
          {call.keys[i], array.group ? std::nullopt : std::optional(device), device});
    }
  }
  if (auto done = memory.reach(on_device); !done) return tl::unexpected(done.error());
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

/// Arrays on devices are copied to and from the chunk's place: its place on their device, if all
/// are on one device and the chunk has a place there, else its pinned place.
void attach(Request& request, const OnDevices& calls, const Array* value, const Array* out) {
  if (calls.in.empty() && calls.out.empty()) return;
  const MemoryPlace& place = request.chunk->on_device;
  const auto is_elsewhere = [&place](const Array* array) {
    return array && array->is_on_device() && (array->group || array->place.device != place.device);
  };
  const bool is_there = place.at && !is_elsewhere(value) && !is_elsewhere(out);
  auto ends = std::make_shared<DeviceEnds>();
  ends->place = is_there ? place.at : request.chunk->pinned.at;
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

/// The request for the chunk of key number `k` of the call; `calls`: null, or the key's.
Request make_request(const KeyedCall& call, std::size_t k, ChunkState& chunk,
                     const OnDevices* calls) {
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
  if (calls) attach(request, *calls, value, out);
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
  const auto calls = begin_calls(call, devices, dispatch, memory);
  if (!calls) return tl::unexpected(calls.error());
  for (const auto& of_key : *calls) {
    if (of_key.in.size() == 1) uses.calls.push_back(of_key.in.front());
    uses.calls.insert(uses.calls.end(), of_key.out.begin(), of_key.out.end());
  }
  std::vector<Request> requests;
  requests.reserve(call.keys.size());
  for (std::size_t k = 0; k < call.keys.size(); ++k) {
    const KeyTable::Key& key = *call.keys[k];
    const std::size_t bytes = key.spec.count * data::element_bytes(key.spec.dtype);
    const ClientMemory* from =
        call.values ? memory.holding((*call.values)[k].data, bytes) : nullptr;
    const ClientMemory* into = call.out ? memory.holding((*call.out)[k].data, bytes) : nullptr;
    for (const ClientMemory* one : {from, into})
      if (one && (uses.memories.empty() || uses.memories.back() != one->number))
        uses.memories.push_back(one->number);
    for (const auto& chunk : key.chunks) {
      const OnDevices* on_devices = calls->empty() ? nullptr : &(*calls)[k];
      Request& request = requests.emplace_back(make_request(call, k, *chunk, on_devices));
      if (!chunk->is_shared || !use_shared_memory(request, from, into)) continue;
      const auto place = memory.staging_for(*chunk);
      if (!place) return tl::unexpected(place.error());
      use_staging(request, *place);
      uses.add_staged(*place);
    }
  }
  return requests;
}

}  // namespace dt::kv
