#include "test/trainer/dtkv_double.h"

#include <cstring>
#include <map>
#include <sstream>

struct dtkv_store {
  struct Key {
    std::vector<float> value;
    std::vector<float> momentum;
    bool has_optimizer = false;
  };
  /// What an operation in flight reads (`was` is its value at the start) and writes when it is
  /// done.
  struct Piece {
    const float* from = nullptr;
    std::vector<float> was;
    float* into = nullptr;
    std::vector<float> value;
  };
  struct Flight {
    std::string first_key;
    std::vector<Piece> pieces;
  };
  std::string type;
  std::map<std::string, Key> keys;
  std::map<dtkv_handle, Flight> flights;
  dtkv_handle last_handle = 0;
  std::map<void*, std::vector<float>> memory;
  float momentum = 0;
  float weight_decay = 0;
  bool optimizer = false;
  dtkv_view view{1, 0, 1, 0, 0, 0};
};

namespace {

std::string last_error;

/// Integers are kept as the floats that have their bytes.
std::size_t floats_in(const dtkv_array& array) {
  return array.count * (array.dtype == DTKV_INT64 ? 2 : 1);
}

int error(int code, std::string why) {
  last_error = std::move(why);
  return code;
}

}  // namespace

namespace dt::test {

DtkvDouble& dtkv_double() {
  static DtkvDouble it;
  return it;
}
void reset_dtkv_double() { dtkv_double() = {}; }

}  // namespace dt::test

using dt::test::dtkv_double;

namespace {

int land(dtkv_store* store, dtkv_handle handle) {
  const auto found = store->flights.find(handle);
  if (found == store->flights.end()) return DTKV_OK;
  const auto flight = std::move(found->second);
  store->flights.erase(found);
  --dtkv_double().under_way;
  dtkv_double().calls.push_back("wait " + flight.first_key);
  if (dtkv_double().servers_lost) return error(DTKV_ROLLBACK, "the servers were lost");
  for (const auto& piece : flight.pieces) {
    const auto bytes = piece.value.size() * sizeof(float);
    if (std::memcmp(piece.from, piece.was.data(), bytes) != 0) ++dtkv_double().touched;
    std::memcpy(piece.into, piece.value.data(), bytes);
  }
  if (flight.first_key != dtkv_double().lost) return DTKV_OK;
  return error(DTKV_UNAVAILABLE, "the test says so");
}

}  // namespace

extern "C" {

int dtkv_create(const char* type, dtkv_store** out) {
  *out = new dtkv_store;
  (*out)->type = type;
  return DTKV_OK;
}
void dtkv_destroy(dtkv_store* store) { delete store; }
const char* dtkv_last_error() { return last_error.c_str(); }
const char* dtkv_type(const dtkv_store* store) { return store->type.c_str(); }
std::uint32_t dtkv_rank(const dtkv_store* store) { return store->view.rank; }
std::uint32_t dtkv_num_workers(const dtkv_store* store) { return store->view.num_workers; }
std::uint64_t dtkv_generation(const dtkv_store* store) { return store->view.generation; }
std::uint32_t dtkv_worker_id(const dtkv_store*) { return 0; }
int dtkv_is_newcomer(const dtkv_store*) { return dtkv_double().is_newcomer; }
int dtkv_is_lead(const dtkv_store* store) { return store->view.rank == 0 ? 1 : 0; }

int dtkv_init(dtkv_store* store, std::size_t n, const char* const* keys, const dtkv_array* values,
              int key_flags) {
  for (std::size_t i = 0; i < n; ++i) {
    dtkv_double().calls.push_back(std::string("init ") + keys[i]);
    const auto* data = static_cast<const float*>(values[i].data);
    const std::size_t count = floats_in(values[i]);
    auto [it, fresh] = store->keys.try_emplace(keys[i]);
    if (!fresh && it->second.value.size() != count) {
      return error(DTKV_MISMATCH, std::string("key ") + keys[i] + " has another shape");
    }
    if (!fresh) continue;
    it->second.value.assign(data, data + count);
    it->second.momentum.assign(count, 0.0F);
    it->second.has_optimizer = key_flags == DTKV_KEY_PARAMETER;
  }
  return DTKV_OK;
}

int dtkv_push(dtkv_store* store, std::size_t n, const char* const* keys, const dtkv_array* values,
              const dtkv_push_options* options, dtkv_handle* handle) {
  auto& test = dtkv_double();
  if (test.servers_lost_after > 0 && --test.servers_lost_after == 0) test.servers_lost = true;
  if (test.servers_lost) return error(DTKV_ROLLBACK, "the servers were lost");
  test.pushes.push_back(*options);
  for (std::size_t i = 0; i < n; ++i) {
    dtkv_double().calls.push_back(std::string("push ") + keys[i]);
    const auto found = store->keys.find(keys[i]);
    if (found == store->keys.end()) return error(DTKV_INVALID, std::string("no key ") + keys[i]);
    if (found->first == dtkv_double().refused) return error(DTKV_MISMATCH, "the test says so");
    auto& key = found->second;
    if (options->samples == 0) continue;
    const auto* g = static_cast<const float*>(values[i].data);
    for (std::size_t k = 0; k < floats_in(values[i]); ++k) {
      if (!key.has_optimizer || !store->optimizer) {
        key.value[k] = g[k];
        continue;
      }
      key.momentum[k] =
          store->momentum * key.momentum[k] + g[k] + store->weight_decay * key.value[k];
      key.value[k] -= options->learning_rate * key.momentum[k];
    }
    if (test.on_value) test.on_value(found->first, key.value);
  }
  if (handle != nullptr) *handle = 1;
  return DTKV_OK;
}

int dtkv_pull(dtkv_store* store, std::size_t n, const char* const* keys, const dtkv_array* out, int,
              dtkv_handle* handle) {
  for (std::size_t i = 0; i < n; ++i) {
    dtkv_double().calls.push_back(std::string("pull ") + keys[i]);
    const auto found = store->keys.find(keys[i]);
    if (found == store->keys.end()) return error(DTKV_INVALID, std::string("no key ") + keys[i]);
    std::memcpy(out[i].data, found->second.value.data(), floats_in(out[i]) * sizeof(float));
  }
  if (handle != nullptr) *handle = 1;
  return DTKV_OK;
}

int dtkv_pushpull(dtkv_store* store, std::size_t n, const char* const* keys,
                  const dtkv_array* values, const dtkv_array* out, const dtkv_push_options* options,
                  dtkv_handle* handle) {
  if (const int code = dtkv_push(store, n, keys, values, options, nullptr)) return code;
  if (handle == nullptr) return dtkv_pull(store, n, keys, out, options->priority, nullptr);
  dtkv_store::Flight flight{keys[0], {}};
  for (std::size_t i = 0; i < n; ++i) {
    const auto* from = static_cast<const float*>(values[i].data);
    flight.pieces.push_back({from,
                             {from, from + floats_in(values[i])},
                             static_cast<float*>(out[i].data),
                             store->keys.at(keys[i]).value});
  }
  *handle = ++store->last_handle;
  store->flights.emplace(*handle, std::move(flight));
  ++dtkv_double().under_way;
  return DTKV_OK;
}

int dtkv_broadcast(dtkv_store* store, std::size_t n, const char* const* keys,
                   const dtkv_array* values) {
  if (const int code = dtkv_init(store, n, keys, values, DTKV_KEY_PARAMETER)) return code;
  return dtkv_pull(store, n, keys, values, 0, nullptr);
}
int dtkv_allocate(dtkv_store* store, std::size_t bytes, void** out) {
  std::vector<float> floats(bytes / sizeof(float));
  *out = floats.data();
  store->memory[*out] = std::move(floats);
  ++dtkv_double().memories;
  return DTKV_OK;
}
int dtkv_free(dtkv_store* store, void* memory) {
  if (!store->flights.empty()) ++dtkv_double().freed_in_flight;
  if (store->memory.erase(memory) == 0) return error(DTKV_INVALID, "not allocated here");
  --dtkv_double().memories;
  return DTKV_OK;
}
int dtkv_wait(dtkv_store* store, dtkv_handle handle, double) { return land(store, handle); }
int dtkv_wait_all(dtkv_store* store, double) {
  int code = DTKV_OK;
  while (!store->flights.empty()) {
    const int landed = land(store, store->flights.begin()->first);
    if (code == DTKV_OK) code = landed;
  }
  return code;
}

int dtkv_set_gradient_compression(dtkv_store*, const char*) { return DTKV_OK; }

int dtkv_set_optimizer(dtkv_store* store, const char* spec) {
  std::istringstream words(spec);
  std::string word;
  words >> word;
  if (word != "sgd") return error(DTKV_INVALID, "the double knows sgd alone");
  while (words >> word) {
    const auto is = word.find('=');
    const float value = std::stof(word.substr(is + 1));
    (word.substr(0, is) == "momentum" ? store->momentum : store->weight_decay) = value;
  }
  store->optimizer = true;
  return DTKV_OK;
}

int dtkv_optimizer(dtkv_store* store, char* text, std::size_t size, int* states) {
  const std::string is = "sgd momentum=" + std::to_string(store->momentum);
  text[is.copy(text, size - 1)] = '\0';
  *states = store->momentum != 0 ? 1 : 0;
  return DTKV_OK;
}
int dtkv_pull_state(dtkv_store* store, std::size_t n, const char* const* keys, int,
                    const dtkv_array* out, std::uint64_t* updates) {
  for (std::size_t i = 0; i < n; ++i) {
    const auto& momentum = store->keys.at(keys[i]).momentum;
    std::memcpy(out[i].data, momentum.data(), momentum.size() * sizeof(float));
    updates[i] = 1;
  }
  return DTKV_OK;
}
int dtkv_init_state(dtkv_store* store, std::size_t n, const char* const* keys, int,
                    const dtkv_array* values, const std::uint64_t*) {
  for (std::size_t i = 0; i < n; ++i) {
    auto& momentum = store->keys.at(keys[i]).momentum;
    std::memcpy(momentum.data(), values[i].data, momentum.size() * sizeof(float));
  }
  return DTKV_OK;
}

int dtkv_barrier(dtkv_store*) { return DTKV_OK; }
int dtkv_finish_steps(dtkv_store*) {
  dtkv_double().calls.emplace_back("finish steps");
  return DTKV_OK;
}
int dtkv_finish_epoch(dtkv_store*) {
  dtkv_double().calls.emplace_back("finish");
  return DTKV_OK;
}

int dtkv_epoch_boundary(dtkv_store* store, std::uint32_t epoch, dtkv_view* view) {
  dtkv_double().calls.emplace_back("boundary");
  dtkv_double().servers_lost = false;
  dtkv_double().asked.push_back(epoch);
  dt::test::BoundaryAnswer answer;
  answer.view = store->view;
  answer.view.epoch = epoch;
  answer.view.changed = 0;
  if (auto& script = dtkv_double().boundaries; !script.empty()) {
    answer = script.front();
    script.pop_front();
  }
  if (answer.code != DTKV_OK) return error(answer.code, "the test says so");
  store->view = *view = answer.view;
  return DTKV_OK;
}

int dtkv_report(dtkv_store*, const char*, double) { return DTKV_OK; }
int dtkv_progress(dtkv_store*, std::uint32_t, std::uint64_t) { return DTKV_OK; }
const char* dtkv_version() { return "double"; }

}  // extern "C"
