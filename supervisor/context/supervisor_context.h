/// What the parts of the supervisor share: the job and its spec, the shared volume, and the ways to
/// post events and to tell people. All of it outlives the parts.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/id.h"
#include "core/job/events.h"
#include "io/awaitable.h"
#include "io/job/spec.h"
#include "io/log.h"

namespace dt {
class Job;
}
namespace dt::io {
class TaskGroup;
}

namespace dt::supervisor {

class VolumeClient;

struct SupervisorContext {
  const boost::asio::any_io_executor& executor;  ///< A copy that outlives this struct.
  const io::JobSpec& spec;
  VolumeClient& volume;
  io::TaskGroup& tasks;
  io::Log& log;      ///< The supervisor's own, supervisor.log.
  io::Log& console;  ///< The same, and the consoles that follow.
  std::function<void(JobEvent)> post;
  std::function<void(const Note&)> tell;

  // Once the journal is read.
  const Job* job = nullptr;
  Term term = {};
  std::string secret = {};

  void note(Note::Kind kind, std::string what, std::string text, std::optional<Host> host = {},
            std::vector<std::pair<std::string, double>> numbers = {}) const {
    tell(Note{kind, std::move(what), std::move(text), {}, std::move(host), std::move(numbers)});
  }
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
