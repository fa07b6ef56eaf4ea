#include "launcher/sweep.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <string>

namespace dt::launcher {
namespace {

/// Environments larger than this are cut; the kernel's own limit is a quarter of the stack limit.
constexpr std::size_t kMaxProcFile = std::size_t{8} << 20;

std::string read_proc_file(pid_t pid, const char* name) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + name;
  const io::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  if (!file) return text;
  char buffer[16384];
  while (text.size() < kMaxProcFile) {
    const ssize_t n = ::read(file.get(), buffer, sizeof buffer);
    if (n <= 0) break;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  return text;
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  struct CloseDir {
    void operator()(DIR* d) const { ::closedir(d); }
  };
  const std::unique_ptr<DIR, CloseDir> proc(::opendir("/proc"));
  if (!proc) return pids;
  while (const dirent* entry = ::readdir(proc.get())) {
    pid_t pid = 0;
    const char* end = entry->d_name + std::strlen(entry->d_name);
    const auto [rest, error] = std::from_chars(entry->d_name, end, pid);
    if (error == std::errc() && rest == end) pids.push_back(pid);
  }
  return pids;
}

bool is_mine(pid_t pid) {
  struct stat st {};
  const std::string path = "/proc/" + std::to_string(pid);
  return ::stat(path.c_str(), &st) == 0 && st.st_uid == ::geteuid();
}

bool has_entry(std::string_view environment, std::string_view entry) {
  for (std::size_t at = environment.find(entry); at != std::string_view::npos;
       at = environment.find(entry, at + 1)) {
    const std::size_t end = at + entry.size();
    const bool begins = at == 0 || environment[at - 1] == '\0';
    if (begins && (end == environment.size() || environment[end] == '\0')) return true;
  }
  return false;
}

struct Stat {
  pid_t parent = 0;
  char state = '?';
};

/// "pid (any name, even with ) and blanks) S ppid ..."
Stat parse_stat(const std::string& text) {
  Stat stat;
  const std::size_t close = text.rfind(')');
  if (close == std::string::npos || close + 4 >= text.size()) return stat;
  stat.state = text[close + 2];
  std::from_chars(text.data() + close + 4, text.data() + text.size(), stat.parent);
  return stat;
}

std::string_view name_of_state(char state) {
  switch (state) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping";
    case 'D':
      return "in an uninterruptible wait";
    case 'T':
      return "stopped";
    case 't':
      return "stopped by a debugger";
    case 'Z':
      return "dead, not reaped";
    default:
      return "in state";
  }
}

std::string state_of(pid_t pid) {
  const std::string stat = read_proc_file(pid, "stat");
  const std::size_t open = stat.find('(');
  const std::size_t close = stat.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return {};
  const char state = parse_stat(stat).state;
  std::string out = fmt::format("{} (pid {}): {} ({})", stat.substr(open + 1, close - open - 1),
                                pid, name_of_state(state), state);
  // "0": it runs, or the kernel does not tell.
  const std::string where = read_proc_file(pid, "wchan");
  if (!where.empty() && where != "0") out += " in " + where;
  return out;
}

bool lives(char state) { return state != 'Z' && state != 'X' && state != '?'; }

/// By parent: a process and whether it lives.
using Children = std::multimap<pid_t, std::pair<pid_t, bool>>;

Children all_children() {
  Children children;
  for (const pid_t pid : all_processes()) {
    const Stat stat = parse_stat(read_proc_file(pid, "stat"));
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
  std::vector<io::Fd> found;
  for (const pid_t pid : all_processes()) {
    if (pid == ::getpid() || !is_mine(pid)) continue;
    // The handle first: should the number be given to another process after this, the handle
    // still means the old one.
    io::Fd handle = open_pidfd(pid);
    if (handle && has_entry(read_proc_file(pid, "environ"), entry))
      found.push_back(std::move(handle));
  }
  return found;
}

std::string process_states(pid_t root) {
  constexpr std::size_t kMost = 4;
  const Children children = all_children();
  std::string out;
  std::vector<pid_t> tree = {root};
  for (std::size_t i = 0; i < tree.size() && i < kMost; ++i) {
    const std::string state = state_of(tree[i]);
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
      if (handle && parse_stat(read_proc_file(pid, "stat")).parent == parent)
        found.push_back(std::move(handle));
    }
  }
  return found;
}

}  // namespace dt::launcher
