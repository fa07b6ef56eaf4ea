/// The settings that the supervisor and the agent put into this process's environment (DT_*).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "core/base/result.h"
#include "core/base/time.h"
#include "core/protocol/control_messages.h"
#include "io/job/data_options.h"
#include "kvstore/link/data_auth.h"
#include "kvstore/link/transport.h"

namespace dt::kv {

struct AgentAddress {
  std::string path;  ///< $DT_AGENT_SOCKET
  ProcessId process;
  std::string token;  ///< $DT_TOKEN
  /// After so long without an agent the job has ended: agents outlive supervisors.
  Duration orphan_limit = std::chrono::seconds(300);
};

struct JobEnvironment {
  AgentAddress agent;
  std::string secret;    ///< 32 bytes.
  std::uint32_t id = 0;  ///< Worker or server id.
  std::uint32_t rank = 0;
  std::uint32_t num_workers = 1;
  std::uint32_t max_workers = 0;  ///< The most workers that a server expects; 0: unknown.
  std::uint32_t num_servers = 0;
  std::uint32_t server_index = 0;  ///< Index among the job's servers.
  bool newcomer = false;
  std::string bind;         ///< Literal address that a server binds and the workers connect to.
  std::string checkpoints;  ///< A server's folder for checkpoints; empty: none are written.
  std::string restore;      ///< The folder of the checkpoint a server begins with; empty: none.
  Transport transport = Transport::kAuto;
  DataAuth data_auth = DataAuth::kAuto;
  io::DataOptions data;  ///< Its server_port is this server's own.
  Duration start_timeout = std::chrono::seconds(600);
  Duration server_dead_after = std::chrono::seconds(3);
  std::uint32_t verbose = 0;  ///< $PS_VERBOSE; from 1 on connections are shown on stderr.

  [[nodiscard]] Duration busy_poll() const { return std::chrono::microseconds(data.busy_poll_us); }
};

/// The IPv4 address of a network interface of this machine, else a global IPv6 one. Without an
/// interface of that name, the first whose name begins with it counts, as in ps-lite.
[[nodiscard]] Result<std::string> interface_address(const std::string& name);

/// kInvalid names the first variable that is missing or malformed: this process was not started
/// for that role by dtlaunch.
[[nodiscard]] Result<JobEnvironment> read_environment(Role role);

}  // namespace dt::kv
