/// What the parts of the supervisor share: the job's spec, the shared volume, and the ways to post
/// events and to tell people. All of it outlives the parts.
#pragma once

#include <functional>
#include <string>

#include "core/job/events.h"
#include "io/asio.h"
#include "io/job/spec.h"
#include "io/log.h"
#include "io/task_group.h"
#include "supervisor/volume/client.h"

namespace dt::supervisor {

struct Shell {
  io::asio::any_io_executor executor;
  const io::JobSpec& spec;
  VolumeClient& volume;
  io::TaskGroup& tasks;
  io::Log& log;  ///< The supervisor's own, supervisor.log.
  std::function<void(JobEvent)> post;
  std::function<void(Note)> note;

  /// A file of the job folder.
  [[nodiscard]] std::string path(const std::string& name) const {
    return spec.job_dir + "/" + name;
  }
  /// The folder that processes start in.
  [[nodiscard]] const std::string& folder() const {
    return spec.sync_dst_dir.empty() ? spec.cwd : spec.sync_dst_dir;
  }
};

}  // namespace dt::supervisor
