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
  /// `folder`: if empty, no agent is asked.
  explicit FolderChecks(std::string folder) : folder_(std::move(folder)) {}
  [[nodiscard]] const std::string& folder() const { return folder_; }

  /// An agent is attached. True if it must be asked; `state` is kept until it has answered.
  [[nodiscard]] bool begin(const Host& host, const AgentState& state, Time now);
  /// The kept state of the agent whose answer is pending on this host. Once.
  [[nodiscard]] std::optional<AgentState> take(const Host& host);
  /// The host has the folder: its current agent is not asked again.
  void passed(const Host& host, const AgentState& state);
  /// Hosts whose answer is so late that their volume must be stalled.
  [[nodiscard]] std::vector<Host> overdue(Time now) const;

  /// Why a host cannot be used, and the remedy; `error`: errno of the agent's entering the folder.
  [[nodiscard]] std::string trouble(int error) const;
  [[nodiscard]] std::string silence() const;

 private:
  struct Asked {
    AgentState state;
    Time at{};
  };
  std::string folder_;
  std::map<Host, Asked> asked_;
  std::map<Host, std::uint64_t> passed_;  ///< Incarnation of the agent that answered.
};

}  // namespace dt::supervisor
