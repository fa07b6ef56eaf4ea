/// All that a check has found out about the hosts of a job, before it is judged. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/files/hosts.h"
#include "core/preflight/preflight_messages.h"

namespace dt::preflight {

/// Nothing: it was not asked.
template <class Facts>
using Found = std::optional<Result<Facts>>;

struct ClockFacts {
  double offset_s = 0;  ///< The host's clock minus the master's.
  double error_s = 0;
};

struct HostFindings {
  Host host;
  std::optional<Error> unreachable;  ///< Then nothing below was asked.
  Found<CommandFacts> command;
  Found<VolumeFacts> volume;
  /// The master has not seen the host's own word, and why.
  std::string unseen;
  /// Files of the host on the volume belong to this other user of the master.
  std::optional<std::uint32_t> squashed_to;
  Found<ClockFacts> clock;
  Found<MachineFacts> machine;
  Found<GpuFacts> gpus;
  Found<Listening> listening;
};

/// From one host to a port of another, by their places in Findings::hosts.
struct Way {
  std::size_t from = 0;
  std::size_t to = 0;
  std::string address;
  std::uint16_t port = 0;
  std::string why_not;  ///< Empty: it was reached.
};

/// Between two hosts, in the slower direction.
struct Speed {
  std::size_t from = 0;
  std::size_t to = 0;
  std::string why;  ///< Not empty: it was not measured.
  double latency_us = 0;
  double bytes_per_second = 0;
};

struct Findings {
  std::string command;       ///< The first word, as the user wrote it.
  std::string program;       ///< It, where its Python environment is activated here; or empty.
  std::string folder;        ///< The job folder.
  std::string mount;         ///< What is mounted there on the master.
  bool needs_volume = true;  ///< Servers save checkpoints there.
  std::vector<HostFindings> hosts;
  std::vector<Way> ways;
  std::vector<Speed> speeds;
};

}  // namespace dt::preflight
