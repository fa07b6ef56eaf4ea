#include "supervisor/hosts/job_hosts.h"

#include <utility>

#include "io/task_group.h"
#include "launcher/backend/backend.h"

namespace dt::supervisor {

JobHosts::JobHosts(Shell& shell, launcher::Backend& backend, HostLinks::Sync sync,
                   ProcessOutput& output, Pulse& pulse)
    : shell_(shell),
      links_(shell, backend, std::move(sync)),
      gate_(shell),
      prepares_(shell, links_, output, gate_),
      checkpoints_(shell, links_, prepares_),
      reports_(shell, links_, prepares_, checkpoints_, output, pulse),
      orders_(shell, links_, output, reports_) {
  links_.listener = &reports_;
}

void JobHosts::carry_out(const ReleaseHost& e) {
  links_.release(e.host);
  prepares_.forget(e.host);
}

void JobHosts::carry_out(const Prepare& e) { shell_.tasks.spawn(prepares_.run(e.host)); }

void JobHosts::carry_out(const SealCheckpoint& e) { shell_.tasks.spawn(checkpoints_.seal(e)); }

}  // namespace dt::supervisor
