#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>
#include <thread>

#include "core/base/lookup.h"
#include "io/job/master_folders.h"
#include "io/job/spec.h"
#include "io/process_state.h"
#include "io/process_tree.h"
#include "io/subprocess.h"
#include "launcher/agent/carry.h"
#include "launcher/agent/job_traces.h"
#include "launcher/agent/programs.h"
#include "launcher/bundle_use.h"

namespace dt::launcher {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kPolite = std::chrono::seconds(5);   ///< From TERM to KILL.
constexpr auto kGivenUp = std::chrono::seconds(5);  ///< From KILL to the report that it failed.
constexpr auto kLook = std::chrono::milliseconds(50);
/// A folder without anything in it may be that of a job which is just beginning.
constexpr std::chrono::seconds kJustMade = std::chrono::minutes(10);

class Cleaning {
 public:
  explicit Cleaning(const CleanOptions& options) : options_(options) {}

  int run() {
    Traces found = find_job_traces([this](const std::string& job) { return is_wanted(job); });
    std::erase_if(found, [this](const auto& one) {
      const std::string why = why_alive(one.first, one.second);
      if (why.empty()) return false;
      say("job {}: {}: left alone (--job {} --force ends it)", one.first, why, one.first);
      is_clean_ = is_clean_ && options_.jobs.empty();
      return true;
    });
    for (const auto& [job, traces] : found) mine_.insert(job);
    if (!options_.dry_run) end_processes(found);
    for (const auto& [job, traces] : found) clean_job(job, traces);
    remove_bundles();
    return is_clean_ ? 0 : 1;
  }

 private:
  using Traces = std::map<std::string, JobTraces>;

  static bool has(const io::Words& words, const std::string& job) {
    return std::ranges::count(words, job) > 0;
  }
  bool is_wanted(const std::string& job) const {
    return !has(options_.spare, job) && (options_.jobs.empty() || has(options_.jobs, job));
  }
  /// Why the job may be alive; empty: it is not, or that does not matter.
  std::string why_alive(const std::string& job, const JobTraces& traces) const {
    if (options_.force) return {};
    if (traces.is_attached) return "its supervisor is connected";
    if (!traces.has_agent || has(options_.left, job)) return {};
    return "its agent lives, and its supervisor may come back: clean it on the machine where it "
           "was started";
  }
  /// What there is now of the jobs that are cleaned.
  Traces find_left() const {
    return find_job_traces([this](const std::string& job) { return mine_.contains(job); });
  }

  template <class... A>
  void say(fmt::format_string<A...> text, A&&... a) const {
    write_out(fmt::format(text, std::forward<A>(a)...) + "\n", options_.lines);
  }

  static bool has_processes(const Traces& found) {
    return std::ranges::any_of(found,
                               [](const auto& one) { return !one.second.processes.empty(); });
  }

  /// Agents obey TERM by ending their processes; guards end after them.
  void end_processes(const Traces& found) const {
    if (!has_processes(found)) return;
    for (const int signal : {SIGTERM, SIGCONT})
      for (const auto& [job, traces] : found)
        for (const JobProcess& process : traces.processes) io::signal_pidfd(process.handle, signal);
    const auto polite = Clock::now() + kPolite;
    const auto given_up = polite + kGivenUp;
    for (;;) {
      const Traces left = find_left();
      const auto now = Clock::now();
      if (!has_processes(left) || now > given_up) return;
      if (now > polite)
        for (const auto& [job, traces] : left)
          for (const JobProcess& process : traces.processes)
            io::signal_pidfd(process.handle, SIGKILL);
      std::this_thread::sleep_for(kLook);  // tidy: allow (they may fork: only a look tells)
    }
  }

  void clean_job(const std::string& job, const JobTraces& traces) {
    std::vector<std::string> names;
    for (const JobProcess& process : traces.processes)
      names.push_back(fmt::format("{} (pid {})", process.name, process.pid));
    if (!names.empty())
      say("job {}: {} {}", job, options_.dry_run ? "would end" : "ended", fmt::join(names, ", "));
    if (options_.dry_run) {
      for (const std::string& path : traces.segments) say("job {}: would remove {}", job, path);
      for (const std::string& path : traces.folders)
        if (is_leftover(path, !names.empty())) say("job {}: would remove {}", job, path);
      return;
    }
    const Traces left = find_left();
    for (const JobProcess& process : value_in(left, job).processes) {
      is_clean_ = false;
      say("job {}: cannot be ended: {}", job,
          io::kernel_state(fmt::format("/proc/{}", process.pid), process.pid));
    }
    for (const std::string& path : traces.segments)
      if (::access(path.c_str(), F_OK) == 0 && !is_file_used(path) && ::unlink(path.c_str()) == 0)
        say("job {}: removed {}", job, path);
    for (const std::string& path : traces.folders)
      if (is_leftover(path, !names.empty())) remove_folder(job, path);
  }

  /// Whether the folder is of a job that does not live: nobody listens there. `has_ended`: its
  /// processes were found, and the agent's socket is over with them; the supervisor's is not.
  static bool is_leftover(const std::string& folder, bool has_ended) {
    std::error_code ec;
    bool is_empty = true;
    for (fs::directory_iterator at(folder, ec), end; !ec && at != end; at.increment(ec)) {
      is_empty = false;
      struct stat st {};
      if (::lstat(at->path().c_str(), &st) != 0) continue;
      if (!S_ISSOCK(st.st_mode) || (has_ended && at->path().filename() != "control")) continue;
      if (io::somebody_listens(at->path().string()).value_or(true)) return false;
    }
    struct stat st {};
    if (::lstat(folder.c_str(), &st) != 0) return false;
    return has_ended || !is_empty || st.st_mtim.tv_sec < std::time(nullptr) - kJustMade.count();
  }

  /// With the locks in it held, so that no agent begins there meanwhile.
  void remove_folder(const std::string& job, const std::string& folder) {
    std::vector<io::Fd> locks;
    std::error_code ec;
    for (fs::directory_iterator at(folder, ec), end; !ec && at != end; at.increment(ec)) {
      if (at->path().extension() != ".lock") continue;
      io::Fd lock(::open(at->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
      if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return;
      locks.push_back(std::move(lock));
    }
    fs::remove_all(folder, ec);
    if (!ec) return say("job {}: removed {}", job, folder);
    is_clean_ = false;
    say("job {}: cannot remove {}: {}", job, folder, ec.message());
  }

  /// See backend/bundle.h for the folders that may have some.
  void remove_bundles() const {
    std::set<std::string> roots = {io::home_dir() + "/.cache/dtlaunch", io::shared_state_home(),
                                   fmt::format("/tmp/dtlaunch-{}", ::geteuid())};
    if (const auto cache = io::variable("XDG_CACHE_HOME")) roots.insert(*cache + "/dtlaunch");
    for (const std::string& root : roots) remove_bundles_in(root);
  }

  void remove_bundles_in(const fs::path& home) const {
    std::vector<fs::path> old;
    std::error_code ec;
    for (fs::directory_iterator at(home, ec), end; !ec && at != end; at.increment(ec)) {
      struct stat st {};
      const auto age = unused_for(at->path().filename().string());
      if (age && ::lstat(at->path().c_str(), &st) == 0 && S_ISDIR(st.st_mode) &&
          st.st_uid == ::geteuid() && st.st_mtim.tv_sec < std::time(nullptr) - *age &&
          !runs_from(at->path().string()))
        old.push_back(at->path());
    }
    for (const fs::path& bundle : old) {
      if (!options_.dry_run) fs::remove_all(bundle, ec);
      say("{} {}: programs that nobody uses", options_.dry_run ? "would remove" : "removed",
          bundle.string());
    }
  }

  /// How many seconds a bundle, or the folder of a copy that broke off, has to be unused; nothing
  /// for other names. See bundle.h.
  static std::optional<std::time_t> unused_for(const std::string& name) {
    constexpr std::size_t kDigits = 32;
    const std::size_t digits = name.find_first_not_of("0123456789abcdef");
    if (std::min(digits, name.size()) != kDigits) return std::nullopt;
    if (name.size() == kDigits) return std::chrono::seconds(kBundleKept).count();
    if (name[kDigits] == '.') return std::chrono::seconds(kTokenKept).count();
    return std::nullopt;
  }

  const CleanOptions& options_;
  std::set<std::string> mine_;  ///< The jobs that are cleaned.
  bool is_clean_ = true;
};

}  // namespace

int clean_main(const CleanOptions& options) {
  touch_bundle();
  const int code = Cleaning(options).run();
  write_end(options.lines);
  if (code != 0) fmt::print(stderr, "not all is clean, see above\n");
  return code;
}

}  // namespace dt::launcher
