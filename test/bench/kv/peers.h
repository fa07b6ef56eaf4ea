/// Other libraries that the kvstore can be compared with.
#pragma once

#include <string>
#include <vector>

#include "core/base/result.h"
#include "test/bench/kv/contender.h"

namespace dt::bench {

struct Peer {
  const char* name;
  const char* help;
  Contender (*start)(const Peer& peer, const KvOptions& options, const TensorList& list);
  const char* program = nullptr;  ///< In dtbench's folder; null: part of dtbench.
  const char* package = nullptr;  ///< The package that the program needs to be built and run.
};

/// The kvstore itself without some of the options: the ratio is their cost.
inline constexpr const char* kPlainPeer = "plain";
/// The same without devices.
inline constexpr const char* kCpuPeer = "cpu";
[[nodiscard]] KvOptions without_devices(KvOptions options);

[[nodiscard]] const std::vector<Peer>& known_peers();
/// An error if the peer is unknown or not installed.
[[nodiscard]] Result<void> check_peer(const std::string& name);
/// `peer` has passed check_peer().
[[nodiscard]] Contender start_peer(const std::string& peer, const KvOptions& options,
                                   const TensorList& list);

}  // namespace dt::bench
