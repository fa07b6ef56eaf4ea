#include "supervisor/hosts/process_facts.h"

#include <algorithm>
#include <set>

#include "core/job/boundary.h"
#include "core/job/host_table.h"
#include "core/job/job.h"
#include "core/job/membership.h"
#include "core/job/server_group.h"
#include "supervisor/hosts/links.h"

namespace dt::supervisor {
namespace {

/// Rank 0's host: that of the first contributor that is not gone; `host` if there is none.
const Host& host_of_rank_0(const Job& job, const Host& host) {
  for (const WorkerId id : job.boundary().contributors()) {
    const Worker* worker = job.membership().find(id);
    if (worker && worker->state != WorkerState::kGone) return worker->host;
  }
  return host;
}

}  // namespace

launcher::ProcessFacts process_facts(const SupervisorContext& context, const HostLinks& links,
                                     ProcessId process, const Host& host) {
  const io::JobSpec& spec = context.spec;
  const Job& job = *context.job;
  launcher::ProcessFacts facts;
  facts.process = process;
  facts.host = job.hosts().as_given(host);
  facts.secret = context.secret;
  facts.num_workers = static_cast<std::uint32_t>(job.boundary().members().size());
  facts.num_servers = static_cast<std::uint32_t>(spec.servers.size());
  const Host& leads = host_of_rank_0(job, host);
  const Host& first = job.group_restarts() > 0 ? leads : spec.workers.front();
  facts.root = {links.address_of(first), job.hosts().at(first).place.root_port};
  const HostLink& here = links.at(host);
  facts.address = here.address;
  facts.cores = here.cores;
  facts.is_activated = here.has_program.value_or(false);
  facts.master = {links.address_of(leads), job.hosts().at(leads).place.master_port};
  std::uint32_t on_host = 0;
  std::uint32_t on_machine = 0;
  for (const auto& [id, w] : job.membership().workers()) {
    if (w.state == WorkerState::kGone) continue;
    if (process == ProcessId{Role::kWorker, id.value}) facts.slot = w.slot;
    if (w.host == host) ++on_host;
    const bool is_neighbour = !here.machine.empty() && links.at(w.host).machine == here.machine;
    if (w.host == host || is_neighbour) ++on_machine;
  }
  facts.local_world_size = std::max(1U, on_host);
  std::set<Host> hosts;
  for (const WorkerId id : job.boundary().members()) {
    const Worker* w = job.membership().find(id);
    if (w && hosts.insert(w->host).second && w->host == host)
      facts.group_rank = static_cast<std::uint32_t>(hosts.size() - 1);
  }
  facts.group_world_size = static_cast<std::uint32_t>(std::max<std::size_t>(1, hosts.size()));
  facts.workers_on_machine = std::max(1U, on_machine);
  for (const auto& [id, s] : job.servers().all()) {
    if (process == ProcessId{Role::kServer, id.value}) break;
    if (s.host == host && process.role == Role::kServer) ++facts.index_on_host;
  }
  return facts;
}

}  // namespace dt::supervisor
