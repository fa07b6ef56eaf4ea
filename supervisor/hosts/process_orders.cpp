#include "supervisor/hosts/process_orders.h"

#include <chrono>
#include <utility>

#include "core/job/job.h"
#include "supervisor/hosts/links.h"
#include "supervisor/hosts/process_facts.h"
#include "supervisor/hosts/reports.h"
#include "supervisor/volume/output.h"

namespace dt::supervisor {

void ProcessOrders::carry_out(const StartWorker& e) {
  const io::JobSpec& spec = context_.spec;
  StartProcess worker;
  worker.process = {Role::kWorker, e.worker.value};
  worker.argv = spec.command;
  worker.cwd = context_.folder();
  const bool is_group = spec.rules.on_change == OnChange::kRestart;
  if (e.rank == Rank(0))
    worker.ports = spec.dmlc_roles ? Port::kMaster : is_group ? Port::kBothOnce : Port::kBoth;
  launcher::ProcessFacts facts = process_facts(context_, links_, worker.process, e.host);
  facts.rank = e.rank;
  facts.num_workers = e.world_size;
  facts.epoch = e.epoch;
  facts.newcomer = e.newcomer;
  facts.group_restarts = context_.job->group_restarts();
  start(e.host, std::move(worker), facts);
}

void ProcessOrders::carry_out(const StartServer& e) {
  const io::JobSpec& spec = context_.spec;
  StartProcess server;
  server.process = {Role::kServer, e.server.value};
  server.argv = {"dtserver"};
  server.cwd = spec.dmlc_roles ? context_.folder() : spec.cwd;
  launcher::ProcessFacts facts = process_facts(context_, links_, server.process, e.host);
  facts.index = e.index;
  facts.checkpoint = e.checkpoint;
  if (spec.dmlc_roles) {
    facts.is_scheduler = e.index == spec.servers.size();
    server.argv = spec.command;
    if (facts.is_scheduler) server.ports = Port::kRoot;
  }
  start(e.host, std::move(server), facts);
}

void ProcessOrders::start(const Host& host, StartProcess start,
                          const launcher::ProcessFacts& facts) {
  start.env = launcher::environment(context_.spec, facts);
  output_.open(start.process, host);
  links_.send(host, start);
}

void ProcessOrders::carry_out(const Stop& e) {
  const auto grace = std::chrono::duration_cast<std::chrono::milliseconds>(e.grace).count();
  links_.send(e.host, StopProcess{e.process, static_cast<std::uint32_t>(grace)});
}

void ProcessOrders::carry_out(const Inspect& e) { links_.send(e.host, AskProcess{e.process}); }

void ProcessOrders::carry_out(const Acknowledge& e) {
  reports_.forget(e.process);
  links_.send(e.host, AckExit{e.process});
}

void ProcessOrders::carry_out(const SendCommit& e) {
  send(e.host, {Role::kServer, e.server.value}, decltype(e.message)::kType,
       wire::body_of(e.message));
}

void ProcessOrders::send(const Host& host, ProcessId process, std::uint16_t type,
                         std::string body) {
  links_.send(host, ToProcess{process, type, std::move(body)});
}

}  // namespace dt::supervisor
