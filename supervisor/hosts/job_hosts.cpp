#include "supervisor/hosts/job_hosts.h"

#include <utility>

#include "core/job/job.h"
#include "launcher/backend/backend.h"
#include "supervisor/hosts/process_facts.h"
#include "supervisor/volume/output.h"

namespace dt::supervisor {

JobHosts::JobHosts(SupervisorContext& context, launcher::Backend& backend, HostLinks::Sync sync,
                   ProcessOutput& output, JobFigures& figures)
    : context_(context),
      output_(output),
      links_(context, backend, std::move(sync)),
      gate_(context),
      prepares_(context, links_, output, gate_),
      checkpoints_(context, links_, prepares_),
      reports_(context, links_, prepares_, checkpoints_, output, figures) {
  links_.listener = &reports_;
}

void JobHosts::carry_out(const ReleaseHost& e) {
  links_.release(e.host);
  prepares_.forget(e.host);
}

void JobHosts::carry_out(const StartWorker& e) {
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

void JobHosts::carry_out(const StartServer& e) {
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

void JobHosts::start(const Host& host, StartProcess start, const launcher::ProcessFacts& facts) {
  start.env = launcher::environment(context_.spec, facts);
  output_.open(start.process, host);
  links_.send(host, start);
}

void JobHosts::carry_out(const Acknowledge& e) {
  reports_.forget(e.process);
  links_.send(e.host, AckExit{e.process});
}

}  // namespace dt::supervisor
