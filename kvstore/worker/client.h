/// The stores dist_sync and dist_async: a worker's library.
///
/// Threads: one event loop owns the connections (one per server loop), the chunks' rounds and
/// the JobControl (kvstore/link/agent_socket). A thread that waits in a call runs the loop; between
/// calls the loop's own thread does (event_loop.h). Gradients are sent from the caller's memory,
/// and values received into it, without a copy.
///
/// Per chunk, one request is in flight at a time: the next round's push waits for this round's
/// answer. Per connection, requests are sent by priority, with at most a window of bytes queued;
/// the number of unanswered requests is not limited, since other workers may send in another order.
/// After a connection breaks, unanswered requests are sent again in their original order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "kvstore/compute/cuda/local_group.h"
#include "kvstore/link/data_auth.h"
#include "kvstore/link/transport.h"
#include "kvstore/store.h"

namespace dt::kv {

class JobControl;

struct ClientOptions {
  std::string type = "dist_sync";
  bool async = false;
  WorkerId worker;
  Rank rank;                      ///< Prediction.
  std::uint32_t num_workers = 1;  ///< Prediction.
  bool newcomer = false;
  std::string secret;  ///< 32 bytes.
  DataAuth data_auth = DataAuth::kAuto;
  Transport transport = Transport::kAuto;
  /// Bytes. Smaller chunks travel by TCP: a message that describes shared memory saves nothing.
  std::size_t share_from = std::size_t{16} << 10;
  /// Whether to try to share memory with the server of this index; empty: all. (A benchmark
  /// emulates several hosts on one.)
  std::function<bool(std::uint32_t server)> may_share;
  std::optional<std::uint64_t> chunk_bytes;  ///< Nothing: as it suits the servers' addresses.
  Duration start_limit = std::chrono::seconds(600);
  /// A server that is unreachable for longer breaks the store. The supervisor needs up to half a
  /// minute to give up a lost server's host, and then starts other servers before it announces
  /// them.
  Duration lost_limit = std::chrono::seconds(60);
  /// A connection that leaves a heartbeat unanswered for so long, while no byte of it moves, is
  /// made anew.
  Duration answer_limit = std::chrono::seconds(3);
  Duration close_limit = std::chrono::seconds(5);
  /// If lost servers of this host keep this worker's memory open for longer (a process in an
  /// uninterruptible wait cannot be killed), this process ends: they could write there later.
  Duration let_go_limit = std::chrono::seconds(30);
  /// Ends this process; none: writes the reason to stderr and exits with 1 at once.
  std::function<void(const std::string& why)> end_process;
  cuda::LocalGroup::Options device_group{};  ///< For sums over several GPUs of this process.
  Duration busy_poll{};                      ///< How long a waiting caller polls before it sleeps.
  Duration report_every = std::chrono::seconds(10);  ///< Between reports of waits, on stderr.
  bool shows_connections = false;                    ///< On stderr, as they come and go.
};

/// Sends OpenedKvStore, waits for the servers, connects to all of their loops.
[[nodiscard]] StoreResult<std::unique_ptr<Store>> open_client(ClientOptions options,
                                                              std::unique_ptr<JobControl> job);

/// The same from the environment that the supervisor and the agent gave this process.
[[nodiscard]] StoreResult<std::unique_ptr<Store>> open_client_from_environment(
    const std::string& type, std::optional<std::uint64_t> chunk_bytes = std::nullopt);

}  // namespace dt::kv
