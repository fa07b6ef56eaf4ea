/// Whether a server is the right one, by its key and known_hosts.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "launcher/backend/ssh/known_hosts.h"
#include "launcher/backend/ssh/once_log.h"
#include "launcher/backend/ssh/session.h"
#include "launcher/backend/ssh/target.h"

namespace dt::launcher {

class HostKeys {
 public:
  explicit HostKeys(OnceLog& log) : log_(&log) {}

  /// libssh's list of key types to ask for. The types of known keys come first, so that a server
  /// with several keys shows one that can be checked.
  [[nodiscard]] std::string types(const Target& target);
  /// After the handshake. Adds the key of a new host where the policy allows it.
  [[nodiscard]] Result<void> check(SshSession& session, const Target& target);

 private:
  KnownHosts& known_hosts(const Target& target);

  OnceLog* log_;
  std::map<std::vector<std::string>, KnownHosts> known_;  ///< By the list of files.
};

}  // namespace dt::launcher
