/// The user's ssh-agent, spoken to without blocking the loop.
#pragma once

#include <string>
#include <vector>

#include "io/asio.h"
#include "io/thread_pool.h"
#include "launcher/backend/ssh/session.h"

namespace dt::launcher {

/// A public key that an agent holds, or a certificate for one.
struct AgentIdentity {
  std::string blob;
  std::string comment;
  std::string held_as;  ///< The key's blob, where the agent does not hold the certificate `blob`.

  /// The blob as key files have it.
  [[nodiscard]] std::string base64() const;
};

io::awaitable<Result<std::vector<AgentIdentity>>> agent_identities(std::string socket_path,
                                                                   Duration deadline);

/// Offers `identities` to the server: libssh's return code. `problem`: the agent's last failure to
/// sign. libssh's agent code blocks, so it runs on one of `threads`.
io::awaitable<int> authenticate_by_agent(SessionPtr session, std::string agent_socket,
                                         Duration deadline, std::vector<AgentIdentity> identities,
                                         io::ThreadPool& threads, std::string& problem);

}  // namespace dt::launcher
