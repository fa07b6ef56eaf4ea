/// The interface behind the C ABI: one kvstore of some type, in C++ terms. LocalStore is in this
/// process alone, Client (client.h) talks to servers. dtkv.h defines each call.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <variant>
#include <vector>

#include "core/base/id.h"
#include "core/base/result.h"
#include "core/base/time.h"
#include "kvstore/compute/cuda/device.h"
#include "kvstore/compute/cuda/place.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

using data::Code;

/// Why a call failed, and the message for dtkv_last_error().
struct StoreError {
  Code code{};
  std::string message;
};
template <class T>
using StoreResult = tl::expected<T, StoreError>;
using Status = StoreResult<void>;
using Handle = std::uint64_t;
/// What a worker reports under a name, for people.
using Figure = std::variant<double, std::string>;

[[nodiscard]] inline tl::unexpected<StoreError> store_error(Code code, std::string message) {
  return tl::unexpected(StoreError{code, std::move(message)});
}
/// The result code of a call for an error of this kind.
[[nodiscard]] inline Code code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalid:
      return Code::kInvalid;
    case ErrorKind::kTimeout:
      return Code::kTimeout;
    case ErrorKind::kUnavailable:
    case ErrorKind::kDenied:
    case ErrorKind::kClosed:
      return Code::kUnavailable;
    case ErrorKind::kIo:
    case ErrorKind::kProtocol:
      break;
  }
  return Code::kInternal;
}
[[nodiscard]] inline tl::unexpected<StoreError> store_error(const Error& error) {
  return store_error(code_of(error.kind), error.message);
}

/// The program calls epoch_boundary(given) in epoch `present`; nothing: it has called none yet.
[[nodiscard]] inline Status check_epoch(std::optional<Epoch> present, Epoch given) {
  if (!present || given == present->next()) return {};
  return store_error(
      Code::kInvalid,
      fmt::format("epoch_boundary({}) in epoch {}: go on with view.epoch + 1, or use "
                  "kv.epochs()",
                  given, *present));
}

/// An array of the caller.
struct Array {
  void* data = nullptr;
  std::size_t count = 0;
  data::Dtype dtype{};
  cuda::Place place{};            ///< For kPinned, `device` is the stream's device.
  cuda::Stream stream = nullptr;  ///< For an array on a device, null is CUDA's default stream.
  /// Not null: this is the first of these arrays of one key, on different devices of this process,
  /// which DeviceGroup takes. A push sends their sum, a pull writes the value to all of them.
  std::shared_ptr<const std::vector<Array>> group = nullptr;

  [[nodiscard]] bool is_on_device() const { return place.kind == cuda::Place::Kind::kDevice; }
  /// Whether a call waits for the work on `stream`.
  [[nodiscard]] bool is_ordered() const { return is_on_device() || stream != nullptr; }
};

/// The names of a call's keys, and its arrays, one for each.
using Keys = std::vector<std::string>;
using Arrays = std::vector<Array>;

[[nodiscard]] inline std::size_t bytes_of(const Array& array) {
  return array.count * data::element_bytes(array.dtype);
}

/// Options of a call; a pull uses `priority` and `is_awaited`.
struct PushOptions {
  data::Reduce reduce = data::Reduce::kAuto;
  std::uint64_t samples = 1;
  std::uint64_t step = 0;
  float learning_rate = 0;
  int priority = 0;
  bool is_awaited = false;  ///< The caller calls wait() at once.
};

/// This worker's rank, epoch and world size in the present view.
struct View {
  Generation generation;
  Rank rank;
  std::uint32_t num_workers = 1;
  Epoch epoch;
  bool changed = false;
  bool rolled_back = false;
};

/// Why an array does not fit a key; empty: it fits.
[[nodiscard]] std::string array_mismatch(WorkerId worker, const data::KeySpec& key,
                                         const Array& array);

/// Used from one thread at a time.
class Store {
 public:
  virtual ~Store() = default;

  [[nodiscard]] virtual const std::string& type() const = 0;
  [[nodiscard]] virtual View view() const = 0;
  [[nodiscard]] virtual WorkerId worker() const = 0;
  [[nodiscard]] virtual bool is_newcomer() const = 0;
  [[nodiscard]] virtual bool is_lead() const = 0;

  virtual Status init(const Keys& keys, const Arrays& values, std::uint8_t flags) = 0;
  /// Begins a push of `values`, a pull into `out`, or both in one; null: not this one.
  virtual StoreResult<Handle> begin(const Keys& keys, const Arrays* values, const Arrays* out,
                                    const PushOptions& options) = 0;
  StoreResult<Handle> push(const Keys& keys, const Arrays& values, const PushOptions& options) {
    return begin(keys, &values, nullptr, options);
  }
  StoreResult<Handle> pull(const Keys& keys, const Arrays& out, const PushOptions& options) {
    return begin(keys, nullptr, &out, options);
  }
  StoreResult<Handle> pushpull(const Keys& keys, const Arrays& values, const Arrays& out,
                               const PushOptions& options) {
    return begin(keys, &values, &out, options);
  }
  /// Memory that the store owns: pushes from it and pulls into it need no copy if the server is on
  /// this host. Zeroed, page-aligned; valid until release() or the store's end.
  virtual StoreResult<void*> allocate(std::size_t bytes) = 0;
  /// Another owner of the memory from allocate() that begins at `memory`; null: there is none.
  [[nodiscard]] virtual std::shared_ptr<const void> owner_of(const void* memory) const = 0;
  /// Frees memory from allocate(). kInvalid: it is not from allocate(), or an operation on it is
  /// under way.
  virtual Status release(void* memory) = 0;
  /// <= 0: until it is done or the store breaks.
  virtual Status wait(Handle handle, double timeout_s) = 0;
  virtual Status wait_all(double timeout_s) = 0;
  /// Waits until the copies of the values to arrays on devices are on their streams: work that is
  /// put on the arrays' streams later comes after them. wait() is still needed.
  virtual Status wait_in_stream(Handle handle, double timeout_s) = 0;
  virtual Status set_optimizer(const std::string& spec) = 0;
  /// The servers' optimizer; empty: none.
  virtual StoreResult<std::string> optimizer() = 0;
  /// Which array of the optimizer's state.
  enum class State : std::uint8_t { kFirst = 1, kSecond = 2 };
  /// `updates` becomes the number of updates of each key.
  virtual Status pull_state(const Keys& keys, State which, const Arrays& out,
                            std::span<std::uint64_t> updates) = 0;
  virtual Status init_state(const Keys& keys, State which, const Arrays& values,
                            std::span<const std::uint64_t> updates) = 0;
  /// Applies from the next push on. Residuals stay for later compressed pushes of their keys.
  virtual Status set_gradient_compression(const std::string& spec) = 0;
  virtual Status barrier() = 0;
  /// The last push of a parameter was made; all workers may still push auxiliary keys.
  virtual Status finish_steps() = 0;
  virtual Status finish_epoch() = 0;
  /// Whether push, pull and pushpull take an array of several devices (Array::group).
  [[nodiscard]] virtual bool takes_groups() const { return false; }
  virtual StoreResult<View> epoch_boundary(Epoch epoch) = 0;
  virtual Status progress(Epoch epoch, std::uint64_t step) = 0;
  /// A figure for people; its name is valid.
  virtual Status report(const std::string& name, const Figure& value) = 0;
};

/// "local" and "device": one worker, in this process; the same rounds and arithmetic as a server's.
[[nodiscard]] std::unique_ptr<Store> make_local_store(std::string type);

}  // namespace dt::kv
