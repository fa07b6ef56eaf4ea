#include "io/process_tree.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "io/process_state.h"

namespace dt::io {
namespace {

std::string folder_of(pid_t pid) { return "/proc/" + std::to_string(pid); }

std::string file_of(pid_t pid, const char* name) { return read_proc_file(folder_of(pid), name); }

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
std::vector<Fd> others_with(std::string_view beginning, Fits fits) {
  std::vector<Fd> found;
  for (const pid_t pid : numbers_in("/proc")) {
    if (pid == ::getpid() || !is_mine(folder_of(pid))) continue;
    // The handle first: if the kernel reuses the pid after this, the handle still refers to the
    // old process.
    Fd handle = open_pidfd(pid);
    const std::string environment = file_of(pid, "environ");
    const auto rest = after(environment, beginning);
    if (handle && rest && fits(pid, *rest)) found.push_back(std::move(handle));
  }
  return found;
}

/// The children of each process, ended ones too. From the kernel's lists, which cost what a tree is
/// large; where it has none (CONFIG_PROC_CHILDREN), from one look at all processes of the machine.
class Children {
 public:
  Children() {
    if (has_lists()) return;
    for (const pid_t pid : numbers_in("/proc")) {
      const pid_t parent = stat_of(pid).parent;
      if (parent > 0) seen_.emplace(parent, pid);
    }
  }

  [[nodiscard]] std::vector<pid_t> of(pid_t parent) const {
    std::vector<pid_t> pids;
    if (!has_lists()) {
      const auto [begin, end] = seen_.equal_range(parent);
      for (auto child = begin; child != end; ++child) pids.push_back(child->second);
      return pids;
    }
    // A child is in the list of the thread that forked it.
    for (const pid_t thread : numbers_in(folder_of(parent) + "/task")) {
      const auto name = fmt::format("task/{}/children", thread);
      std::istringstream list(file_of(parent, name.c_str()));
      for (pid_t child = 0; list >> child;) pids.push_back(child);
    }
    return pids;
  }

 private:
  static bool has_lists() {
    static const bool kHas =
        ::access(fmt::format("/proc/self/task/{}/children", ::getpid()).c_str(), R_OK) == 0;
    return kHas;
  }

  std::multimap<pid_t, pid_t> seen_;
};

struct Found {
  pid_t pid = 0;
  Fd handle;
};

/// One look. What gets another parent meanwhile may be missed.
std::vector<Found> look_below(pid_t root, const std::vector<pid_t>& spared) {
  const Children children;
  std::vector<Found> found;
  std::vector<pid_t> open = {root};
  while (!open.empty()) {
    const pid_t parent = open.back();
    open.pop_back();
    for (const pid_t pid : children.of(parent)) {
      if (pid == root || std::ranges::count(spared, pid) > 0) continue;
      open.push_back(pid);
      // The handle first: if the kernel reuses the pid after this, the handle still refers to the
      // old process.
      Fd handle = open_pidfd(pid);
      const ProcStat stat = stat_of(pid);
      if (handle && stat.lives() && stat.parent == parent)
        found.push_back({pid, std::move(handle)});
    }
  }
  return found;
}

/// A process whose parent ends in the middle of a look has moved up: a second look finds it.
std::vector<Found> below(pid_t root, const std::vector<pid_t>& spared) {
  auto found = look_below(root, spared);
  return found.empty() ? look_below(root, spared) : std::move(found);
}

std::vector<Fd> handles(std::vector<Found> found) {
  std::vector<Fd> all;
  for (Found& one : found) all.push_back(std::move(one.handle));
  return all;
}

/// `root`, and what others have forked into its process group.
std::vector<pid_t> with_forked(pid_t root, const std::vector<pid_t>& forkers,
                               const Children& children) {
  std::vector<pid_t> found = {root};
  for (const pid_t forker : forkers)
    for (const pid_t child : children.of(forker))
      if (::getpgid(child) == root && stat_of(child).lives()) found.push_back(child);
  return found;
}

/// Whether its environment, as given at exec, has exactly this entry.
bool has_entry(pid_t pid, std::string_view entry) {
  const std::string environment = file_of(pid, "environ");
  const auto rest = after(environment, entry);
  return rest && rest->empty();
}

}  // namespace

Fd open_pidfd(pid_t pid) { return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

void signal_pidfd(const Fd& pidfd, int signal) {
  if (pidfd) ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0);
}

std::vector<Fd> marked_processes(std::string_view entry) {
  return others_with(entry, [](pid_t, std::string_view rest) { return rest.empty(); });
}

std::vector<Fd> marked_descendants(pid_t root, std::string_view entry) {
  auto found = below(root, {});
  std::erase_if(found, [entry](const Found& one) { return !has_entry(one.pid, entry); });
  return handles(std::move(found));
}

std::vector<Fd> unmarked_descendants(pid_t root, std::string_view entry,
                                     const std::vector<pid_t>& spared) {
  auto found = below(root, spared);
  std::erase_if(found, [entry](const Found& one) { return has_entry(one.pid, entry); });
  return handles(std::move(found));
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
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // tidy: allow (they may yet fork)
  }
}

std::vector<pid_t> marked_children(std::string_view entry) {
  std::vector<pid_t> found = Children().of(::getpid());
  std::erase_if(found, [entry](pid_t pid) { return !has_entry(pid, entry); });
  return found;
}

std::string process_states(pid_t root, const std::vector<pid_t>& forkers) {
  constexpr std::size_t kMost = 4;
  const Children children;
  std::string out;
  std::vector<pid_t> tree = with_forked(root, forkers, children);
  for (std::size_t i = 0; i < tree.size() && i < kMost; ++i) {
    const std::string state = kernel_state(folder_of(tree[i]), tree[i]);
    if (!state.empty()) out += (out.empty() ? "" : "; ") + state;
    for (const pid_t child : children.of(tree[i]))
      if (stat_of(child).lives()) tree.push_back(child);
  }
  return out;
}

std::uint64_t resident_bytes(pid_t root, const std::vector<pid_t>& forkers) {
  constexpr std::size_t kMost = 256;
  const Children children;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::uint64_t pages = 0;
  std::vector<pid_t> tree = with_forked(root, forkers, children);
  for (std::size_t i = 0; i < tree.size(); ++i) {
    std::uint64_t all = 0;
    std::uint64_t resident = 0;
    std::istringstream(file_of(tree[i], "statm")) >> all >> resident;
    pages += resident;
    for (const pid_t child : children.of(tree[i]))
      if (tree.size() < kMost) tree.push_back(child);
  }
  return pages * page;
}

std::vector<Fd> descendants(pid_t root, const std::vector<pid_t>& spared) {
  return handles(below(root, spared));
}

}  // namespace dt::io
