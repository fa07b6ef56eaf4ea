/// A separate network namespace for a fair comparison on one machine.
#pragma once

#include <string>

namespace dt::bench {

/// Moves this process and its future children into a network namespace with nothing but loopback,
/// whose default congestion control is reno: peers cannot choose theirs, and the default of many
/// machines (bbr) halves loopback's rate. Needs root. Returns what came of it, for the report:
/// "reno, in a network namespace of its own" or "bbr (no root: ...)". Before the first thread.
[[nodiscard]] std::string isolate_network();

/// The present default congestion control.
[[nodiscard]] std::string congestion_control();

}  // namespace dt::bench
