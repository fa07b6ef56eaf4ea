/// Whether hosts have the folder that processes start in, before anything is started there: a
/// volume that was not mounted is a host's failure, with that for a reason, and no worker in a home
/// folder.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/files/hosts.h"
#include "core/protocol/control_messages.h"

namespace dt::supervisor {

/// Bookkeeping alone: the supervisor asks the agents and acts. One thread.
class FolderChecks {
 public:
  /// `folder`: empty, and nothing is ever asked.
  explicit FolderChecks(std::string folder) : folder_(std::move(folder)) {}
  [[nodiscard]] const std::string& folder() const { return folder_; }

  /// An agent is attached. True: it has to be asked, and `state` is kept until it has answered.
  [[nodiscard]] bool begin(const Host& host, const AgentState& state, Time now);
  /// The agent that waits on this host for its answer: what it said when it was attached. Once.
  [[nodiscard]] std::optional<AgentState> take(const Host& host);
  /// The host has the folder: its present agent is not asked again.
  void passed(const Host& host, const AgentState& state);
  /// Hosts that were asked and have not answered for so long that their volume must be stalled.
  [[nodiscard]] std::vector<Host> overdue(Time now) const;

  /// Why a host cannot serve, and what to do; `error`: of the agent's try to enter the folder.
  [[nodiscard]] std::string trouble(int error) const;
  [[nodiscard]] std::string silence() const;

 private:
  struct Asked {
    AgentState state;
    Time at{};
  };
  std::string folder_;
  std::map<Host, Asked> asked_;
  std::map<Host, std::uint64_t> passed_;  ///< Incarnation of the agent that said so.
};

}  // namespace dt::supervisor
