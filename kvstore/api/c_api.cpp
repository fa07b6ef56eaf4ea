// The C interface: checks arguments, turns results into codes and a message, lets no exception out.

#include <exception>
#include <string>
#include <vector>

#include "kvstore/api/dlpack.h"
#include "kvstore/api/group_store.h"
#include "kvstore/dtkv.h"
#include "kvstore/store.h"
#include "kvstore/worker/client.h"

#ifndef DT_VERSION
#define DT_VERSION "0.0.0"
#endif

struct dtkv_store {
  std::unique_ptr<dt::kv::Store> store;
};

namespace {

using dt::kv::Array;
using dt::kv::StoreError;

std::string& last_error() {
  thread_local std::string text;
  return text;
}

int fail(int code, std::string message) {
  last_error() = std::move(message);
  return code;
}

using dt::kv::Code;
static_assert(int{DTKV_INVALID} == static_cast<int>(Code::kInvalid) &&
              int{DTKV_UNAVAILABLE} == static_cast<int>(Code::kUnavailable) &&
              int{DTKV_TIMEOUT} == static_cast<int>(Code::kTimeout) &&
              int{DTKV_FENCED} == static_cast<int>(Code::kFenced) &&
              int{DTKV_LEAVE} == static_cast<int>(Code::kLeave) &&
              int{DTKV_MISMATCH} == static_cast<int>(Code::kMismatch) &&
              int{DTKV_INTERNAL} == static_cast<int>(Code::kInternal) &&
              int{DTKV_NONFINITE} == static_cast<int>(Code::kNonfinite) &&
              int{DTKV_ROLLBACK} == static_cast<int>(Code::kRollback));

int fail(const StoreError& error) { return fail(static_cast<int>(error.code), error.message); }

/// Runs `body`; an exception becomes DTKV_INTERNAL.
template <class Body>
int guarded(Body body) {
  last_error().clear();
  try {
    return body();
  } catch (const std::exception& e) {
    return fail(DTKV_INTERNAL, e.what());
  } catch (...) {
    return fail(DTKV_INTERNAL, "an unknown exception");
  }
}

int result(const dt::kv::Status& status) { return status ? DTKV_OK : fail(status.error()); }

/// The caller's keys and arrays in C++ terms; false: `why` is the error.
bool take_keys(size_t n, const char* const* keys, std::vector<std::string>& out, std::string& why) {
  if (n > 0 && !keys) {
    why = "keys is NULL";
    return false;
  }
  for (size_t i = 0; i < n; ++i) {
    if (!keys[i]) {
      why = "a key is NULL";
      return false;
    }
    out.emplace_back(keys[i]);
  }
  return true;
}

bool take_arrays(size_t n, const dtkv_array* arrays, std::vector<Array>& out, std::string& why) {
  if (n > 0 && !arrays) {
    why = "the list of arrays is NULL";
    return false;
  }
  for (size_t i = 0; i < n; ++i) {
    const auto& array = arrays[i];
    if (array.device < DTKV_CPU || array.device > DTKV_CUDA_HOST) {
      why = "an array is on an unknown kind of device";
      return false;
    }
    if (array.dtype < DTKV_FLOAT32 || array.dtype > DTKV_INT64) {
      why = "an array has an unknown dtype";
      return false;
    }
    if (!array.data && array.count > 0) {
      why = "an array has no data";
      return false;
    }
    Array& taken = out.emplace_back();
    taken.data = array.data;
    taken.count = array.count;
    taken.dtype = static_cast<dt::data::Dtype>(array.dtype);
    if (array.device == DTKV_CPU) continue;  // its stream is ignored
    using Kind = dt::kv::cuda::Place::Kind;
    taken.place = {array.device == DTKV_CUDA ? Kind::kDevice : Kind::kPinned, array.device_id};
    taken.stream = static_cast<dt::kv::cuda::Stream>(array.stream);
  }
  return true;
}

/// "" or why the options are invalid.
std::string take_options(const dtkv_push_options* options, dt::kv::PushOptions& out) {
  if (!options) return {};
  if (options->reduce < DTKV_AUTO || options->reduce > DTKV_MEAN) return "unknown reduce";
  out.reduce = static_cast<dt::data::Reduce>(options->reduce);
  out.samples = options->samples;
  out.step = options->step;
  out.learning_rate = options->learning_rate;
  out.priority = options->priority;
  return {};
}

std::unique_ptr<dt::kv::Store> with_groups(std::unique_ptr<dt::kv::Store> store) {
  return std::make_unique<dt::kv::GroupStore>(std::move(store));
}

/// Gives the operation's handle to the caller, or waits for it.
int deliver(dtkv_store* store, const dt::kv::StoreResult<dt::kv::Handle>& started,
            dtkv_handle* handle) {
  if (!started) return fail(started.error());
  if (!handle) return result(store->store->wait(*started, 0));
  *handle = *started;
  return DTKV_OK;
}

void give_view(const dt::kv::View& view, dtkv_view* out) {
  if (!out) return;
  out->generation = view.generation.value;
  out->rank = view.rank.value;
  out->num_workers = view.num_workers;
  out->epoch = view.epoch.value;
  out->changed = view.changed ? 1 : 0;
  out->rolled_back = view.rolled_back ? 1 : 0;
}

}  // namespace

extern "C" {

int dtkv_create(const char* type, dtkv_store** out) {
  return guarded([&] {
    if (!type || !out) return fail(DTKV_INVALID, "dtkv_create needs a type and a place");
    *out = nullptr;
    const std::string name(type);
    auto made = std::make_unique<dtkv_store>();
    if (name == "local" || name == "device") {
      made->store = with_groups(dt::kv::make_local_store(name));
    } else if (name == "dist_sync" || name == "dist_device_sync" || name == "dist_sync_device" ||
               name == "dist_async") {
      auto opened = dt::kv::open_client_from_environment(name);
      if (!opened) return fail(opened.error());
      made->store = with_groups(std::move(*opened));
    } else {
      return fail(DTKV_INVALID, "kvstore type '" + name +
                                    "' is none of local, device, dist_sync, dist_device_sync, "
                                    "dist_async");
    }
    *out = made.release();
    return static_cast<int>(DTKV_OK);
  });
}

void dtkv_destroy(dtkv_store* store) {
  guarded([&] {
    delete store;
    return static_cast<int>(DTKV_OK);
  });
}

const char* dtkv_last_error(void) { return last_error().c_str(); }

const char* dtkv_type(const dtkv_store* store) { return store ? store->store->type().c_str() : ""; }
uint32_t dtkv_rank(const dtkv_store* store) { return store ? store->store->view().rank.value : 0; }
uint32_t dtkv_num_workers(const dtkv_store* store) {
  return store ? store->store->view().num_workers : 0;
}
uint64_t dtkv_generation(const dtkv_store* store) {
  return store ? store->store->view().generation.value : 0;
}
uint32_t dtkv_worker_id(const dtkv_store* store) {
  return store ? store->store->worker().value : 0;
}
int dtkv_is_newcomer(const dtkv_store* store) { return store && store->store->is_newcomer(); }
int dtkv_is_lead(const dtkv_store* store) { return store && store->store->is_lead(); }

int dtkv_array_from_dlpack(const void* tensor, void* stream, dtkv_array* out) {
  return guarded([&] {
    if (!tensor || !out)
      return fail(DTKV_INVALID, "dtkv_array_from_dlpack needs a tensor and a place");
    const auto& from = *static_cast<const dt::kv::dlpack::Tensor*>(tensor);
    auto wrong = dt::kv::dlpack::to_array(from, stream, *out);
    return wrong.empty() ? static_cast<int>(DTKV_OK) : fail(DTKV_INVALID, std::move(wrong));
  });
}

int dtkv_array_from_dlpack_versioned(const DLManagedTensorVersioned* tensor, void* stream,
                                     dtkv_array* out, int* is_read_only) {
  return guarded([&] {
    if (!tensor || !out)
      return fail(DTKV_INVALID, "dtkv_array_from_dlpack_versioned needs a tensor and a place");
    const auto& from = *reinterpret_cast<const dt::kv::dlpack::ManagedTensor*>(tensor);
    if (from.version.major != dt::kv::dlpack::kMajorVersion)
      return fail(DTKV_INVALID, "a DLPack tensor is of major version " +
                                    std::to_string(from.version.major) +
                                    ", which is not known: ask "
                                    "its maker for version 1");
    const bool is_fixed = (from.flags & dt::kv::dlpack::kReadOnly) != 0;
    if (is_fixed && !is_read_only)
      return fail(DTKV_INVALID,
                  "a DLPack tensor is read-only: pass a place for is_read_only if "
                  "nothing will be pulled into it");
    if (is_read_only) *is_read_only = is_fixed ? 1 : 0;
    auto wrong = dt::kv::dlpack::to_array(from.tensor, stream, *out);
    return wrong.empty() ? static_cast<int>(DTKV_OK) : fail(DTKV_INVALID, std::move(wrong));
  });
}

int dtkv_init(dtkv_store* store, size_t n, const char* const* keys, const dtkv_array* values,
              int key_flags) {
  return guarded([&] {
    std::vector<std::string> names;
    std::vector<Array> arrays;
    std::string why;
    if (!store) return fail(DTKV_INVALID, "no store");
    if (!take_keys(n, keys, names, why) || !take_arrays(n, values, arrays, why))
      return fail(DTKV_INVALID, why);
    if (key_flags != DTKV_KEY_PARAMETER && key_flags != DTKV_KEY_AUXILIARY)
      return fail(DTKV_INVALID, "unknown key flags");
    return result(store->store->init(names, arrays, static_cast<std::uint8_t>(key_flags)));
  });
}

int dtkv_push(dtkv_store* store, size_t n, const char* const* keys, const dtkv_array* values,
              const dtkv_push_options* options, dtkv_handle* handle) {
  return guarded([&] {
    std::vector<std::string> names;
    std::vector<Array> arrays;
    dt::kv::PushOptions push;
    std::string why = take_options(options, push);
    if (!store) return fail(DTKV_INVALID, "no store");
    if (!why.empty() || !take_keys(n, keys, names, why) || !take_arrays(n, values, arrays, why))
      return fail(DTKV_INVALID, why);
    push.is_awaited = handle == nullptr;
    return deliver(store, store->store->push(names, arrays, push), handle);
  });
}

int dtkv_pull(dtkv_store* store, size_t n, const char* const* keys, const dtkv_array* out,
              int priority, dtkv_handle* handle) {
  return guarded([&] {
    std::vector<std::string> names;
    std::vector<Array> arrays;
    std::string why;
    if (!store) return fail(DTKV_INVALID, "no store");
    if (!take_keys(n, keys, names, why) || !take_arrays(n, out, arrays, why))
      return fail(DTKV_INVALID, why);
    dt::kv::PullOptions pull;
    pull.priority = priority;
    pull.is_awaited = handle == nullptr;
    return deliver(store, store->store->pull(names, arrays, pull), handle);
  });
}

int dtkv_pushpull(dtkv_store* store, size_t n, const char* const* keys, const dtkv_array* values,
                  const dtkv_array* out, const dtkv_push_options* options, dtkv_handle* handle) {
  return guarded([&] {
    std::vector<std::string> names;
    std::vector<Array> from;
    std::vector<Array> into;
    dt::kv::PushOptions push;
    std::string why = take_options(options, push);
    if (!store) return fail(DTKV_INVALID, "no store");
    if (!why.empty() || !take_keys(n, keys, names, why) || !take_arrays(n, values, from, why) ||
        !take_arrays(n, out, into, why))
      return fail(DTKV_INVALID, why);
    push.is_awaited = handle == nullptr;
    return deliver(store, store->store->pushpull(names, from, into, push), handle);
  });
}

int dtkv_broadcast(dtkv_store* store, size_t n, const char* const* keys, const dtkv_array* values) {
  const int made = dtkv_init(store, n, keys, values, DTKV_KEY_PARAMETER);
  return made == DTKV_OK ? dtkv_pull(store, n, keys, values, 0, nullptr) : made;
}

int dtkv_allocate(dtkv_store* store, size_t bytes, void** out) {
  return guarded([&] {
    if (!store || !out) return fail(DTKV_INVALID, "dtkv_allocate needs a store and a place");
    *out = nullptr;
    const auto memory = store->store->allocate(bytes);
    if (!memory) return fail(memory.error());
    *out = *memory;
    return static_cast<int>(DTKV_OK);
  });
}

int dtkv_free(dtkv_store* store, void* memory) {
  return guarded([&] {
    if (!store) return fail(DTKV_INVALID, "no store");
    if (!memory) return static_cast<int>(DTKV_OK);
    return result(store->store->release(memory));
  });
}

int dtkv_wait(dtkv_store* store, dtkv_handle handle, double timeout_s) {
  return guarded([&] {
    if (!store) return fail(DTKV_INVALID, "no store");
    return result(store->store->wait(handle, timeout_s));
  });
}

int dtkv_wait_all(dtkv_store* store, double timeout_s) {
  return guarded([&] {
    if (!store) return fail(DTKV_INVALID, "no store");
    return result(store->store->wait_all(timeout_s));
  });
}

int dtkv_wait_in_stream(dtkv_store* store, dtkv_handle handle, double timeout_s) {
  return guarded([&] {
    if (!store) return fail(DTKV_INVALID, "no store");
    return result(store->store->wait_in_stream(handle, timeout_s));
  });
}

int dtkv_set_optimizer(dtkv_store* store, const char* spec) {
  return guarded([&] {
    if (!store || !spec) return fail(DTKV_INVALID, "dtkv_set_optimizer needs a store and a text");
    return result(store->store->set_optimizer(spec));
  });
}

int dtkv_set_gradient_compression(dtkv_store* store, const char* spec) {
  return guarded([&] {
    if (!store || !spec)
      return fail(DTKV_INVALID, "dtkv_set_gradient_compression needs a store and a text");
    return result(store->store->set_gradient_compression(spec));
  });
}

int dtkv_barrier(dtkv_store* store) {
  return guarded([&] {
    if (!store) return fail(DTKV_INVALID, "no store");
    return result(store->store->barrier());
  });
}

int dtkv_finish_steps(dtkv_store* store) {
  return guarded([&] {
    if (!store) return fail(DTKV_INVALID, "no store");
    return result(store->store->finish_steps());
  });
}

int dtkv_finish_epoch(dtkv_store* store) {
  return guarded([&] {
    if (!store) return fail(DTKV_INVALID, "no store");
    return result(store->store->finish_epoch());
  });
}

int dtkv_epoch_boundary(dtkv_store* store, uint32_t epoch, dtkv_view* view) {
  return guarded([&] {
    if (!store) return fail(DTKV_INVALID, "no store");
    const auto brought = store->store->epoch_boundary(dt::Epoch(epoch));
    if (!brought) return fail(brought.error());
    give_view(*brought, view);
    return static_cast<int>(DTKV_OK);
  });
}

int dtkv_progress(dtkv_store* store, uint32_t epoch, uint64_t step) {
  return guarded([&] {
    if (!store) return fail(DTKV_INVALID, "no store");
    return result(store->store->progress(dt::Epoch(epoch), step));
  });
}

const char* dtkv_version(void) { return DT_VERSION; }

}  // extern "C"
