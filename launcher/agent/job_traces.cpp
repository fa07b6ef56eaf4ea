#include "launcher/agent/job_traces.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string_view>

#include "core/base/lookup.h"
#include "io/job/master_folders.h"
#include "io/job/spec.h"
#include "io/process_state.h"
#include "io/process_tree.h"
#include "launcher/prune.h"

namespace dt::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = "DT_MARK=";
constexpr std::string_view kSegments = "/dev/shm/";

/// One look at a process.
struct Seen {
  io::Fd handle;
  pid_t parent = 0;
  std::string job;     ///< By its mark or its lock; empty: none.
  std::string folder;  ///< Of the lock.
  std::string bridge;  ///< The job that it connects a supervisor with.
};

std::string folder_of(pid_t pid) { return "/proc/" + std::to_string(pid); }

std::vector<pid_t> my_processes() {
  std::vector<pid_t> pids = io::numbers_in("/proc");
  std::erase_if(pids, [](pid_t pid) { return !io::is_mine(folder_of(pid)); });
  return pids;
}

/// The texts of a file of /proc, each of which a zero ends.
std::vector<std::string> texts_of(pid_t pid, const char* file) {
  std::vector<std::string> texts;
  std::istringstream all(io::read_proc_file(folder_of(pid), file));
  for (std::string text; std::getline(all, text, '\0');) texts.push_back(text);
  return texts;
}

/// The paths behind a process's descriptors.
std::vector<std::string> open_files(pid_t pid) {
  std::vector<std::string> files;
  std::error_code ec;
  for (fs::directory_iterator at(folder_of(pid) + "/fd", ec), end; !ec && at != end;
       at.increment(ec)) {
    std::error_code unreadable;
    auto path = fs::read_symlink(at->path(), unreadable).string();
    constexpr std::string_view kDeleted = " (deleted)";
    if (path.ends_with(kDeleted)) path.resize(path.size() - kDeleted.size());
    if (path.starts_with('/')) files.push_back(std::move(path));
  }
  return files;
}

/// The job whose agent's lock this is; nothing for other files. See agent_files.h.
std::optional<std::string> job_of_lock(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::string job = path.parent_path().filename().string();
  const std::string home = path.parent_path().parent_path().filename().string();
  const bool is_lock = name.starts_with("agent-") && name.ends_with(".lock");
  const bool is_ours = home == "dtlaunch" || home == fmt::format("dtlaunch-{}", ::geteuid());
  if (!is_lock || !is_ours || !is_job_name(job)) return std::nullopt;
  return job;
}

/// "JOB/HOST/..." of its mark.
std::string marked_job(pid_t pid) {
  for (const std::string& entry : texts_of(pid, "environ")) {
    if (!entry.starts_with(kMark)) continue;
    const std::string job = entry.substr(kMark.size(), entry.find('/') - kMark.size());
    return is_job_name(job) ? job : std::string();
  }
  return {};
}

/// It holds locks of jobs at times, and is part of none.
bool is_cleaner(const std::vector<std::string>& words) {
  return words.size() > 1 && words[0] == "dtagent" && words[1] == "--clean";
}

/// The job of `dtagent --attach --job JOB`. One that stays with its agent outlives the connection.
std::string bridged_job(const std::vector<std::string>& words) {
  const auto has = [&words](const char* word) { return std::ranges::count(words, word) > 0; };
  if (!has("--attach") || has("--stay")) return {};
  const auto job = std::ranges::find(words, "--job");
  if (job == words.end() || job + 1 == words.end()) return {};
  return is_job_name(*(job + 1)) ? *(job + 1) : std::string();
}

Seen look_at(pid_t pid) {
  Seen seen;
  // The handle first: if the kernel reuses the pid after this, the handle still refers to the old
  // process.
  seen.handle = io::open_pidfd(pid);
  const io::ProcStat stat = io::stat_of(pid);
  const auto words = texts_of(pid, "cmdline");
  seen.parent = stat.parent;
  if (!stat.lives() || is_cleaner(words)) {
    seen.handle.reset();
    return seen;
  }
  seen.job = marked_job(pid);
  seen.bridge = bridged_job(words);
  for (const std::string& path : open_files(pid))
    if (const auto job = job_of_lock(path)) {
      seen.job = *job;
      seen.folder = fs::path(path).parent_path().string();
    }
  return seen;
}

/// The job of the nearest process above that has one: a process may lose its mark.
std::string inherited_job(const std::map<pid_t, Seen>& all, pid_t pid) {
  for (std::size_t steps = 0; steps < all.size(); ++steps) {
    const Seen* at = find_in(all, pid);
    if (!at) return {};
    if (!at->job.empty()) return at->job;
    pid = at->parent;
  }
  return {};
}

std::set<pid_t> own_line(const std::map<pid_t, Seen>& all) {
  std::set<pid_t> line;
  for (pid_t pid = ::getpid(); line.insert(pid).second;)
    if (const Seen* at = find_in(all, pid)) pid = at->parent;
  return line;
}

/// NCCL's, PyTorch's and Python's own: a user's data may lie there, too.
bool is_library_segment(std::string_view path) {
  if (!path.starts_with(kSegments)) return false;
  path.remove_prefix(kSegments.size());
  if (path.find('/') != path.npos) return false;
  for (const std::string_view beginning : {"nccl-", "torch_", "psm_", "sem.mp-"})
    if (path.starts_with(beginning)) return true;
  return false;
}

/// The files that a process has open or mapped.
std::set<std::string> files_of(pid_t pid) {
  const auto open = open_files(pid);
  std::set<std::string> files(open.begin(), open.end());
  std::istringstream maps(io::read_proc_file(folder_of(pid), "maps"));
  for (std::string line; std::getline(maps, line);)
    if (const std::size_t at = line.find(" /"); at != line.npos) files.insert(line.substr(at + 1));
  return files;
}

std::string short_name(pid_t pid) {
  std::string name = io::read_proc_file(folder_of(pid), "comm");
  while (name.ends_with('\n')) name.pop_back();
  return name;
}

void add_process(JobTraces& traces, pid_t pid, Seen& seen) {
  if (!seen.folder.empty()) {
    traces.folders.insert(seen.folder);
    traces.has_agent = true;
  }
  for (const std::string& path : files_of(pid))
    if (is_library_segment(path) && io::is_mine(path)) traces.segments.insert(path);
  traces.processes.push_back({pid, std::move(seen.handle), short_name(pid)});
}

/// Also those whose processes have all ended.
void add_folders(std::map<std::string, JobTraces>& found,
                 const std::function<bool(const std::string&)>& wants) {
  const std::set<std::string> homes = {io::runtime_home(io::make_job_name(0, 0).size()).path,
                                       fmt::format("/run/user/{}/dtlaunch", ::geteuid()),
                                       fmt::format("/tmp/dtlaunch-{}", ::geteuid())};
  for (const std::string& home : homes) {
    std::error_code ec;
    for (fs::directory_iterator at(home, ec), end; !ec && at != end; at.increment(ec)) {
      const std::string job = at->path().filename().string();
      struct stat st {};
      const bool is_folder = ::lstat(at->path().c_str(), &st) == 0 && S_ISDIR(st.st_mode);
      if (is_folder && st.st_uid == ::geteuid() && is_job_name(job) && wants(job))
        found[job].folders.insert(at->path().string());
    }
  }
}

}  // namespace

std::map<std::string, JobTraces> find_job_traces(
    const std::function<bool(const std::string& job)>& wants) {
  std::map<pid_t, Seen> all;
  for (const pid_t pid : my_processes()) all.emplace(pid, look_at(pid));
  std::map<std::string, JobTraces> found;
  std::map<pid_t, std::string> jobs;
  for (const auto& [pid, seen] : all) jobs[pid] = inherited_job(all, pid);
  const std::set<pid_t> spared = own_line(all);
  for (auto& [pid, seen] : all) {
    const std::string& job = jobs[pid];
    if (!seen.bridge.empty() && wants(seen.bridge)) found[seen.bridge].is_attached = true;
    if (!job.empty() && wants(job) && seen.handle && !spared.contains(pid))
      add_process(found[job], pid, seen);
  }
  add_folders(found, wants);
  return found;
}

bool is_file_used(const std::string& path) {
  const auto pids = my_processes();
  return std::ranges::any_of(pids, [&path](pid_t pid) { return files_of(pid).contains(path); });
}

bool runs_from(const std::string& folder) {
  const auto pids = my_processes();
  return std::ranges::any_of(pids, [&folder](pid_t pid) {
    std::error_code ec;
    return fs::read_symlink(folder_of(pid) + "/exe", ec).string().starts_with(folder + "/");
  });
}

}  // namespace dt::launcher
