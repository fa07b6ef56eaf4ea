#include "supervisor/dtctl/job_standing.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>

#include "io/job/job_owner.h"
#include "io/job/lock_holder.h"
#include "io/job/master_folders.h"
#include "io/job/spec.h"
#include "io/read_file.h"
#include "launcher/prune.h"

namespace dt::supervisor {
namespace {

namespace fs = std::filesystem;

/// Where this machine as the job's master has its state, if it is the master.
std::vector<std::string> state_dirs_of(const std::string& job) {
  return {io::default_state_dir(job), io::shared_state_home() + "/" + job};
}

/// Locks a job's file against everyone. False: somebody holds it, or that is not known.
bool hold(const std::string& path, std::vector<io::Fd>& held) {
  io::Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) return errno == ENOENT;
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return false;
  held.push_back(std::move(file));
  return true;
}

/// Whether the folder's lock shows that a supervisor of the job is, or may be, on another machine.
bool is_taken_over(const std::string& job_dir, const std::string& job) {
  const std::string path = io::marker_dir(job_dir) + "/lock";
  const auto text = io::read_file_if_there(path);
  if (text && !*text) return false;
  const auto holder = text ? io::lock_from_json(**text) : tl::unexpected(text.error());
  if (!holder) return true;
  return holder->job == job && !io::is_stale(*holder, io::this_process(job));
}

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

JobHere look_at_job(const std::string& name) {
  JobHere job;
  job.name = name;
  job.socket = io::default_runtime_dir(name) + "/control";
  for (const std::string& folder : state_dirs_of(name)) {
    const auto spec = io::read_spec(folder + "/spec.json");
    if (!spec) continue;
    job.socket = spec->socket;
    // dtlaunch holds the one, and starts a supervisor that died again; a supervisor the other.
    if (!hold(folder + "/spec.json", job.held) || !hold(folder + "/journal", job.held))
      job.standing = Standing::kRuns;
    else if (!is_taken_over(spec->job_dir, name))
      job.standing = Standing::kLeft;
    break;
  }
  if (io::somebody_listens(job.socket).value_or(false)) job.standing = Standing::kRuns;
  if (job.standing != Standing::kLeft) job.held.clear();
  return job;
}

std::vector<std::string> jobs_here() {
  std::set<std::string> jobs;
  for (const std::string& home : {io::state_home().path, io::shared_state_home(),
                                  io::runtime_home(io::make_job_name(0, 0).size()).path}) {
    std::error_code ec;
    for (fs::directory_iterator at(home, ec), end; !ec && at != end; at.increment(ec))
      if (const std::string job = at->path().filename().string(); launcher::is_job_name(job))
        jobs.insert(job);
  }
  return {jobs.begin(), jobs.end()};
}

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
