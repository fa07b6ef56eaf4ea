/// What the environment of a process says about the job, at the moment of its start.
#pragma once

#include <string>

#include "core/job/job.h"
#include "io/job/spec.h"
#include "launcher/environment.h"
#include "supervisor/hosts/host_links.h"

namespace dt::supervisor {

[[nodiscard]] launcher::ProcessFacts process_facts(const io::JobSpec& spec, const Job& job,
                                                   const HostLinks& links,
                                                   const std::string& secret, ProcessId process,
                                                   const Host& host);

}  // namespace dt::supervisor
