/// A kvstore server: event loops, each with its own chunks and its own connections. It is
/// independent of agents and supervisors: commits come by commit().
///
/// One port. Loop 0 accepts and authenticates; a client names the loop it wants and its connection
/// then belongs to that loop alone. No lock is taken for a frame.
#pragma once

#include <functional>
#include <memory>

#include "kvstore/server/server_options.h"

namespace dt::kv {

/// Refused connections and requests, and other counts, since the start.
struct ServerCounters {
  std::uint64_t refused_strangers = 0;  ///< Handshakes that failed, timed out or made room.
  /// Authenticated connections that broke the protocol, a frame with a wrong tag among it, as this
  /// server or the worker saw it.
  std::uint64_t dropped_connections = 0;
  std::uint64_t nonfinite = 0;  ///< Elements of gradients that were infinite or NaN.
  std::uint64_t fenced = 0;     ///< Requests of workers that are not members.
  std::uint64_t in_place = 0;   ///< Contributions read in the device memory of their worker.
};

class Server {
 public:
  /// Listens and starts the loops' threads; kUnavailable names the address and port that are in
  /// use, or why the device cannot be used.
  [[nodiscard]] static Result<std::unique_ptr<Server>> start(ServerOptions options);
  /// Closes everything and joins the threads.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] std::uint16_t port() const;
  /// Any thread. `done` is called once, on a loop's thread, when every loop has applied the commit
  /// or knew it already; false: it was refused because a later one is known.
  void commit(const ServerCommit& commit, std::function<void(bool)> done);
  /// Any thread. Makes the loops publish their reports for the next traffic(); waits for none.
  void refresh();
  /// Any thread. The loops' last reports, and the workers whose connections were active since the
  /// last call; calls refresh() at its end. Contains the loops that are stuck; waits for none.
  [[nodiscard]] Traffic traffic();
  [[nodiscard]] ServerCounters counters() const;

 private:
  class Loop;
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dt::kv
