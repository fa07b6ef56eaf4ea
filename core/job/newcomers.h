/// Starts the workers that are wanted and missing, and stops newcomers that are not wanted any
/// more: the reconciler between host_worker and the present workers, on the hosts of the agenda.
/// Pure.
#pragma once

#include "core/base/id.h"
#include "core/job/context.h"
#include "core/job/host_table.h"
#include "core/job/server_group.h"
#include "core/job/workers.h"

namespace dt {

class Newcomers {
 public:
  Newcomers(JobContext& job, HostTable& hosts, const ServerGroup& servers, Workers& workers)
      : job_(job), hosts_(hosts), servers_(servers), workers_(workers) {}

  void stop_unwanted();
  /// Gives an id to each worker that is wanted and not there.
  void fill_gaps();
  /// Advances each newcomer one step: its host is reached and prepared, its process is started.
  void move_on();

 private:
  void start(WorkerId worker);
  [[nodiscard]] const Membership& membership() const { return workers_.membership(); }

  JobContext& job_;
  HostTable& hosts_;
  const ServerGroup& servers_;
  Workers& workers_;
};

}  // namespace dt
