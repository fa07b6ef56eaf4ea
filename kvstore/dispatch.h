/// A worker's operations on their way: the requests for a chunk take turns, go to its server, and
/// complete with the answers.
///
/// Threads: as in server_links.h.
#pragma once

#include <optional>
#include <vector>

#include "kvstore/operations.h"
#include "kvstore/request.h"
#include "kvstore/server_links.h"

namespace dt::kv {

class Dispatch {
 public:
  Dispatch(ServerLinks& links, io::asio::io_context& context, Driver& driver)
      : links_(links), context_(context), driver_(driver) {}

  // ---- the caller
  /// Begins an operation of requests that belong to chunks. `memories`: those of the store's own
  /// that it reads or writes.
  StoreResult<Handle> hand_over(std::vector<Request> requests,
                                std::vector<std::uint32_t> memories = {});
  Status wait(Handle handle, double timeout_s);
  Status wait_all(double timeout_s);
  /// An operation that is under way and uses the memory.
  [[nodiscard]] std::optional<Handle> user_of(std::uint32_t memory) const {
    return operations_.user_of(memory);
  }

  // ---- the loop
  void on_answer(Request request, Outcome outcome);
  /// Requests that the links gave back: they, and what waits for its turn behind them, complete
  /// with the error.
  void give_up(const std::vector<Request>& unanswered, const StoreError& error);

 private:
  void start(Handle handle, std::vector<Request> requests);
  void send(std::optional<Request> request);

  ServerLinks& links_;
  io::asio::io_context& context_;
  Driver& driver_;
  Operations operations_;
};

}  // namespace dt::kv
