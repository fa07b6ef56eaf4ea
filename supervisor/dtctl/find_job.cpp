#include "supervisor/dtctl/find_job.h"

#include <sys/stat.h>
#include <unistd.h>

#include "io/job/job_owner.h"
#include "io/job/spec.h"
#include "supervisor/dtctl/job_standing.h"

namespace dt::supervisor {
namespace {

std::optional<io::JobPointer> job_that_runs_here(const std::string& job_dir) {
  for (const std::string& name : jobs_here()) {
    for (const std::string& state_dir : state_dirs_of(name)) {
      const auto spec = io::read_spec(state_dir + "/spec.json");
      if (!spec || spec->job_dir != job_dir || !io::somebody_listens(spec->socket).value_or(false))
        continue;
      io::JobPointer job;
      job.job = name;
      job.socket = spec->socket;
      job.state_dir = state_dir;
      return job;
    }
  }
  return std::nullopt;
}

}  // namespace

Result<io::JobPointer> read_pointer(io::VolumeQuestion& volume, Duration patience) {
  if (auto there = volume.answers(patience); !there) return tl::unexpected(there.error());
  return io::read_job_pointer(volume.path());
}

Result<io::JobPointer> find_job(io::VolumeQuestion& volume, Duration patience) {
  auto pointer = read_pointer(volume, patience);
  if (pointer || pointer.error().kind != ErrorKind::kTimeout) return pointer;
  if (auto job = job_that_runs_here(volume.path())) return std::move(*job);
  return pointer;
}

std::optional<std::string> other_owner(const std::string& job_dir) {
  struct stat st {};
  if (::geteuid() == 0 || ::stat(io::pointer_file(job_dir).c_str(), &st) != 0 ||
      st.st_uid == ::geteuid())
    return std::nullopt;
  return io::user_name(st.st_uid);
}

std::optional<Error> not_ours(const std::string& job_dir, const io::JobPointer& job) {
  const auto owner = other_owner(job_dir);
  if (!owner || job.ended) return std::nullopt;
  return Error{ErrorKind::kDenied,
               fmt::format("job {} in {} belongs to {}, who alone can look at it and steer it; its "
                           "files are there for all: dtctl events, dtctl logs",
                           job.job, job_dir, *owner)};
}

}  // namespace dt::supervisor
