#include "io/job/job_options.h"

namespace dt::io {

JobOptions job_options(const JobSpec& spec) {
  JobOptions o;
  static_cast<JobRules&>(o) = spec.rules;
  o.workers = spec.workers;
  o.servers = spec.servers;
  o.opaque_servers = spec.dmlc_roles;
  if (spec.dmlc_roles) o.servers.push_back(spec.workers.front());  // the scheduler
  o.needs_prepare = !spec.prepare_data.empty() || spec.require_prepared || spec.preflight;
  o.is_elastic = spec.elastic;
  o.rolls_back = saves_checkpoints(spec) || !spec.restore.empty();
  if (!spec.restore.empty()) o.first_epoch = Epoch(spec.restore_epoch);
  o.master = host_here(spec);
  return o;
}

}  // namespace dt::io
