/// The kvstore as the trainer sees it: the C interface with an owner, and errors as Result.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/result.h"
#include "kvstore/dtkv.h"

namespace dt {

/// One connection to the job's kvstore. One thread at a time.
class KVStore {
 public:
  /// `type`: local, dist_sync, ...; see dtkv_create.
  static Result<KVStore> create(const std::string& type) {
    dtkv_store* raw = nullptr;
    if (auto ok = checked(dtkv_create(type.c_str(), &raw), "create the kvstore"); !ok) {
      return tl::unexpected(ok.error());
    }
    return KVStore(raw);
  }

  [[nodiscard]] uint32_t rank() const { return dtkv_rank(get()); }
  [[nodiscard]] uint32_t num_workers() const { return dtkv_num_workers(get()); }
  [[nodiscard]] uint32_t worker_id() const { return dtkv_worker_id(get()); }
  [[nodiscard]] bool is_newcomer() const { return dtkv_is_newcomer(get()) != 0; }
  /// Has rank 0's duties: checkpoints and reports.
  [[nodiscard]] bool is_lead() const { return dtkv_is_lead(get()) != 0; }
  [[nodiscard]] std::string type() const { return dtkv_type(get()); }
  [[nodiscard]] dtkv_store* get() const { return store_.get(); }

  /// A dtkv_* code as a Result: "cannot <doing>: <what the library says>".
  static Result<void> checked(int code, const char* doing) {
    if (code == DTKV_OK) return {};
    const auto kind = code == DTKV_UNAVAILABLE ? ErrorKind::kUnavailable
                      : code == DTKV_TIMEOUT   ? ErrorKind::kTimeout
                      : code == DTKV_FENCED    ? ErrorKind::kClosed
                                               : ErrorKind::kInvalid;
    return fail(kind, "cannot {}: {}", doing, dtkv_last_error());
  }

 private:
  struct Destroy {
    void operator()(dtkv_store* store) const { dtkv_destroy(store); }
  };
  explicit KVStore(dtkv_store* raw) : store_(raw) {}
  std::unique_ptr<dtkv_store, Destroy> store_;
};

}  // namespace dt
