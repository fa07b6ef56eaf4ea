/// How this machine reaches the hosts of a job: each by ssh, by a starter's program, or here.
#pragma once

#include <memory>

#include "io/asio.h"
#include "io/job/spec.h"
#include "io/log.h"
#include "launcher/backend/backend.h"

namespace dt::launcher {

/// The ways of the spec's hosts: each host by a backend of its own way, which is made when first
/// needed. `context` and `log` outlive them.
[[nodiscard]] std::unique_ptr<Backend> make_ways(io::asio::io_context& context,
                                                 const io::JobSpec& spec, io::Log& log);

}  // namespace dt::launcher
