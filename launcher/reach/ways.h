/// How this machine reaches the hosts of a job: each by ssh, by a starter's program, or here.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/asio.h"
#include "io/job/spec.h"
#include "io/log.h"
#include "launcher/backend/ways.h"

namespace dt::launcher {

/// The programs for hosts, from this program's folder, and where it is there the Python package
/// with its library. The programs need no library that a host with glibc and an sshd lacks.
[[nodiscard]] std::vector<std::string> bundle_files();

/// The ways of the spec's hosts. `context` and `log` outlive them.
[[nodiscard]] std::unique_ptr<WaysBackend> make_ways(io::asio::io_context& context,
                                                     const io::JobSpec& spec, io::Log& log);

}  // namespace dt::launcher
