/// The facts about a job that go into the environment of a process when it starts.
#pragma once

#include "launcher/environment.h"
#include "supervisor/context/supervisor_context.h"

namespace dt::supervisor {

class HostLinks;

[[nodiscard]] launcher::ProcessFacts process_facts(const SupervisorContext& context,
                                                   const HostLinks& links, ProcessId process,
                                                   const Host& host);

}  // namespace dt::supervisor
