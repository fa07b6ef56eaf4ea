#include "supervisor/volume/helper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>

#include "io/fd.h"
#include "io/job/spec.h"
#include "supervisor/volume/protocol.h"

namespace dt::supervisor {
namespace {

using io::Fd;
using Clock = std::chrono::steady_clock;

/// Between looks at the watched folder, whose other files may be written to all the time.
constexpr std::chrono::milliseconds kHintRest{50};

constexpr std::uint32_t kChanges =
    IN_CLOSE_WRITE | IN_MODIFY | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_ONLYDIR;

/// An errno on its way to the reply.
struct Trouble {
  int number;
  std::string doing;
};

template <class T>
using Outcome = tl::expected<T, Trouble>;

tl::unexpected<Trouble> trouble(std::string_view doing, const std::string& path) {
  const int number = errno;
  return tl::unexpected(Trouble{number, fmt::format("{} {}", doing, path)});
}

/// What a call of the system that gives nothing but success or -1 comes to.
Outcome<VolumeReply> as_reply(int result, std::string_view doing, const std::string& path) {
  if (result < 0) return trouble(doing, path);
  return VolumeReply();
}

Outcome<VolumeReply> read_file(const VolumeRequest& q) {
  VolumeReply reply;
  // O_NONBLOCK: a fifo in place of the file must not hold us.
  const Fd fd(::open(q.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd && errno == ENOENT) return reply;
  if (!fd) return trouble("open", q.path);
  std::string bytes;
  if (!io::read_rest(fd.get(), bytes, q.number + 1)) return trouble("read", q.path);
  if (bytes.size() > q.number) return tl::unexpected(Trouble{EFBIG, "read " + q.path});
  reply.yes = true;
  reply.bytes = std::move(bytes);
  return reply;
}

/// Gives it mode, group and, where that is allowed, owner of another file.
Outcome<void> make_like(int fd, const struct stat& like, const std::string& path) {
  struct stat now {};
  if (::fstat(fd, &now) != 0) return trouble("stat", path);
  if ((now.st_uid != like.st_uid || now.st_gid != like.st_gid) &&
      ::fchown(fd, like.st_uid, like.st_gid) != 0 && now.st_gid != like.st_gid &&
      ::fchown(fd, now.st_uid, like.st_gid) != 0)
    return trouble("keep the group of", path);
  if (now.st_mode != like.st_mode && ::fchmod(fd, like.st_mode & 07777) != 0)
    return trouble("keep the mode of", path);
  return {};
}

/// Makes the file; it must not be there.
Outcome<void> write_synced(const std::string& path, const VolumeRequest& q,
                           const struct stat* like = nullptr) {
  const Fd fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, static_cast<mode_t>(q.number)));
  if (!fd) return trouble("create", path);
  if (like)
    if (auto alike = make_like(fd.get(), *like, q.path); !alike) return alike;
  if (!io::write_all(fd.get(), q.bytes)) return trouble("write", path);
  if (::fsync(fd.get()) != 0) return trouble("sync", path);
  return {};
}

/// Gives the file a second name, if that is free. NFS may report failure of a link that it made.
Outcome<bool> link_new(const std::string& from, const std::string& to) {
  if (::link(from.c_str(), to.c_str()) == 0) return true;
  if (errno != EEXIST) return trouble("create", to);
  struct stat now {};
  if (::stat(from.c_str(), &now) != 0) return trouble("stat", from);
  return now.st_nlink == 2;
}

/// Of a temporary file beside `path`. Another master's helper may have the same pid. What is there,
/// left by a killed helper or put there by others, is removed; it may be the file itself.
std::string new_name(const std::string& path) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  std::string name = fmt::format("{}.{}.{}.new", path, host, ::getpid());
  ::remove(name.c_str());
  return name;
}

/// A plain file, not a link to one, and what it was when it was opened.
Outcome<Fd> open_plain(const std::string& path, int flags, struct stat& now) {
  Fd fd(::open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666));
  if (!fd) return trouble("open", path);
  if (::fstat(fd.get(), &now) != 0) return trouble("stat", path);
  if (!S_ISREG(now.st_mode))
    return tl::unexpected(Trouble{EINVAL, fmt::format("open {}, which is no plain file", path)});
  return fd;
}

/// The errno of a call on a volume that has no links.
bool lacks_links(int number) { return number == EPERM || number == ENOSYS || number == EOPNOTSUPP; }

/// Its whole content or nothing, wherever we are killed; without hard links it may be a part.
Outcome<VolumeReply> write_new(const VolumeRequest& q) {
  const std::string temporary = new_name(q.path);
  auto made = write_synced(temporary, q).and_then([&] { return link_new(temporary, q.path); });
  ::unlink(temporary.c_str());
  if (!made && lacks_links(made.error().number)) {
    made = write_synced(q.path, q).map([] { return true; });
    if (!made && made.error().number == EEXIST) made = false;
  }
  return made.map([](bool yes) { return VolumeReply{.yes = yes}; });
}

Outcome<VolumeReply> replace(const VolumeRequest& q, const std::string& path,
                             const struct stat* like = nullptr) {
  const std::string temporary = new_name(path);
  auto done = write_synced(temporary, q, like);
  if (done && ::rename(temporary.c_str(), path.c_str()) != 0) done = trouble("rename to", path);
  if (done) return VolumeReply();
  ::unlink(temporary.c_str());
  return tl::unexpected(done.error());
}

Outcome<VolumeReply> rewrite(const VolumeRequest& q) {
  struct stat name {
  }, file{};
  if (::lstat(q.path.c_str(), &name) != 0 && errno == ENOENT) return replace(q, q.path);
  std::error_code ec;
  const std::string path = std::filesystem::canonical(q.path, ec);
  if (ec) return tl::unexpected(Trouble{ec.value(), "follow " + q.path});
  if (::stat(path.c_str(), &file) != 0) return trouble("stat", path);
  if (!S_ISREG(file.st_mode))
    return tl::unexpected(Trouble{EINVAL, fmt::format("write {}, which is no plain file", path)});
  // In a folder of many a link may be anybody's.
  if (S_ISLNK(name.st_mode) && name.st_uid != ::geteuid() && name.st_uid != file.st_uid)
    return tl::unexpected(Trouble{EPERM, fmt::format("follow another user's link {}", q.path)});
  return replace(q, path, &file);
}

/// The old file or the new link is there at any moment.
Outcome<VolumeReply> make_link(const VolumeRequest& q) {
  const std::string temporary = new_name(q.path);
  if (::symlink(q.path2.c_str(), temporary.c_str()) != 0) {
    if (lacks_links(errno)) return VolumeReply();
    return trouble("link", q.path);
  }
  if (::rename(temporary.c_str(), q.path.c_str()) == 0) return VolumeReply{.yes = true};
  auto failed = trouble("rename to", q.path);
  ::unlink(temporary.c_str());
  return failed;
}

/// With a given size, repeating it is harmless: bytes of an earlier try count. Elsewhere a part
/// that could be written is taken back, so that what is missing is known.
Outcome<VolumeReply> append(const VolumeRequest& q) {
  struct stat now {};
  const auto file = open_plain(q.path, O_RDWR | O_CREAT | O_NOFOLLOW | O_APPEND, now);
  if (!file) return tl::unexpected(file.error());
  const Fd& fd = *file;
  std::string_view rest = q.bytes;
  if (q.number != kAnySize) {
    if (::lseek(fd.get(), static_cast<off_t>(q.number), SEEK_SET) < 0)
      return trouble("seek in", q.path);
    std::string there;
    if (!io::read_rest(fd.get(), there, q.bytes.size() + 1)) return trouble("read", q.path);
    if (static_cast<std::uint64_t>(now.st_size) < q.number || !rest.starts_with(there))
      return tl::unexpected(
          Trouble{kConflict, fmt::format("{} was changed by someone else", q.path)});
    rest.remove_prefix(there.size());
  }
  if (!io::write_all(fd.get(), rest)) {
    auto error = trouble("write", q.path);
    if (q.number == kAnySize) static_cast<void>(::ftruncate(fd.get(), now.st_size) == 0);
    return error;
  }
  if (q.sync && ::fsync(fd.get()) != 0) return trouble("sync", q.path);
  if (q.limit > 0 && ::fstat(fd.get(), &now) == 0 &&
      static_cast<std::uint64_t>(now.st_size) >= q.limit / 2 &&
      ::rename(q.path.c_str(), (q.path + io::kOlder).c_str()) != 0)
    return trouble("set aside", q.path);
  return VolumeReply();
}

Outcome<VolumeReply> truncate(const VolumeRequest& q) {
  struct stat now {};
  const auto fd = open_plain(q.path, O_WRONLY, now);
  if (!fd) return tl::unexpected(fd.error());
  return as_reply(::ftruncate(fd->get(), static_cast<off_t>(q.number)), "truncate", q.path);
}

Outcome<VolumeReply> room(const std::string& path) {
  struct statvfs fs {};
  if (::statvfs(path.c_str(), &fs) != 0) return trouble("look at the room of", path);
  return VolumeReply{.number = static_cast<std::uint64_t>(fs.f_bavail) * fs.f_frsize};
}

Outcome<VolumeReply> make_dirs(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), 0777) != 0 && errno != EEXIST) return trouble("make folder", part);
    if (end == std::string::npos) break;
  }
  struct stat made {};
  if (::stat(path.c_str(), &made) != 0) return trouble("make folder", path);
  if (!S_ISDIR(made.st_mode)) return tl::unexpected(Trouble{ENOTDIR, "make folder " + path});
  return VolumeReply();
}

Outcome<VolumeReply> list(const std::string& path) {
  VolumeReply reply;
  std::error_code ec;
  std::filesystem::directory_iterator entry(path, ec);
  for (; !ec && entry != std::filesystem::directory_iterator(); entry.increment(ec))
    reply.names.push_back(entry->path().filename());
  if (ec) return tl::unexpected(Trouble{ec.value(), "list " + path});
  std::ranges::sort(reply.names);
  return reply;
}

Outcome<void> check_lock(const VolumeRequest& q) {
  constexpr std::uint64_t kMost = 64 << 10;
  const auto lock = read_file({.path = q.lock_file, .number = kMost});
  if (!lock) return tl::unexpected(lock.error());
  if (lock->bytes != q.lock)
    return tl::unexpected(Trouble{
        kConflict, fmt::format("{} is not this job's any more: {} stays", q.lock_file, q.path)});
  return {};
}

class Helper {
 public:
  explicit Helper(int fd) : fd_(fd), inotify_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {}

  int serve() {
    std::string buffer(std::size_t{64} << 10, '\0');
    for (;;) {
      const int rest = hint_rest_ms();
      pollfd waits[2] = {{fd_, POLLIN, 0}, {rest > 0 ? -1 : inotify_.get(), POLLIN, 0}};
      if (::poll(waits, 2, rest > 0 ? rest : -1) < 0 && errno != EINTR) return 1;
      if (waits[1].revents != 0) pass_hint();
      if (waits[0].revents == 0) continue;
      const ssize_t n = ::read(fd_, buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return 0;
      decoder_.feed(std::string_view(buffer).substr(0, static_cast<std::size_t>(n)));
      for (;;) {
        const auto frame = decoder_.next();
        if (!frame) return 1;
        if (!*frame) break;
        const auto request = wire::parse<VolumeRequest>((*frame)->body);
        if (!request) return 1;
        if (!io::write_all(fd_, wire::frame(answer(*request)))) return 0;
      }
    }
  }

 private:
  VolumeReply answer(const VolumeRequest& q) {
    // What lies in .dtlaunch says how hosts are reached: only the user writes there. The files
    // beside it may be a group's.
    const bool is_ours = q.path.find("/.dtlaunch/") != std::string::npos;
    ::umask(is_ours || q.path.ends_with("/.dtlaunch") ? umask_ | 022 : umask_);
    auto outcome = execute(q);
    if (outcome) return std::move(*outcome);
    return {.error = outcome.error().number, .text = outcome.error().doing};
  }

  Outcome<VolumeReply> execute(const VolumeRequest& q) {
    if (!q.lock_file.empty())
      if (auto held = check_lock(q); !held) return tl::unexpected(held.error());
    switch (q.op) {
      case VolumeOp::kRead:
        return read_file(q);
      case VolumeOp::kExists: {
        VolumeReply reply;
        reply.yes = ::access(q.path.c_str(), F_OK) == 0;
        if (!reply.yes && errno != ENOENT && errno != ENOTDIR) return trouble("stat", q.path);
        return reply;
      }
      case VolumeOp::kWriteNew:
        return write_new(q);
      case VolumeOp::kReplace:
        return replace(q, q.path);
      case VolumeOp::kRewrite:
        return rewrite(q);
      case VolumeOp::kAppend:
        return append(q);
      case VolumeOp::kTruncate:
        return truncate(q);
      case VolumeOp::kMakeDirs:
        return make_dirs(q.path);
      case VolumeOp::kRename:
        return as_reply(::rename(q.path.c_str(), q.path2.c_str()), "rename",
                        fmt::format("{} to {}", q.path, q.path2));
      case VolumeOp::kRemove:
        if (::remove(q.path.c_str()) != 0 && errno != ENOENT) return trouble("remove", q.path);
        return VolumeReply();
      case VolumeOp::kList:
        return list(q.path);
      case VolumeOp::kLink:
        return make_link(q);
      case VolumeOp::kRoom:
        return room(q.path);
      case VolumeOp::kWatch:
        watched_ = q.path2;
        return as_reply(::inotify_add_watch(inotify_.get(), q.path.c_str(), kChanges), "watch",
                        q.path);
    }
    return tl::unexpected(Trouble{ENOSYS, "an unknown request"});
  }

  /// How long the folder is not looked at; 0: it is.
  int hint_rest_ms() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_look_ - Clock::now());
    return std::max(0, static_cast<int>(left.count()));
  }

  /// Whatever happened to the file, the supervisor should look. Lost events count as one.
  void pass_hint() {
    next_look_ = Clock::now() + kHintRest;
    alignas(inotify_event) char events[4096];
    bool concerns = false;
    for (ssize_t n; (n = ::read(inotify_.get(), events, sizeof events)) > 0;) {
      for (ssize_t at = 0; at < n;) {
        const auto* event = reinterpret_cast<const inotify_event*>(events + at);
        concerns = concerns || event->len == 0 || watched_ == event->name;
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      }
    }
    const char byte = 'x';
    if (concerns) [[maybe_unused]]
      const ssize_t n = ::write(STDOUT_FILENO, &byte, 1);
  }

  int fd_;
  const mode_t umask_ = ::umask(077);
  Fd inotify_;
  std::string watched_;  ///< Name of the file of interest in the watched folder.
  Clock::time_point next_look_{};
  wire::FrameDecoder decoder_{std::size_t{256} << 20};
};

}  // namespace

int volume_helper(int fd) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_NAME, "dtsuper-volume");  // it was run as /proc/self/exe
  ::signal(SIGPIPE, SIG_IGN);
  const int flags = ::fcntl(STDOUT_FILENO, F_GETFL);
  if (flags >= 0) ::fcntl(STDOUT_FILENO, F_SETFL, flags | O_NONBLOCK);
  return Helper(fd).serve();
}

}  // namespace dt::supervisor
