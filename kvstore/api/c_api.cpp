// The C interface: checks arguments, turns results into codes and a message, lets no exception out.

#include <unistd.h>

#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvstore/api/dlpack.h"
#include "kvstore/api/group_store.h"
#include "kvstore/api/half_store.h"
#include "kvstore/compute/optimizer.h"
#include "kvstore/dtkv.h"
#include "kvstore/link/forks.h"
#include "kvstore/store.h"
#include "kvstore/worker/client.h"

#ifndef DT_VERSION
#define DT_VERSION "0.0.0"
#endif

struct dtkv_store {
  std::unique_ptr<dt::kv::Store> store;
  std::uint32_t forks = dt::kv::fork_count();
  pid_t process = ::getpid();

  /// False in a forked child, which has neither the store's threads nor its connections.
  [[nodiscard]] bool is_of_this_process() const { return forks == dt::kv::fork_count(); }
};

namespace {

using dt::kv::Array;
using dt::kv::PushOptions;
using dt::kv::Status;
using dt::kv::Store;
using dt::kv::StoreError;

std::string& last_error() {
  thread_local std::string text;
  return text;
}

/// Without memory for the message the text is empty.
int fail(int code, std::string_view message) noexcept {
  try {
    last_error() = message;
  } catch (const std::bad_alloc&) {
    last_error().clear();
  }
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

int fail(const StoreError& error) noexcept {
  return fail(static_cast<int>(error.code), error.message);
}

/// Memory that outlives its store, by address. Never destroyed: the process may end at any time.
struct Kept {
  std::mutex mutex;
  std::map<const void*, std::shared_ptr<const void>> owners;
  std::uint32_t forks = dt::kv::fork_count();
};
Kept& kept() {
  static auto* const all = new Kept;
  return *all;
}

/// A caller's mistake.
struct Misuse : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs `body`, which returns a code; an exception becomes DTKV_INVALID or DTKV_INTERNAL.
template <class Body>
int guarded(Body body) {
  last_error().clear();
  try {
    return body();
  } catch (const Misuse& e) {
    return fail(DTKV_INVALID, e.what());
  } catch (const std::exception& e) {
    return fail(DTKV_INTERNAL, e.what());
  } catch (...) {
    return fail(DTKV_INTERNAL, "an unknown exception");
  }
}

int result(const Status& status) {
  if (!status) return fail(status.error());
  return DTKV_OK;
}

Store& usable(dtkv_store* store) {
  if (!store) throw Misuse("no store");
  if (!store->is_of_this_process())
    throw Misuse("this store belongs to process " + std::to_string(store->process) +
                 "; a forked child cannot use it");
  return *store->store;
}

/// Runs `body`, which returns a Status, with the store; it may be a function of Store.
template <class Body>
int with_store(dtkv_store* store, Body body) {
  return guarded([&]() -> int { return result(std::invoke(body, usable(store))); });
}

// The caller's arguments in C++ terms.

std::vector<std::string> keys_of(size_t n, const char* const* keys) {
  if (n > 0 && !keys) throw Misuse("keys is NULL");
  std::vector<std::string> out;
  for (size_t i = 0; i < n; ++i) {
    if (!keys[i]) throw Misuse("a key is NULL");
    out.emplace_back(keys[i]);
  }
  return out;
}

std::vector<Array> arrays_of(size_t n, const dtkv_array* arrays) {
  if (n > 0 && !arrays) throw Misuse("the list of arrays is NULL");
  std::vector<Array> out;
  for (size_t i = 0; i < n; ++i) {
    const auto& array = arrays[i];
    if (array.device < DTKV_CPU || array.device > DTKV_CUDA_HOST)
      throw Misuse("an array is on an unknown kind of device");
    if (array.dtype < DTKV_FLOAT32 || array.dtype > DTKV_INT64)
      throw Misuse("an array has an unknown dtype");
    if (!array.data && array.count > 0) throw Misuse("an array has no data");
    Array& taken =
        out.emplace_back(Array{array.data, array.count, static_cast<dt::data::Dtype>(array.dtype)});
    if (array.device == DTKV_CPU) continue;  // its stream is ignored
    using Kind = dt::kv::cuda::Place::Kind;
    taken.place = {array.device == DTKV_CUDA ? Kind::kDevice : Kind::kPinned, array.device_id};
    taken.stream = static_cast<dt::kv::cuda::Stream>(array.stream);
  }
  return out;
}

PushOptions options_of(const dtkv_push_options* options, const dtkv_handle* handle) {
  if (!options) return {.is_awaited = handle == nullptr};
  if (options->reduce < DTKV_AUTO || options->reduce > DTKV_MEAN) throw Misuse("unknown reduce");
  return {.reduce = static_cast<dt::data::Reduce>(options->reduce),
          .samples = options->samples,
          .step = options->step,
          .learning_rate = options->learning_rate,
          .priority = options->priority,
          .is_awaited = handle == nullptr};
}

Store::State state_of(int which) {
  if (which != DTKV_STATE_FIRST && which != DTKV_STATE_SECOND)
    throw Misuse("an optimizer's state is 1 or 2, not " + std::to_string(which));
  return static_cast<Store::State>(which);
}

/// Bytes of a text for people.
constexpr std::size_t kLongestText = 200;

bool is_figure_name(std::string_view name) {
  constexpr std::string_view kMayFollow = "abcdefghijklmnopqrstuvwxyz0123456789_";
  return !name.empty() && name.size() <= 32 && name.front() >= 'a' && name.front() <= 'z' &&
         name.find_first_not_of(kMayFollow) == name.npos;
}

/// The store with what the C interface takes more than it: halves, and several arrays of a key.
std::unique_ptr<Store> complete(std::unique_ptr<Store> store) {
  auto groups = std::make_unique<dt::kv::GroupStore>(std::move(store));
  return std::make_unique<dt::kv::HalfStore>(std::move(groups));
}

/// Gives the operation's handle to the caller, or waits for it.
Status deliver(Store& store, const dt::kv::StoreResult<dt::kv::Handle>& started,
               dtkv_handle* handle) {
  if (!started) return tl::unexpected(started.error());
  if (!handle) return store.wait(*started, 0);
  *handle = *started;
  return {};
}

int report(dtkv_store* store, const char* name, const dt::kv::Figure& value) {
  return with_store(store, [&](Store& in) {
    if (!name || !is_figure_name(name))
      throw Misuse("'" + std::string(name ? name : "") +
                   "' names no figure: a name is a small letter and at most 31 small letters, "
                   "digits and underscores");
    return in.report(name, value);
  });
}

void give_view(const dt::kv::View& view, dtkv_view* out) {
  if (!out) return;
  *out = {view.generation.value, view.rank.value,      view.num_workers,
          view.epoch.value,      view.changed ? 1 : 0, view.rolled_back ? 1 : 0};
}

}  // namespace

extern "C" {

int dtkv_create(const char* type, dtkv_store** out) {
  return guarded([&]() -> int {
    if (!type || !out) throw Misuse("dtkv_create needs a type and a place");
    *out = nullptr;
    const std::string name(type);
    auto made = std::make_unique<dtkv_store>();
    if (name == "local" || name == "device") {
      made->store = complete(dt::kv::make_local_store(name));
    } else if (name == "dist_sync" || name == "dist_device_sync" || name == "dist_sync_device" ||
               name == "dist_async") {
      auto opened = dt::kv::open_client_from_environment(name);
      if (!opened) return fail(opened.error());
      made->store = complete(std::move(*opened));
    } else {
      throw Misuse("kvstore type '" + name +
                   "' is none of local, device, dist_sync, dist_device_sync, dist_async");
    }
    *out = made.release();
    return DTKV_OK;
  });
}

void dtkv_destroy(dtkv_store* store) {
  guarded([&]() -> int {
    if (store && store->is_of_this_process()) delete store;
    return DTKV_OK;
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
  return guarded([&]() -> int {
    if (!tensor || !out) throw Misuse("dtkv_array_from_dlpack needs a tensor and a place");
    const auto& from = *static_cast<const dt::kv::dlpack::Tensor*>(tensor);
    const auto wrong = dt::kv::dlpack::to_array(from, stream, *out);
    if (!wrong.empty()) throw Misuse(wrong);
    return DTKV_OK;
  });
}

int dtkv_array_from_dlpack_versioned(const DLManagedTensorVersioned* tensor, void* stream,
                                     dtkv_array* out, int* is_read_only) {
  return guarded([&]() -> int {
    if (!tensor || !out)
      throw Misuse("dtkv_array_from_dlpack_versioned needs a tensor and a place");
    const auto& from = *reinterpret_cast<const dt::kv::dlpack::ManagedTensor*>(tensor);
    if (from.version.major != dt::kv::dlpack::kMajorVersion)
      throw Misuse("a DLPack tensor is of major version " + std::to_string(from.version.major) +
                   ", which is not known: ask its maker for version 1");
    const bool is_fixed = (from.flags & dt::kv::dlpack::kReadOnly) != 0;
    if (is_fixed && !is_read_only)
      throw Misuse(
          "a DLPack tensor is read-only: pass a place for is_read_only if nothing will be pulled "
          "into it");
    if (is_read_only) *is_read_only = is_fixed ? 1 : 0;
    const auto wrong = dt::kv::dlpack::to_array(from.tensor, stream, *out);
    if (!wrong.empty()) throw Misuse(wrong);
    return DTKV_OK;
  });
}

int dtkv_init(dtkv_store* store, size_t n, const char* const* keys, const dtkv_array* values,
              int key_flags) {
  return with_store(store, [&](Store& in) {
    const auto names = keys_of(n, keys);
    const auto arrays = arrays_of(n, values);
    if ((key_flags & ~(DTKV_KEY_AUXILIARY | DTKV_KEY_TRANSIENT)) != 0)
      throw Misuse("unknown key flags");
    return in.init(names, arrays, static_cast<std::uint8_t>(key_flags));
  });
}

int dtkv_push(dtkv_store* store, size_t n, const char* const* keys, const dtkv_array* values,
              const dtkv_push_options* options, dtkv_handle* handle) {
  return with_store(store, [&](Store& in) {
    const auto push = options_of(options, handle);
    const auto names = keys_of(n, keys);
    return deliver(in, in.push(names, arrays_of(n, values), push), handle);
  });
}

int dtkv_pull(dtkv_store* store, size_t n, const char* const* keys, const dtkv_array* out,
              int priority, dtkv_handle* handle) {
  return with_store(store, [&](Store& in) {
    auto pull = options_of(nullptr, handle);
    pull.priority = priority;
    const auto names = keys_of(n, keys);
    return deliver(in, in.pull(names, arrays_of(n, out), pull), handle);
  });
}

int dtkv_pushpull(dtkv_store* store, size_t n, const char* const* keys, const dtkv_array* values,
                  const dtkv_array* out, const dtkv_push_options* options, dtkv_handle* handle) {
  return with_store(store, [&](Store& in) {
    const auto push = options_of(options, handle);
    const auto names = keys_of(n, keys);
    const auto from = arrays_of(n, values);
    return deliver(in, in.pushpull(names, from, arrays_of(n, out), push), handle);
  });
}

int dtkv_broadcast(dtkv_store* store, size_t n, const char* const* keys, const dtkv_array* values) {
  const int made = dtkv_init(store, n, keys, values, DTKV_KEY_PARAMETER);
  return made == DTKV_OK ? dtkv_pull(store, n, keys, values, 0, nullptr) : made;
}

int dtkv_allocate(dtkv_store* store, size_t bytes, void** out) {
  return guarded([&]() -> int {
    if (!out) throw Misuse("dtkv_allocate needs a place");
    *out = nullptr;
    const auto memory = usable(store).allocate(bytes);
    if (!memory) return fail(memory.error());
    *out = *memory;
    return DTKV_OK;
  });
}

int dtkv_free(dtkv_store* store, void* memory) {
  return with_store(store, [&](Store& in) { return memory ? in.release(memory) : Status(); });
}

int dtkv_keep(dtkv_store* store, const void* memory) {
  return with_store(store, [&](Store& in) {
    auto owner = in.owner_of(memory);
    if (!owner) throw Misuse("this memory was not allocated by the store");
    const std::lock_guard lock(kept().mutex);
    kept().owners[memory] = std::move(owner);
    return Status();
  });
}

// Finalizers call it between another call's failure and the question for its message: it leaves
// that.
int dtkv_unkeep(const void* memory) {
  if (kept().forks != dt::kv::fork_count())
    return fail(DTKV_INVALID, "a forked child cannot free memory of its parent");
  const std::lock_guard lock(kept().mutex);
  return kept().owners.erase(memory) > 0 ? DTKV_OK : fail(DTKV_INVALID, "this memory was not kept");
}

int dtkv_wait(dtkv_store* store, dtkv_handle handle, double timeout_s) {
  return with_store(store, [&](Store& in) { return in.wait(handle, timeout_s); });
}

int dtkv_wait_all(dtkv_store* store, double timeout_s) {
  return with_store(store, [&](Store& in) { return in.wait_all(timeout_s); });
}

int dtkv_wait_in_stream(dtkv_store* store, dtkv_handle handle, double timeout_s) {
  return with_store(store, [&](Store& in) { return in.wait_in_stream(handle, timeout_s); });
}

int dtkv_set_optimizer(dtkv_store* store, const char* spec) {
  return with_store(store, [&](Store& in) {
    if (!spec) throw Misuse("dtkv_set_optimizer needs a text");
    return in.set_optimizer(spec);
  });
}

int dtkv_optimizer(dtkv_store* store, char* text, size_t size, int* states) {
  return with_store(store, [&](Store& in) -> Status {
    if (!text) throw Misuse("dtkv_optimizer needs a place for the text");
    const auto spec = in.optimizer();
    if (!spec) return tl::unexpected(spec.error());
    if (spec->size() >= size)
      throw Misuse("the optimizer's text needs " + std::to_string(spec->size() + 1) + " bytes");
    text[spec->copy(text, size - 1)] = '\0';
    const auto parsed = dt::kv::parse_optimizer(*spec);
    if (states) *states = parsed ? static_cast<int>(dt::kv::states_of(*parsed)) : 0;
    return {};
  });
}

int dtkv_pull_state(dtkv_store* store, size_t n, const char* const* keys, int which,
                    const dtkv_array* out, uint64_t* updates) {
  return with_store(store, [&](Store& in) {
    if (n > 0 && !updates) throw Misuse("dtkv_pull_state needs a place for the updates");
    const auto names = keys_of(n, keys);
    return in.pull_state(names, state_of(which), arrays_of(n, out), {updates, n});
  });
}

int dtkv_init_state(dtkv_store* store, size_t n, const char* const* keys, int which,
                    const dtkv_array* values, const uint64_t* updates) {
  return with_store(store, [&](Store& in) {
    if (n > 0 && !updates) throw Misuse("dtkv_init_state needs the numbers of updates");
    const auto names = keys_of(n, keys);
    return in.init_state(names, state_of(which), arrays_of(n, values), {updates, n});
  });
}

int dtkv_set_gradient_compression(dtkv_store* store, const char* spec) {
  return with_store(store, [&](Store& in) {
    if (!spec) throw Misuse("dtkv_set_gradient_compression needs a text");
    return in.set_gradient_compression(spec);
  });
}

int dtkv_barrier(dtkv_store* store) { return with_store(store, &Store::barrier); }
int dtkv_finish_steps(dtkv_store* store) { return with_store(store, &Store::finish_steps); }
int dtkv_finish_epoch(dtkv_store* store) { return with_store(store, &Store::finish_epoch); }

int dtkv_epoch_boundary(dtkv_store* store, uint32_t epoch, dtkv_view* view) {
  return with_store(store, [&](Store& in) -> Status {
    const auto brought = in.epoch_boundary(dt::Epoch(epoch));
    if (!brought) return tl::unexpected(brought.error());
    give_view(*brought, view);
    return {};
  });
}

int dtkv_progress(dtkv_store* store, uint32_t epoch, uint64_t step) {
  return with_store(store, [&](Store& in) { return in.progress(dt::Epoch(epoch), step); });
}

int dtkv_report(dtkv_store* store, const char* name, double value) {
  return report(store, name, value);
}

int dtkv_report_text(dtkv_store* store, const char* name, const char* text) {
  return report(store, name, std::string(text ? text : "").substr(0, kLongestText));
}

int dtkv_check_device(int device_id) {
  return guarded([&] {
    const std::string why = dt::kv::cuda::why_no_device(device_id);
    return why.empty() ? DTKV_OK : fail(DTKV_INVALID, why);
  });
}

const char* dtkv_version(void) { return DT_VERSION; }
int dtkv_abi(void) { return DTKV_ABI; }

}  // extern "C"
