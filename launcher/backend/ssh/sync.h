/// `--sync-dst-dir`: the working folder on a host before anything starts there.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <string>

#include "core/base/result.h"
#include "core/files/hosts.h"
#include "io/semaphore.h"
#include "launcher/backend/ssh/ssh.h"

namespace dt::launcher {

/// Hosts that are copied to at once: rsync logs in by an ssh process of its own, and by a second
/// one at a jump host, whose sshd drops some of more than 10 logins (MaxStartups).
constexpr std::size_t kSyncs = 8;

/// Copies the contents of `source` (without its .dtlaunch) into `destination` on the host: by rsync
/// where both ends have it, else by tar over our own connection. Nothing is deleted there. The
/// error names the host, with the end of the tool's output. A slow copy has no deadline; a silent
/// connection ends it. `window`: of the copies at once.
boost::asio::awaitable<Result<void>> sync_folder(SshBackend& backend,
                                                 std::shared_ptr<io::Semaphore> window, Host host,
                                                 std::string source, std::string destination);

}  // namespace dt::launcher
