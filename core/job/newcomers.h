/// Brings the workers that are wanted into being, and stops newcomers that are wanted no more: the
/// reconciler between what host_worker asks for and which workers there are. Pure.
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
  /// Takes each newcomer a step further: its host is reached and prepared, its process started.
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
