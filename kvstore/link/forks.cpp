#include "kvstore/link/forks.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <charconv>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/number.h"
#include "io/fd.h"

namespace dt::kv {

namespace {

/// What fork() handlers can reach: they have no argument.
struct Known {
  std::mutex mutex;  ///< Held across each fork(), so a child's lists are complete.
  std::vector<int> descriptors;
  std::vector<int> epolls;
  std::atomic<std::uint32_t> forks = 0;
};

/// Never destroyed: a fork may come after static objects have ended.
Known& known() {
  static Known& instance = *std::make_unique<Known>().release();
  return instance;
}

/// A descriptor that an epoll set watches.
struct Watched {
  int fd;
  ino_t inode;
};

/// A line of an epoll set's fdinfo: "tfd:  7 events: 19 data: 0 pos:0 ino:50d2 sdev:8".
std::optional<Watched> parse_watched(std::string_view line) {
  const auto number = [line](std::string_view name, int base) -> std::optional<std::uint64_t> {
    auto at = line.find(name);
    if (at != line.npos) at = line.find_first_not_of(' ', at + name.size());
    if (at == line.npos) return {};
    std::string_view rest = line.substr(at);
    return take_number<std::uint64_t>(rest, base);
  };
  const auto fd = line.starts_with("tfd:") ? number("tfd:", 10) : std::nullopt;
  const auto inode = number(" ino:", 16);
  if (!fd || !inode) return {};
  return Watched{static_cast<int>(*fd), static_cast<ino_t>(*inode)};
}

/// Calls `use` for each descriptor that the epoll set `epoll` watches. System calls only.
template <class Use>
void for_each_watched(int epoll, Use use) {
  std::array<char, 40> path{};
  constexpr std::string_view kFolder = "/proc/self/fdinfo/";
  char* const digits = std::copy(kFolder.begin(), kFolder.end(), path.begin());
  std::to_chars(digits, path.end() - 1, epoll);
  const int file = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  std::array<char, 4096> buffer;
  std::array<char, 256> line;
  std::size_t length = 0;
  for (ssize_t n = 0; (n = ::read(file, buffer.data(), buffer.size())) > 0;) {
    for (const char c : std::string_view(buffer.data(), static_cast<std::size_t>(n))) {
      if (c != '\n') {
        if (length < line.size()) line[length++] = c;
        continue;
      }
      if (const auto watched = parse_watched({line.data(), length})) use(*watched);
      length = 0;
    }
  }
  ::close(file);
}

/// Whether `fd` is what the set watches under this number. Asio removes a socket from its set by
/// closing it, which is no removal if another process has the socket open; the number may be of
/// another file.
bool is_open_as(const Watched& watched) {
  struct stat facts {};
  return ::fstat(watched.fd, &facts) == 0 && facts.st_ino == watched.inode;
}

void before_fork() { known().mutex.lock(); }
void after_fork_in_parent() { known().mutex.unlock(); }
void after_fork_in_child() {
  Known& all = known();
  ++all.forks;
  for (const int epoll : all.epolls) {
    for_each_watched(epoll, [](const Watched& watched) {
      if (is_open_as(watched)) ::close(watched.fd);
    });
    ::close(epoll);
  }
  for (const int fd : all.descriptors) ::close(fd);
  all.epolls.clear();
  all.descriptors.clear();
  all.mutex.unlock();
}

void install() {
  static const int installed =
      ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  DT_CHECK(installed == 0, "no memory for a fork handler");
}

void add(std::vector<int> Known::*list, int fd) {
  install();
  const std::lock_guard lock(known().mutex);
  (known().*list).push_back(fd);
}
void remove(std::vector<int> Known::*list, int fd) {
  const std::lock_guard lock(known().mutex);
  std::erase(known().*list, fd);
}

/// The epoll set of `context`, -1 if it cannot be found: the one that watches a descriptor of ours.
/// Asio does not tell it.
int epoll_of(io::asio::io_context& context) {
  io::Fd mark(::eventfd(0, EFD_CLOEXEC));
  if (!mark) return -1;
  const int number = mark.get();
  const io::asio::posix::stream_descriptor registered(context, mark.release());
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  if (!folder) return -1;
  while (const dirent* entry = ::readdir(folder.get())) {
    const auto fd = parse_number<int>(entry->d_name);
    if (!fd) continue;
    std::array<char, 32> target{};
    const auto length =
        ::readlinkat(::dirfd(folder.get()), entry->d_name, target.data(), target.size());
    if (length < 0 || std::string_view(target.data(), static_cast<std::size_t>(length)) !=
                          "anon_inode:[eventpoll]")
      continue;
    bool is_it = false;
    for_each_watched(*fd, [&](const Watched& watched) { is_it = is_it || watched.fd == number; });
    if (is_it) return *fd;
  }
  return -1;
}

}  // namespace

std::uint32_t fork_count() {
  install();
  return known().forks;
}

ClosedInChild::ClosedInChild(int fd) : fd_(fd) { add(&Known::descriptors, fd_); }
ClosedInChild::~ClosedInChild() { remove(&Known::descriptors, fd_); }

ContextClosedInChild::ContextClosedInChild(io::asio::io_context& context)
    : epoll_(epoll_of(context)) {
  if (epoll_ >= 0) add(&Known::epolls, epoll_);
}
ContextClosedInChild::~ContextClosedInChild() {
  if (epoll_ >= 0) remove(&Known::epolls, epoll_);
}

}  // namespace dt::kv
