#include "supervisor/dtctl/job_standing.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <filesystem>
#include <set>

#include "io/job/lock_holder.h"
#include "io/job/master_folders.h"
#include "io/job/spec.h"
#include "io/read_file.h"
#include "launcher/prune.h"

namespace dt::supervisor {
namespace {

namespace fs = std::filesystem;

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

}  // namespace

std::vector<std::string> state_dirs_of(const std::string& job) {
  return {io::default_state_dir(job), io::shared_state_home() + "/" + job};
}

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

}  // namespace dt::supervisor
