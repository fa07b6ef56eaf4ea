/// Login of a user on a host: by key files, then by the ssh-agent. Never by a password, never with
/// a question on the terminal.
#pragma once

#include <string>
#include <vector>

#include "io/asio.h"
#include "io/thread_pool.h"
#include "launcher/backend/ssh/key_store.h"
#include "launcher/backend/ssh/session.h"

namespace dt::launcher {

struct AuthPlan {
  std::string user;
  std::string copy_words;  ///< What ssh-copy-id is told of the host.
  std::vector<std::string> identity_files;
  /// Offered with their keys, before those alone.
  std::vector<std::string> certificate_files;
  bool usual_files = false;      ///< The defaults: they may be missing.
  bool identities_only = false;  ///< Use only those keys of the agent that identity_files name.
  std::string agent_socket;      ///< Empty: no agent.
  Duration agent_deadline = std::chrono::seconds(15);
};

/// The certificate that ssh-keygen -s writes for a key file; it need not exist.
[[nodiscard]] std::string certificate_beside(const std::string& key_file);

/// How a login ended that was not accepted.
struct Refusal {
  std::string user;
  std::string copy_words;             ///< As in the plan.
  std::vector<std::string> tried;     ///< The keys and certificates that the server was shown.
  std::vector<std::string> unusable;  ///< What could not be shown, and why.
  std::string certificate;            ///< The last one that was refused; empty: none was.
  std::vector<std::string> methods;   ///< What the server offers; only if nothing was tried.
  std::string ended;                  ///< Why the server ended the connection; empty: it did not.
  bool wants_more = false;            ///< A key was accepted, and the server wants a further proof.
};
/// Says what was tried, and what is to be done about it.
[[nodiscard]] Error refusal_error(const Refusal& refusal);

/// Offers the key files first (the agent is not asked if one of them is accepted), then the agent's
/// keys. The error lists what was tried and what could not be. The session's own deadline is the
/// caller's.
io::awaitable<Result<void>> authenticate(SessionPtr session, AuthPlan plan, KeyStore& keys,
                                         io::ThreadPool& threads);

}  // namespace dt::launcher
