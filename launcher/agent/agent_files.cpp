#include "launcher/agent/agent_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/base/number.h"
#include "io/job/spec.h"

namespace dt::launcher {
namespace {

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

bool is_file_name(std::string_view name) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return !name.empty() && name.size() <= 128 && name[0] != '.' &&
         name.find_first_not_of(kPlain) == std::string_view::npos;
}

/// The parent folder: made by us or shared like /run/user/N, never writable for other users.
Result<void> check_parent(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return tl::unexpected(errno_error(
        errno, fmt::format("make folder {} (XDG_RUNTIME_DIR must name a folder of yours)", path)));
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) return tl::unexpected(errno_error(errno, path));
  if (!S_ISDIR(st.st_mode) || st.st_uid != ::geteuid() || (st.st_mode & 022) != 0)
    return fail(ErrorKind::kDenied,
                "{} must be a folder of yours that others cannot write to; "
                "remove it, or set XDG_RUNTIME_DIR to a folder of yours",
                path);
  return {};
}

AgentFiles files_beside(const std::string& stem) {
  return {stem.substr(0, stem.rfind('/')), stem + ".sock", stem + ".lock", stem + ".log",
          stem + ".term"};
}

std::string stem_in(const std::string& folder, const std::string& host) {
  return fmt::format("{}/agent-{:016x}", folder, fnv1a(host));
}

std::optional<io::Fd> try_connect(const std::string& path) {
  io::Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return {};
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != ::geteuid())
    return {};
  ::fcntl(fd.get(), F_SETFL, 0);
  return fd;
}

/// A folder below /tmp may be another user's: only a plain file of ours counts.
io::Fd open_ours(const std::string& path) {
  io::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat file {};
  const bool is_ours =
      fd && ::fstat(fd.get(), &file) == 0 && S_ISREG(file.st_mode) && file.st_uid == ::geteuid();
  return is_ours ? std::move(fd) : io::Fd();
}

/// An agent, or the guard of one, lives: it holds the lock.
bool is_held(const std::string& lock) {
  const io::Fd fd = open_ours(lock);
  return fd && ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace

Result<AgentFiles> agent_files(const std::string& job, const std::string& host) {
  if (!is_file_name(job))
    return fail(ErrorKind::kInvalid, "job name '{}': letters, digits, '-', '_' and '.' only", job);
  AgentFiles files = files_beside(stem_in(io::default_runtime_dir(job), host));
  if (files.socket.size() >= sizeof(sockaddr_un::sun_path))
    return fail(
        ErrorKind::kInvalid,
        "{} is too long for a socket's address ({} bytes at most): set XDG_RUNTIME_DIR to a "
        "shorter folder",
        files.socket, sizeof(sockaddr_un::sun_path) - 1);
  return files;
}

Result<void> make_agent_folder(const AgentFiles& files) {
  const auto parent = std::filesystem::path(files.folder).parent_path();
  std::error_code ignored;
  std::filesystem::create_directories(parent.parent_path(), ignored);
  if (auto checked = check_parent(parent.string()); !checked) return checked;
  return io::make_private_dir(files.folder);
}

Term taken_over_by(const std::vector<AgentFiles>& all) {
  Term highest;
  for (const AgentFiles& files : all) {
    if (::access(files.term.c_str(), F_OK) != 0) continue;
    char text[32];
    const io::Fd fd = open_ours(files.term);
    const ssize_t n = fd ? ::read(fd.get(), text, sizeof text) : 0;
    const auto number = n > 0 && text[n - 1] == '\n'
                            ? parse_number<std::uint64_t>({text, static_cast<std::size_t>(n - 1)})
                            : std::nullopt;
    if (!number) fmt::print(stderr, "dtagent: {} is not a term's file of ours\n", files.term);
    highest = std::max(highest, Term(number.value_or(0)));
  }
  return highest;
}

Result<void> note_take_over(const AgentFiles& files, Term term) {
  ::unlink(files.term.c_str());
  const io::Fd fd(
      ::open(files.term.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd || !io::write_all(fd.get(), fmt::format("{}\n", term)))
    return tl::unexpected(errno_error(errno, "write " + files.term));
  return {};
}

Result<std::optional<io::Fd>> take_agent_lock(const std::string& path) {
  for (;;) {
    io::Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd && errno == ENOENT) return std::optional<io::Fd>();
    if (!fd) return tl::unexpected(errno_error(errno, "open " + path));
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return std::optional<io::Fd>();
      return tl::unexpected(errno_error(errno, "lock " + path));
    }
    struct stat mine {};
    struct stat present {};
    if (::fstat(fd.get(), &mine) == 0 && ::stat(path.c_str(), &present) == 0 &&
        mine.st_ino == present.st_ino && mine.st_dev == present.st_dev)
      return std::optional<io::Fd>(std::move(fd));
  }
}

std::vector<AgentFiles> agent_files_anywhere(const std::string& job, const std::string& host,
                                             const AgentFiles& own, const std::string& socket) {
  std::vector<AgentFiles> all;
  const auto add = [&all](AgentFiles files) {
    if (std::ranges::count(all, files.socket, &AgentFiles::socket) == 0)
      all.push_back(std::move(files));
  };
  constexpr std::string_view kSuffix = ".sock";
  if (socket.starts_with('/') && socket.ends_with(kSuffix) &&
      socket.size() < sizeof(sockaddr_un::sun_path))
    add(files_beside(socket.substr(0, socket.size() - kSuffix.size())));
  add(own);
  for (const char* base : {"/run/user/{}/dtlaunch/{}", "/tmp/dtlaunch-{}/{}"})
    add(files_beside(stem_in(fmt::format(fmt::runtime(base), ::getuid(), job), host)));
  return all;
}

std::optional<io::Fd> connect_to_agent(const std::vector<AgentFiles>& all) {
  for (const AgentFiles& files : all)
    if (auto fd = try_connect(files.socket)) return fd;
  return {};
}

bool is_any_held(const std::vector<AgentFiles>& all) {
  return std::ranges::any_of(all, [](const AgentFiles& files) { return is_held(files.lock); });
}

}  // namespace dt::launcher
