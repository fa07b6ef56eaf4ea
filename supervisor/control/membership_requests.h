/// What dtctl add, remove and leave ask for. The first two edit host_worker, which stays the truth;
/// leave gives a notice to the job.
#pragma once

#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/files/hosts.h"
#include "supervisor/context/supervisor_context.h"
#include "supervisor/control/control_request.h"
#include "supervisor/control/host_worker_editor.h"

namespace dt::supervisor {

/// One thread. The context outlives it.
class MembershipRequests {
 public:
  explicit MembershipRequests(SupervisorContext& context) : context_(context), editor_(context) {}

  /// The reply.
  std::string leave(const ControlAsk& ask);
  /// "add" and "remove": host_worker is edited, and not looked at yet.
  io::awaitable<Result<void>> edit(ControlAsk ask);

 private:
  /// The host that a request names; nothing: it names none.
  [[nodiscard]] Result<std::optional<Host>> named_host(const ControlAsk& ask) const;
  /// Why the notice cannot be taken; empty: it can.
  [[nodiscard]] std::string objection(const ControlAsk& ask, const std::optional<Host>& host) const;

  SupervisorContext& context_;
  HostWorkerEditor editor_;
};

}  // namespace dt::supervisor
