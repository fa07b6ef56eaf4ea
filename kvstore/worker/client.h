/// dist_sync and dist_async: a worker's library.
///
/// Threads: one event loop owns the connections (one per server loop), the chunks' rounds and the
/// job link. Whoever waits for something runs it, else a thread of our own (event_loop.h).
/// Gradients go out of and values into the caller's memory without a copy.
///
/// Per chunk, one request is on its way at a time: the next round's push waits for this round's
/// answer. Per connection, requests go out by priority, at most a window of bytes queued; how many
/// await answers is not limited, since other workers may send in another order. What is unanswered
/// when a connection breaks is sent again, in the order it was sent first.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/base/result.h"
#include "kvstore/compute/cuda/local_group.h"
#include "kvstore/link/transport.h"
#include "kvstore/store.h"

namespace dt::kv {

class JobLink;

struct ClientOptions {
  std::string type = "dist_sync";
  bool async = false;
  WorkerId worker;
  Rank rank;                      ///< Prediction.
  std::uint32_t num_workers = 1;  ///< Prediction.
  bool newcomer = false;
  std::string secret;  ///< 32 bytes.
  Transport transport = Transport::kAuto;
  /// Smaller chunks travel by TCP: their bytes are no more than what would be said about them.
  std::size_t share_from = std::size_t{16} << 10;
  /// Servers, by their index, to try to share memory with; empty: all. (A benchmark plays several
  /// hosts on one.)
  std::function<bool(std::uint32_t server)> may_share;
  std::uint64_t chunk_bytes = std::uint64_t{1} << 20;
  Duration start_limit = std::chrono::seconds(600);
  /// A server gone for longer breaks the store. A lost one's host is given up by the supervisor
  /// after up to half a minute, and others have to be started then, before we hear of them.
  Duration lost_limit = std::chrono::seconds(60);
  Duration close_limit = std::chrono::seconds(5);
  /// Lost servers of this host that keep this worker's memory open for longer (a process that
  /// cannot be killed, in an uninterruptible wait) end this process: they could write there later.
  Duration let_go_limit = std::chrono::seconds(30);
  /// Ends this process; none: it says why on stderr, and exits with 1 at once.
  std::function<void(const std::string& why)> end_process;
  cuda::LocalGroup::Options replicas{};  ///< What several GPUs of this process sum with.
  Duration busy_poll{};                  ///< How long a waiting caller polls before it sleeps.
  Duration report_every = std::chrono::seconds(10);  ///< Who waits for whom, on stderr.
};

/// Says OpenedKvStore, waits for the servers, connects to all of their loops.
[[nodiscard]] StoreResult<std::unique_ptr<Store>> open_client(ClientOptions options,
                                                              std::unique_ptr<JobLink> job);

/// The same from the environment that the supervisor and the agent gave this process.
[[nodiscard]] StoreResult<std::unique_ptr<Store>> open_client_from_environment(
    const std::string& type);

}  // namespace dt::kv
