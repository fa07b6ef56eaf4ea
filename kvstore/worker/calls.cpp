#include "kvstore/worker/calls.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "kvstore/worker/chunk.h"
#include "kvstore/worker/dispatch.h"

namespace dt::kv {

StoreResult<std::vector<ArrayCalls::Call>> ArrayCalls::begin(
    const std::vector<const KeyTable::Key*>& keys, const std::vector<Array>* values,
    const std::vector<Array>* out) {
  std::vector<Call> calls;
  std::vector<MemorySharing::OnDevice> on_device;
  for (const auto* arrays : {values, out}) {
    if (!arrays) continue;
    const auto first = std::find_if(arrays->begin(), arrays->end(),
                                    [](const Array& array) { return array.is_ordered(); });
    if (first == arrays->end()) continue;
    if (auto known = devices_.check(*arrays); !known) return tl::unexpected(known.error());
    calls.resize(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const Array& array = (*arrays)[i];
      if (!array.is_on_device()) continue;
      on_device.push_back(
          {keys[i], array.group ? std::nullopt : std::optional(array.place.device)});
    }
  }
  if (auto done = memory_.reach(on_device); !done) return tl::unexpected(done.error());
  // There are few streams, mostly one of each device.
  DeviceCalls begun;
  const auto begin_one = [&](const Array& array, std::shared_ptr<DeviceCall>& call) -> Status {
    const auto is_same = [&](const std::shared_ptr<DeviceCall>& one) {
      return one->stream == array.stream && one->device == array.place.device;
    };
    auto found = std::find_if(begun.begin(), begun.end(), is_same);
    if (found == begun.end()) {
      auto fresh = dispatch_.begin_call(array);
      if (!fresh) return tl::unexpected(fresh.error());
      found = begun.insert(begun.end(), std::move(*fresh));
    }
    call = *found;
    return {};
  };
  const auto begin_all = [&](const Array& array, std::shared_ptr<DeviceCall>& call,
                             DeviceCalls& all) -> Status {
    if (!array.is_ordered()) return {};
    if (!array.group) return begin_one(array, call);
    for (const auto& one : *array.group)
      if (auto done = begin_one(one, all.emplace_back()); !done) return done;
    return {};
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    Status done;
    if (values) done = begin_all((*values)[i], calls[i].in, calls[i].ins);
    if (done && out) done = begin_all((*out)[i], calls[i].out, calls[i].outs);
    if (!done) return tl::unexpected(done.error());
  }
  return calls;
}

void ArrayCalls::attach(Request& request, const Call& call, const Array* value, const Array* out) {
  if (!call.in && !call.out && call.ins.empty() && call.outs.empty()) return;
  const DevicePlace& place = request.chunk->on_device;
  const auto is_elsewhere = [&place](const Array* array) {
    return array && array->is_on_device() && (array->group || array->place.device != place.device);
  };
  const bool is_there = place.at && !is_elsewhere(value) && !is_elsewhere(out);
  auto ends = std::make_shared<DeviceEnds>();
  ends->in = call.in;
  ends->out = call.out;
  ends->place = is_there ? place.at : request.chunk->pinned;
  const auto ends_of = [&request](const DeviceCalls& calls, const Array& array) {
    const std::size_t offset = request.chunk->place.first * data::element_bytes(array.dtype);
    std::vector<GroupEnd> all;
    for (std::size_t rank = 0; rank < calls.size() && request.into_bytes > 0; ++rank) {
      const auto& begun = calls[rank];
      all.push_back({begun->device,
                     static_cast<std::byte*>((*array.group)[rank].data) + offset,
                     {begun, &begun->begin},
                     DeviceCopies::stream_out(*begun)});
    }
    return all;
  };
  if (value) ends->all_from = ends_of(call.ins, *value);
  if (out) ends->all_into = ends_of(call.outs, *out);
  if (value && value->is_on_device() && request.into_bytes > 0)
    ends->from = static_cast<const std::byte*>(std::exchange(request.from, ends->place));
  if (out && out->is_on_device() && request.into_bytes > 0)
    ends->into = static_cast<std::byte*>(std::exchange(request.into, ends->place));
  request.device = std::move(ends);
}

void ArrayCalls::add_uses(const std::vector<Call>& calls, DeviceCalls& uses) {
  for (const auto& call : calls) {
    for (const auto& one : {call.in, call.out})
      if (one) uses.push_back(one);
    uses.insert(uses.end(), call.outs.begin(), call.outs.end());
  }
}

}  // namespace dt::kv
