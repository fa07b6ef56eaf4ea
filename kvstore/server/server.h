/// A kvstore server: event loops, each with its own chunks and its own connections. It is
/// independent of agents and supervisors: commits come by commit().
///
/// One port. Loop 0 accepts and authenticates; a client names the loop it wants and its connection
/// then belongs to that loop alone. No lock is taken for a frame.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/id.h"
#include "core/base/result.h"
#include "core/base/time.h"
#include "core/protocol/control_messages.h"
#include "kvstore/link/data_auth.h"
#include "kvstore/server/shard.h"

namespace dt::kv {

struct ServerOptions {
  ServerId id;
  /// Index among the job's servers: server 0 has the key table and the barrier. None: the id, which
  /// equals the index until servers are replaced.
  std::optional<std::uint32_t> index;
  std::string bind = "127.0.0.1";  ///< Literal address: the only one it listens on.
  std::uint16_t port = 0;          ///< 0: any free one.
  std::string secret;              ///< 32 bytes.
  DataAuth data_auth = DataAuth::kAuto;
  std::uint32_t loops = 1;
  Duration busy_poll{};  ///< How long a loop polls before it sleeps.
  Duration stuck_after =
      std::chrono::seconds(3);  ///< A loop is stuck if it has not turned so long.
  Duration handshake_limit = std::chrono::seconds(5);
  /// Connections that are not authenticated yet; one more ends the oldest.
  std::size_t max_strangers = 64;
  ShardOptions shard;
  /// The CUDA device where the chunks have their memory; none: the host's.
  std::optional<int> device;
  std::uint32_t servers = 1;  ///< Number of the job's servers.
  std::string checkpoints;    ///< Folder of the job's checkpoints; empty: none are written.
  /// Called on any thread with the result of a checkpoint that a commit asked for.
  std::function<void(Saved)> on_saved;
};

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
