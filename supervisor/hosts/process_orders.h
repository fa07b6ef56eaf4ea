/// Carries out the job's effects on processes: starts them with their environment, stops them, asks
/// for them, hands them messages. Agents do it; what they report comes back by AgentReports.
#pragma once

#include "core/job/events.h"
#include "core/protocol/control_messages.h"
#include "launcher/environment.h"
#include "supervisor/context/supervisor_context.h"

namespace dt::supervisor {

class AgentReports;
class HostLinks;
class ProcessOutput;

/// One thread. Everything given outlives it.
class ProcessOrders {
 public:
  ProcessOrders(SupervisorContext& context, HostLinks& links, ProcessOutput& output,
                AgentReports& reports)
      : context_(context), links_(links), output_(output), reports_(reports) {}

  void carry_out(const StartWorker& e);
  void carry_out(const StartServer& e);
  void carry_out(const Stop& e);
  void carry_out(const Inspect& e);
  void carry_out(const Acknowledge& e);
  void carry_out(const SendCommit& e);
  template <class Message>
  void carry_out(const SendToWorker<Message>& e) {
    send(e.host, {Role::kWorker, e.worker.value}, Message::kType, wire::body_of(e.message));
  }

 private:
  void start(const Host& host, StartProcess start, const launcher::ProcessFacts& facts);
  void send(const Host& host, ProcessId process, std::uint16_t type, std::string body);

  SupervisorContext& context_;
  HostLinks& links_;
  ProcessOutput& output_;
  AgentReports& reports_;
};

}  // namespace dt::supervisor
