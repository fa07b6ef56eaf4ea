/// Sends a worker's operations: the requests for a chunk take turns, go to its server, and complete
/// with the answers.
///
/// Threads: as in server_links.h.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "kvstore/worker/device/copies.h"
#include "kvstore/worker/links/request.h"
#include "kvstore/worker/links/server_links.h"
#include "kvstore/worker/operations.h"

namespace dt::kv {

class Dispatch final : private DeviceCopies::Owner {
 public:
  using GiveBack = std::function<void(const std::vector<MemoryPlace>& staged)>;
  /// `on_copied` is called on the loop when copies to or from devices have ended; `give_back` on
  /// the caller's thread when an operation was waited for.
  Dispatch(WorkerId worker, ServerLinks& links, EventLoop& loop, cuda::LocalGroup::Options group,
           std::function<void()> on_copied, GiveBack give_back);

  // ---- the caller
  /// Records the work that is on the array's stream now; an operation on the array waits for it.
  StoreResult<std::shared_ptr<DeviceCall>> begin_call(const Array& array) {
    return copies_.begin_call(array);
  }
  /// Begins an operation of requests that belong to chunks.
  StoreResult<Handle> hand_over(std::vector<Request> requests, Operations::Uses uses = {});
  Status wait(Handle handle, double timeout_s);
  Status wait_in_stream(Handle handle, double timeout_s);
  Status wait_all(double timeout_s);
  /// An operation that is not done and uses the memory.
  [[nodiscard]] std::optional<Handle> user_of(std::uint32_t memory) const {
    return operations_.user_of(memory);
  }

  /// Completes everything with the error, for good. Any thread.
  void break_store(const StoreError& error);

  // ---- the loop
  void on_answer(Request request, Outcome outcome);
  /// The requests that the links returned, and those that wait for a turn behind them, complete
  /// with the error.
  void give_up(const std::vector<Request>& unanswered, const StoreError& error);
  /// Requests are being copied to or from arrays on devices. They end by themselves, with the
  /// links' error if there is one.
  [[nodiscard]] bool is_copying() const { return !copies_.is_idle(); }

 private:
  void on_in(Request request, std::optional<StoreError> error) override;
  void on_out_started(const Request& request) override;
  void on_out(Request request, Outcome outcome, std::optional<StoreError> error) override;
  void on_looked() override;

  template <class Over>
  Status run_until(Over is_over, double timeout_s);
  void start(Handle handle, std::vector<Request> requests);
  void send(std::optional<Request> request);
  void give_up_one(const Request& request, const StoreError& error, bool was_in_stream);
  void finish(const Request& request, const Outcome& outcome, std::optional<StoreError> error,
              bool was_in_stream);

  ServerLinks& links_;
  EventLoop& loop_;
  Operations operations_;
  std::function<void()> on_copied_;
  GiveBack give_back_;
  DeviceCopies copies_;
};

}  // namespace dt::kv
