#include "kvstore/api/half_store.h"

#include <algorithm>
#include <iterator>

#include "kvstore/compute/half.h"

namespace dt::kv {

namespace {

bool is_half_array(const Array& array) { return is_half(array.dtype); }

bool has_halves(const Arrays* arrays) {
  return arrays && std::any_of(arrays->begin(), arrays->end(), is_half_array);
}

/// An array of float32 with as many elements.
Array float32_like(const Array& array) {
  Array like = array;
  like.dtype = data::Dtype::kFloat32;
  return like;
}

std::size_t room_for_halves(const Arrays* arrays) {
  std::size_t bytes = 0;
  if (!arrays) return bytes;
  for (const Array& array : *arrays)
    if (is_half_array(array)) bytes += Blocks::room_for(float32_like(array));
  return bytes;
}

/// The inner store's messages say float32.
StoreError explained(StoreError error) {
  if (error.code == Code::kMismatch)
    error.message += " (float16 and bfloat16 arrays belong to float32 keys)";
  return error;
}

}  // namespace

StoreResult<HalfStore::Widened> HalfStore::widen(const Arrays* values, const Arrays* out) {
  Widened call;
  auto block = blocks_.take(inner(), room_for_halves(values) + room_for_halves(out));
  if (!block) return tl::unexpected(block.error());
  call.block = *block;
  if (values) {
    if (auto done = widen_values(*values, call); !done) {
      blocks_.give(call.block);
      return tl::unexpected(done.error());
    }
  }
  if (out) place_out(values, *out, call);
  return call;
}

Status HalfStore::widen_values(const Arrays& values, Widened& call) {
  Arrays halves;
  std::copy_if(values.begin(), values.end(), std::back_inserter(halves), is_half_array);
  HostArrays on_host(halves);
  if (auto made = on_host.make(devices_, true); !made) return made;
  auto half = on_host.get().begin();
  call.values = values;
  for (Array& array : call.values) {
    if (!is_half_array(array)) continue;
    array = call.block.place(float32_like(array));
    kv::widen(half->dtype, static_cast<float*>(array.data),
              static_cast<const std::byte*>(half->data), half->count);
    ++half;
  }
  return {};
}

/// A value that the caller pulls over its gradient comes over the widened gradient.
void HalfStore::place_out(const Arrays* values, const Arrays& out, Widened& call) {
  call.out = out;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!is_half_array(out[i])) continue;
    const bool is_in_place = values && (*values)[i].data == out[i].data &&
                             (*values)[i].dtype == out[i].dtype &&
                             (*values)[i].count == out[i].count;
    call.out[i] = is_in_place ? call.values[i] : call.block.place(float32_like(out[i]));
    call.sources.push_back(call.out[i]);
    call.targets.push_back(out[i]);
  }
}

Status HalfStore::round(const Widened& call) {
  HostArrays on_host(call.targets);
  if (auto made = on_host.make(devices_, false); !made) return made;
  for (std::size_t i = 0; i < call.sources.size(); ++i) {
    const Array& to = on_host.get()[i];
    narrow(to.dtype, static_cast<std::byte*>(to.data),
           static_cast<const float*>(call.sources[i].data), to.count);
  }
  return on_host.write();
}

template <class Call>
Status HalfStore::with_widened(const Arrays* values, const Arrays* out, Call call) {
  const auto widened = widen(values, out);
  if (!widened) return tl::unexpected(widened.error());
  Status done = call(*widened);
  if (!done) done = tl::unexpected(explained(done.error()));
  if (done) done = round(*widened);
  blocks_.give(widened->block);
  return done;
}

// ---------------------------------------------------------------- the calls

Status HalfStore::init(const Keys& keys, const Arrays& values, std::uint8_t flags) {
  if (!has_halves(&values)) return inner().init(keys, values, flags);
  return with_widened(&values, nullptr,
                      [&](const Widened& call) { return inner().init(keys, call.values, flags); });
}

StoreResult<Handle> HalfStore::begin(const Keys& keys, const Arrays* values, const Arrays* out,
                                     const PushOptions& options) {
  if (!has_halves(values) && !has_halves(out)) return inner().begin(keys, values, out, options);
  auto call = widen(values, out);
  if (!call) return tl::unexpected(call.error());
  const auto handle =
      inner().begin(keys, values ? &call->values : nullptr, out ? &call->out : nullptr, options);
  if (!handle) {
    blocks_.give(call->block);
    return tl::unexpected(explained(handle.error()));
  }
  Arrays written = call->targets;
  auto end = [this, call = std::move(*call)](bool is_good) {
    Status done = is_good ? round(call) : Status();
    blocks_.give(call.block);
    return done;
  };
  at_end_of(*handle, {std::move(end), std::move(written)});
  return *handle;
}

Status HalfStore::pull_state(const Keys& keys, State which, const Arrays& out,
                             std::span<std::uint64_t> updates) {
  if (!has_halves(&out)) return inner().pull_state(keys, which, out, updates);
  return with_widened(nullptr, &out, [&](const Widened& call) {
    return inner().pull_state(keys, which, call.out, updates);
  });
}

Status HalfStore::init_state(const Keys& keys, State which, const Arrays& values,
                             std::span<const std::uint64_t> updates) {
  if (!has_halves(&values)) return inner().init_state(keys, which, values, updates);
  return with_widened(&values, nullptr, [&](const Widened& call) {
    return inner().init_state(keys, which, call.values, updates);
  });
}

}  // namespace dt::kv
