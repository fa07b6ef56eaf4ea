/// `--sync-dst-dir`: the working folder on a host before anything starts there.
#pragma once

#include <memory>
#include <string>

#include "core/base/result.h"
#include "core/files/hosts.h"
#include "io/semaphore.h"
#include "launcher/backend/backend.h"

namespace dt::launcher {

/// Hosts that are copied to at once: rsync logs in by an ssh process of its own, and by a second
/// one at a jump host, whose sshd drops some of more than 10 logins (MaxStartups).
constexpr std::size_t kSyncs = 8;

/// Copies the contents of `source` (without its .dtlaunch) into `destination` on the host: by rsync
/// where the backend has a way for it and both ends have it, else by tar as a command of the
/// backend's. Nothing is deleted there. The error names the host, with the end of the tool's
/// output. A slow copy has no deadline; a silent one ends. `window`: of the copies at once.
io::awaitable<Result<void>> sync_folder(Backend& backend, std::shared_ptr<io::Semaphore> window,
                                        Host host, std::string source, std::string destination);

}  // namespace dt::launcher
