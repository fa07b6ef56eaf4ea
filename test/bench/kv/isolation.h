/// Separate network namespaces for a fair comparison on one machine.
#pragma once

#include <memory>
#include <string>

#include "core/base/result.h"
#include "io/fd.h"

namespace dt::bench {

/// Moves this process and its future children into a network namespace with nothing but loopback,
/// whose default congestion control is reno: peers cannot choose theirs, and the default of many
/// machines (bbr) halves loopback's rate. Needs root. Returns what came of it, for the report:
/// "reno, in a network namespace of its own" or "bbr (no root: ...)". Before the first thread.
[[nodiscard]] std::string isolate_network();

/// A network namespace for the servers, joined with that of this process by a link (veth).
struct ServerNetwork {
  io::Fd name_space;
  std::string address;  ///< The servers' end.
};

/// After isolate_network(); before the first thread. The error is why there is none: no root, no
/// iproute2, no veth.
[[nodiscard]] Result<std::shared_ptr<const ServerNetwork>> make_server_network();

/// Moves this process, which has one thread, into the servers' network.
[[nodiscard]] Result<void> enter(const ServerNetwork& network);

/// The present default congestion control.
[[nodiscard]] std::string congestion_control();

}  // namespace dt::bench
