/// What dtctl add, remove, replace and leave ask for. leave gives a notice to the job; the others
/// edit host_worker, which stays the truth.
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

  /// The host of that name; nothing: there is no name.
  [[nodiscard]] Result<std::optional<Host>> named_host(
      const std::optional<std::string>& name) const;
  /// What to say of it, or nothing.
  Result<std::string> leave(const ControlAsk& ask);
  /// "add", "remove" and "replace": host_worker is edited, and not looked at yet. What to say of
  /// it, or nothing.
  io::awaitable<Result<std::string>> edit(ControlAsk ask);

 private:
  io::awaitable<Result<std::string>> replace(ControlAsk ask);
  /// Why no worker can be added there; empty: it can.
  [[nodiscard]] std::string why_not_there(const std::optional<Host>& host) const;
  [[nodiscard]] std::string why_not_replaced(const Host& from, const Host& to) const;
  /// Why the notice cannot be taken; empty: it can.
  [[nodiscard]] std::string objection(const ControlAsk& ask, const std::optional<Host>& host) const;

  SupervisorContext& context_;
  HostWorkerEditor editor_;
};

}  // namespace dt::supervisor
