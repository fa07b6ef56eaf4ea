/// The facts about a job that go into the environment of a process when it starts.
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
