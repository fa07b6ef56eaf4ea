#include "supervisor/dtctl/living_jobs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <thread>

#include "io/fd.h"
#include "io/job/master_folders.h"
#include "io/job/spec.h"
#include "launcher/prune.h"

namespace dt::supervisor {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kSocketLook = std::chrono::milliseconds(50);

bool listens(const std::string& socket) { return io::somebody_listens(socket).value_or(false); }

/// A socket that a supervisor made and nobody removed.
bool is_left(const std::string& socket) {
  struct stat st {};
  return ::lstat(socket.c_str(), &st) == 0 && S_ISSOCK(st.st_mode);
}

std::set<std::string> jobs_of_this_machine() {
  std::set<std::string> jobs;
  for (const std::string& home : {io::state_home().path, io::shared_state_home(),
                                  io::runtime_home(io::make_job_name(0, 0).size()).path}) {
    std::error_code ec;
    for (fs::directory_iterator at(home, ec), end; !ec && at != end; at.increment(ec))
      if (const std::string job = at->path().filename().string(); launcher::is_job_name(job))
        jobs.insert(job);
  }
  return jobs;
}

}  // namespace

std::string supervisor_socket(const std::string& job) {
  for (const std::string& folder :
       {io::default_state_dir(job), io::shared_state_home() + "/" + job})
    if (const auto spec = io::read_spec(folder + "/spec.json")) return spec->socket;
  return io::default_runtime_dir(job) + "/control";
}

bool has_supervisor(const std::string& job, std::chrono::milliseconds patience) {
  const std::string socket = supervisor_socket(job);
  for (const auto deadline = Clock::now() + patience;;) {
    if (listens(socket)) return true;
    if (!is_left(socket) || Clock::now() > deadline) return false;
    std::this_thread::sleep_for(kSocketLook);  // tidy: allow (this loop is the condition wait)
  }
}

std::vector<std::string> living_jobs(std::chrono::milliseconds patience) {
  std::vector<std::string> living;
  const auto deadline = Clock::now() + patience;
  for (const std::string& job : jobs_of_this_machine()) {
    const auto left = std::max(Clock::duration(), deadline - Clock::now());
    if (has_supervisor(job, std::chrono::duration_cast<std::chrono::milliseconds>(left)))
      living.push_back(job);
  }
  return living;
}

}  // namespace dt::supervisor
