/// The C++ interface of libdtkv: the same calls with ownership and exceptions. Header-only, uses
/// only the C ABI (dtkv.h), whose comments define each call.
///
///     dtkv::KVStore kv("dist_sync");
///     kv.init({{"w", weights}});
///     kv.set_optimizer("sgd momentum=0.9");
///     kv.pushpull({{"w", gradient}}, {{"w", weights}}, {.samples = batch, .learning_rate = 0.1f});
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtkv.h"

namespace dtkv {

/// A DTKV_* error and its message. DTKV_ROLLBACK: go on with epoch_boundary().
class Error : public std::runtime_error {
 public:
  Error(int code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] int code() const { return code_; }

 private:
  int code_;
};

/// A named array.
struct Entry {
  Entry(std::string name, std::vector<float>& values)
      : key(std::move(name)), array{values.data(), values.size(), DTKV_FLOAT32, DTKV_CPU, 0,
                                    nullptr} {}
  Entry(std::string name, std::vector<double>& values)
      : key(std::move(name)), array{values.data(), values.size(), DTKV_FLOAT64, DTKV_CPU, 0,
                                    nullptr} {}
  Entry(std::string name, dtkv_array values) : key(std::move(name)), array(values) {}

  std::string key;
  dtkv_array array;
};

struct Push {
  int reduce = DTKV_AUTO;
  std::uint64_t samples = 1;
  std::uint64_t step = 0;
  float learning_rate = 0;
  int priority = 0;
};

class KVStore {
 public:
  explicit KVStore(const std::string& type) { check(dtkv_create(type.c_str(), &store_)); }
  ~KVStore() { dtkv_destroy(store_); }
  KVStore(KVStore&& other) noexcept : store_(std::exchange(other.store_, nullptr)) {}
  KVStore& operator=(KVStore&& other) noexcept {
    std::swap(store_, other.store_);
    return *this;
  }

  [[nodiscard]] dtkv_store* get() const { return store_; }
  [[nodiscard]] std::string type() const { return dtkv_type(store_); }
  [[nodiscard]] std::uint32_t worker_id() const { return dtkv_worker_id(store_); }
  [[nodiscard]] std::uint32_t rank() const { return dtkv_rank(store_); }
  [[nodiscard]] std::uint32_t num_workers() const { return dtkv_num_workers(store_); }
  [[nodiscard]] bool is_newcomer() const { return dtkv_is_newcomer(store_) != 0; }
  [[nodiscard]] bool is_lead() const { return dtkv_is_lead(store_) != 0; }

  void init(const std::vector<Entry>& values, int key_flags = DTKV_KEY_PARAMETER) {
    const List list(values);
    check(dtkv_init(store_, list.size(), list.keys(), list.arrays(), key_flags));
  }
  void broadcast(const std::vector<Entry>& values) {
    const List list(values);
    check(dtkv_broadcast(store_, list.size(), list.keys(), list.arrays()));
  }
  void push(const std::vector<Entry>& values, const Push& how, dtkv_handle* handle = nullptr) {
    const List list(values);
    const auto options = to_c(how);
    check(dtkv_push(store_, list.size(), list.keys(), list.arrays(), &options, handle));
  }
  void pull(const std::vector<Entry>& out, int priority = 0, dtkv_handle* handle = nullptr) {
    const List list(out);
    check(dtkv_pull(store_, list.size(), list.keys(), list.arrays(), priority, handle));
  }
  /// `out` has the same keys in the same order as `values`.
  void pushpull(const std::vector<Entry>& values, const std::vector<Entry>& out, const Push& how,
                dtkv_handle* handle = nullptr) {
    const List from(values);
    const List into(out);
    const auto options = to_c(how);
    check(dtkv_pushpull(store_, from.size(), from.keys(), from.arrays(), into.arrays(), &options,
                        handle));
  }
  /// Memory for `count` T, zeroed, which the servers of this host access without a copy. Valid
  /// until free() or the store's end.
  template <class T>
  [[nodiscard]] T* allocate(std::size_t count) {
    void* memory = nullptr;
    check(dtkv_allocate(store_, count * sizeof(T), &memory));
    return static_cast<T*>(memory);
  }
  void free(void* memory) { check(dtkv_free(store_, memory)); }
  void wait(dtkv_handle handle, double timeout_s = 0) {
    check(dtkv_wait(store_, handle, timeout_s));
  }
  void wait_all(double timeout_s = 0) { check(dtkv_wait_all(store_, timeout_s)); }
  void wait_in_stream(dtkv_handle handle, double timeout_s = 0) {
    check(dtkv_wait_in_stream(store_, handle, timeout_s));
  }
  void set_optimizer(const std::string& spec) { check(dtkv_set_optimizer(store_, spec.c_str())); }
  struct Optimizer {
    std::string text;  ///< Empty: none was set.
    int states = 0;    ///< Arrays that it keeps for each parameter.
  };
  [[nodiscard]] Optimizer optimizer() const {
    Optimizer out{std::string(256, '\0'), 0};
    check(dtkv_optimizer(store_, out.text.data(), out.text.size(), &out.states));
    out.text.resize(std::string_view(out.text).find('\0'));
    return out;
  }
  /// The numbers of updates.
  [[nodiscard]] std::vector<std::uint64_t> pull_state(const std::vector<Entry>& out, int which) {
    const List list(out);
    std::vector<std::uint64_t> updates(list.size());
    check(dtkv_pull_state(store_, list.size(), list.keys(), which, list.arrays(), updates.data()));
    return updates;
  }
  void init_state(const std::vector<Entry>& values, int which,
                  const std::vector<std::uint64_t>& updates) {
    const List list(values);
    if (updates.size() != list.size())
      throw Error(DTKV_INVALID, "a number of updates for each key");
    check(dtkv_init_state(store_, list.size(), list.keys(), which, list.arrays(), updates.data()));
  }
  /// "none", "2bit threshold=0.5", "fp16", "bf16"; dtkv.h has the rules.
  void set_gradient_compression(const std::string& spec) {
    check(dtkv_set_gradient_compression(store_, spec.c_str()));
  }
  void barrier() { check(dtkv_barrier(store_)); }
  void finish_steps() { check(dtkv_finish_steps(store_)); }
  void finish_epoch() { check(dtkv_finish_epoch(store_)); }
  /// None: this worker was removed; stop training and exit 0.
  [[nodiscard]] std::optional<dtkv_view> epoch_boundary(std::uint32_t epoch) {
    dtkv_view view{};
    const int code = dtkv_epoch_boundary(store_, epoch, &view);
    if (code == DTKV_LEAVE) return std::nullopt;
    check(code);
    return view;
  }
  void progress(std::uint32_t epoch, std::uint64_t step) {
    check(dtkv_progress(store_, epoch, step));
  }
  void report(const std::string& name, double value) {
    check(dtkv_report(store_, name.c_str(), value));
  }
  void report(const std::string& name, const std::string& text) {
    check(dtkv_report_text(store_, name.c_str(), text.c_str()));
  }

 private:
  class List {
   public:
    explicit List(const std::vector<Entry>& entries) {
      for (const auto& entry : entries) {
        keys_.push_back(entry.key.c_str());
        arrays_.push_back(entry.array);
      }
    }
    [[nodiscard]] std::size_t size() const { return keys_.size(); }
    [[nodiscard]] const char* const* keys() const { return keys_.data(); }
    [[nodiscard]] const dtkv_array* arrays() const { return arrays_.data(); }

   private:
    std::vector<const char*> keys_;
    std::vector<dtkv_array> arrays_;
  };

  static dtkv_push_options to_c(const Push& how) {
    return {how.reduce, how.samples, how.step, how.learning_rate, how.priority};
  }
  static void check(int code) {
    if (code != DTKV_OK) throw Error(code, dtkv_last_error());
  }

  dtkv_store* store_ = nullptr;
};

}  // namespace dtkv
