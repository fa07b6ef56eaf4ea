#include "supervisor/hosts/job_hosts.h"

#include <utility>

#include "io/task_group.h"
#include "launcher/backend/backend.h"

namespace dt::supervisor {

JobHosts::JobHosts(SupervisorContext& context, launcher::Backend& backend, HostLinks::Sync sync,
                   ProcessOutput& output, JobFigures& figures)
    : context_(context),
      links_(context, backend, std::move(sync)),
      gate_(context),
      prepares_(context, links_, output, gate_),
      checkpoints_(context, links_, prepares_),
      reports_(context, links_, prepares_, checkpoints_, output, figures),
      orders_(context, links_, output, reports_) {
  links_.listener = &reports_;
}

void JobHosts::carry_out(const ReleaseHost& e) {
  links_.release(e.host);
  prepares_.forget(e.host);
}

void JobHosts::carry_out(const Prepare& e) { context_.tasks.spawn(prepares_.run(e.host)); }

void JobHosts::carry_out(const SealCheckpoint& e) { context_.tasks.spawn(checkpoints_.seal(e)); }

}  // namespace dt::supervisor
