/// TCP ports that an agent keeps for programs of its job, which listen on a number that they were
/// started with: MASTER_PORT, DMLC_PS_ROOT_PORT.
///
/// A port is bound and not listened on, so that neither the kernel nor another job's agent uses it
/// until the program that is to listen there is executed. It lies below the range from which the
/// kernel takes ports for outgoing connections, so that none of those takes it between the exec and
/// the program's own bind.
#pragma once

#include <array>
#include <cstdint>
#include <set>

#include "core/protocol/control_messages.h"
#include "io/fd.h"

namespace dt::launcher {

/// Numbers from `first` up to `end`, which is not one of them.
struct PortRange {
  std::uint32_t first = 0;
  std::uint32_t end = 0;
};

/// From 16384 to the floor of net.ipv4.ip_local_port_range; empty where that is lower.
[[nodiscard]] PortRange ports_to_keep();

class KeptPorts {
 public:
  /// Takes both. Where none of `range` is free the kernel chooses; where it has none, the number is
  /// 0.
  explicit KeptPorts(PortRange range);

  [[nodiscard]] std::uint16_t master() const { return kept_[0].number; }
  [[nodiscard]] std::uint16_t root() const { return kept_[1].number; }
  /// Closes them here: a child that was forked before holds them until its exec.
  void give(Port which);
  /// Keeps the same numbers again if no program listens there, else others; of kBothOnce always
  /// others, which were never kept before. True if a number changed.
  bool take_again(Port which);

 private:
  struct Kept {
    io::Fd socket;  ///< None while it is given.
    std::uint16_t number = 0;
  };
  void take(Kept& kept);

  PortRange range_;
  std::array<Kept, 2> kept_;      ///< MASTER_PORT, DMLC_PS_ROOT_PORT.
  std::set<std::uint16_t> used_;  ///< Never kept again.
};

}  // namespace dt::launcher
