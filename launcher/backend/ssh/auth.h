/// Proving who we are: key files, imported once per process, then the ssh-agent. Never a password,
/// never a question on the terminal.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/asio.h"
#include "io/thread_pool.h"
#include "launcher/backend/ssh/session.h"

struct ssh_key_struct;

namespace dt::launcher {

struct FreeKey {
  void operator()(ssh_key_struct* key) const;
};
using SshKey = std::unique_ptr<ssh_key_struct, FreeKey>;

/// Private keys by path, read once.
class KeyStore {
 public:
  struct Entry {
    std::string path;
    SshKey key;           ///< Null when it cannot be used.
    std::string base64;   ///< Public part, also of an encrypted key when its .pub file is there.
    std::string problem;  ///< Why it cannot be used; empty when the file does not exist.
    bool exists = false;
  };
  const Entry& get(const std::string& path);

 private:
  std::map<std::string, Entry> entries_;
};

struct AuthPlan {
  std::string user;
  std::vector<std::string> identity_files;
  bool usual_files = false;      ///< Nobody named them: they may be missing.
  bool identities_only = false;  ///< Of the agent's keys use only those of identity_files.
  std::string agent_socket;      ///< Empty: no agent.
  Duration agent_deadline = std::chrono::seconds(15);
};

/// Key files first (no agent is asked while one of them will do), then the agent's keys. The error
/// lists what was tried and what could not be. The session's own deadline is the caller's.
io::awaitable<Result<void>> authenticate(std::shared_ptr<SshSession> session, AuthPlan plan,
                                         KeyStore& keys, ThreadPool& threads);

/// Public keys an agent holds.
struct AgentIdentity {
  std::string blob;
  std::string comment;
};
io::awaitable<Result<std::vector<AgentIdentity>>> agent_identities(std::string socket_path,
                                                                   Duration deadline);

}  // namespace dt::launcher
