/// What a server is started with.
#pragma once

#include <functional>
#include <optional>
#include <string>

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

}  // namespace dt::kv
