/// `--sync-dst-dir`: the working folder on a host before anything starts there.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>

#include "core/base/result.h"
#include "core/files/hosts.h"
#include "launcher/backend/ssh/ssh.h"

namespace dt::launcher {

/// Copies the contents of `source` (without its .dtlaunch) into `destination` on the host: by rsync
/// where both ends have it, else by tar over our own connection. Nothing is deleted there. The
/// error names the host, with the end of the tool's output. A slow copy has no deadline; a silent
/// connection ends it.
boost::asio::awaitable<Result<void>> sync_folder(SshBackend& backend, Host host, std::string source,
                                                 std::string destination);

}  // namespace dt::launcher
