#include "io/process_tree.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "core/base/number.h"
#include "io/process_state.h"

namespace dt::launcher {
namespace {

std::string folder_of(pid_t pid) { return "/proc/" + std::to_string(pid); }

std::string read_proc_file(pid_t pid, const char* name) {
  return io::read_proc_file(folder_of(pid), name);
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  std::error_code ec;
  for (std::filesystem::directory_iterator at("/proc", ec), end; !ec && at != end; at.increment(ec))
    if (const auto pid = parse_number<pid_t>(at->path().filename().string())) pids.push_back(*pid);
  return pids;
}

bool is_mine(pid_t pid) {
  struct stat st {};
  return ::stat(folder_of(pid).c_str(), &st) == 0 && st.st_uid == ::geteuid();
}

/// The rest of the first entry of `environment` that starts with `beginning`; nullopt without one.
std::optional<std::string_view> after(std::string_view environment, std::string_view beginning) {
  for (std::size_t at = environment.find(beginning); at != std::string_view::npos;
       at = environment.find(beginning, at + 1)) {
    if (at != 0 && environment[at - 1] != '\0') continue;
    const std::string_view rest = environment.substr(at + beginning.size());
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

/// Handles of other processes of this user whose environment has an entry that begins with
/// `beginning`, and the rest of it fits.
template <class Fits>
std::vector<io::Fd> others_with(std::string_view beginning, Fits fits) {
  std::vector<io::Fd> found;
  for (const pid_t pid : all_processes()) {
    if (pid == ::getpid() || !is_mine(pid)) continue;
    // The handle first: if the kernel reuses the pid after this, the handle still refers to the
    // old process.
    io::Fd handle = open_pidfd(pid);
    const std::string environment = read_proc_file(pid, "environ");
    const auto rest = after(environment, beginning);
    if (handle && rest && fits(pid, *rest)) found.push_back(std::move(handle));
  }
  return found;
}

bool lives(char state) { return state != 'Z' && state != 'X' && state != '?'; }

/// By parent: a process and whether it lives.
using Children = std::multimap<pid_t, std::pair<pid_t, bool>>;

Children all_children() {
  Children children;
  for (const pid_t pid : all_processes()) {
    const io::ProcStat stat = io::parse_proc_stat(read_proc_file(pid, "stat"));
    if (stat.parent > 0) children.emplace(stat.parent, std::pair(pid, lives(stat.state)));
  }
  return children;
}

}  // namespace

io::Fd open_pidfd(pid_t pid) { return io::Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

void signal_pidfd(const io::Fd& pidfd, int signal) {
  if (pidfd) ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0);
}

std::vector<io::Fd> marked_processes(std::string_view entry) {
  return others_with(entry, [](pid_t, std::string_view rest) { return rest.empty(); });
}

std::string mark_of(std::string_view job, std::string_view host) {
  return fmt::format("DT_MARK={}/{}/", job, host);
}

std::size_t kill_marked(std::string_view mark, Duration limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const auto left =
        others_with(mark, [](pid_t pid, std::string_view) { return pid != ::getppid(); });
    for (const auto& one : left) signal_pidfd(one, SIGKILL);
    if (left.empty() || std::chrono::steady_clock::now() > deadline) return left.size();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // tidy: allow (condition wait)
  }
}

std::string process_states(pid_t root) {
  constexpr std::size_t kMost = 4;
  const Children children = all_children();
  std::string out;
  std::vector<pid_t> tree = {root};
  for (std::size_t i = 0; i < tree.size() && i < kMost; ++i) {
    const std::string state = io::kernel_state(folder_of(tree[i]), tree[i]);
    if (!state.empty()) out += (out.empty() ? "" : "; ") + state;
    const auto [begin, end] = children.equal_range(tree[i]);
    for (auto child = begin; child != end; ++child)
      if (child->second.second) tree.push_back(child->second.first);
  }
  return out;
}

std::uint64_t resident_bytes(pid_t root) {
  constexpr std::size_t kMost = 256;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::uint64_t pages = 0;
  std::vector<pid_t> tree = {root};
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const pid_t pid = tree[i];
    std::uint64_t all = 0;
    std::uint64_t resident = 0;
    std::istringstream(read_proc_file(pid, "statm")) >> all >> resident;
    pages += resident;
    std::istringstream children(read_proc_file(pid, fmt::format("task/{}/children", pid).c_str()));
    for (pid_t child = 0; tree.size() < kMost && children >> child;) tree.push_back(child);
  }
  return pages * page;
}

std::vector<io::Fd> descendants(pid_t root, const std::vector<pid_t>& spared) {
  const Children children = all_children();
  std::vector<io::Fd> found;
  std::vector<pid_t> open = {root};
  while (!open.empty()) {
    const pid_t parent = open.back();
    open.pop_back();
    const auto [begin, end] = children.equal_range(parent);
    for (auto child = begin; child != end; ++child) {
      const auto [pid, alive] = child->second;
      if (pid == root || std::find(spared.begin(), spared.end(), pid) != spared.end()) continue;
      open.push_back(pid);
      if (!alive) continue;
      io::Fd handle = open_pidfd(pid);
      if (handle && io::parse_proc_stat(read_proc_file(pid, "stat")).parent == parent)
        found.push_back(std::move(handle));
    }
  }
  return found;
}

}  // namespace dt::launcher
