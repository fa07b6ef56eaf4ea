/// The check of one host that is added to a running job, in a process of its own: what it does on
/// the volume may block for as long as that stalls. The supervisor starts it and asks once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/files/hosts.h"
#include "core/preflight/newcomer.h"
#include "launcher/check/check.h"

namespace dt::launcher {

struct GateRequest {
  static constexpr std::uint16_t kType = 1;
  std::string spec;  ///< As JSON.
  Host host;
  std::vector<ServerPlace> servers;  ///< CheckPlan::servers
  std::vector<Host> peers;           ///< CheckPlan::peers
};

struct GateReply {
  static constexpr std::uint16_t kType = 2;
  std::vector<std::string> failed;  ///< See preflight::NewcomerVerdict.
  std::vector<std::string> warnings;
};

/// Reads a frame with the request from `in`, writes one with the reply to `out`. Gives up when `in`
/// ends. The exit code.
int gate_main(int in, int out);

}  // namespace dt::launcher
