/// The newcomers' gate of a job with --preflight: each added host is checked by a process of its
/// own (launcher/check/gate.h) before anything is started there.
#pragma once

#include <memory>

#include "io/asio.h"
#include "io/semaphore.h"
#include "launcher/check/gate.h"
#include "supervisor/context/supervisor_context.h"

namespace dt::supervisor {

/// One thread. The context outlives it.
class Gate {
 public:
  explicit Gate(SupervisorContext& context);

  /// Whether the host is one that was added, to a job with --preflight.
  [[nodiscard]] bool is_for(const Host& host) const;
  /// Checks the host. An answer after kDeadline at the latest, where few wait for their turn.
  io::awaitable<launcher::GateReply> pass(Host host);

 private:
  [[nodiscard]] launcher::GateRequest request_for(const Host& host) const;
  io::awaitable<Result<launcher::GateReply>> ask(launcher::GateRequest request);

  SupervisorContext& context_;
  std::shared_ptr<io::Semaphore> turns_;
};

}  // namespace dt::supervisor
