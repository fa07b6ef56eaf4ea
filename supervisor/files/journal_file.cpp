#include "supervisor/files/journal_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace dt::supervisor {
namespace {

constexpr std::uint64_t kLeastAhead = std::uint64_t{16} << 10;

bool is_want_of_room(int number) { return number == ENOSPC || number == EDQUOT || number == EFBIG; }

/// The file's name, too, must survive a crash.
Result<void> sync_folder_of(const std::string& path) {
  const std::string folder = path.substr(0, std::max<std::size_t>(path.rfind('/'), 1));
  const io::Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0)
    return tl::unexpected(errno_error(errno, "sync folder " + folder));
  return {};
}

/// Where the journal's replacement is written.
std::string next_to(const std::string& path) { return path + ".new"; }

bool is_file(int fd, const std::string& path) {
  struct stat open {};
  struct stat named {};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

}  // namespace

Result<JournalFile> JournalFile::open(const std::string& path, std::vector<wire::Frame>& records) {
  DT_CHECK(path.starts_with('/'), "the journal's path is absolute");
  auto fd = open_locked(path);
  if (!fd) return tl::unexpected(fd.error());
  ::unlink(next_to(path).c_str());  // left by a supervisor that died while it replaced the journal
  std::string bytes;
  if (!io::read_rest(fd->get(), bytes))
    return tl::unexpected(errno_error(errno, "read journal " + path));
  auto replay = journal::replay(bytes);
  if (replay.error) return tl::unexpected(replay.error->at(path));

  JournalFile journal(path, std::move(*fd));
  journal.header_ = replay.header;
  journal.size_ = bytes.size();
  if (replay.good_size != bytes.size())
    if (auto done = journal.cut(replay.good_size); !done) return tl::unexpected(done.error());
  if (journal.size_ == 0) {
    if (auto done = journal.write_synced(journal::kHeader); !done)
      return tl::unexpected(done.error());
    if (auto done = sync_folder_of(path); !done) return tl::unexpected(done.error());
  }
  journal.keep_ahead();
  records = std::move(replay.records);
  return journal;
}

Result<io::Fd> JournalFile::open_locked(const std::string& path) {
  for (;;) {
    io::Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd) return tl::unexpected(errno_error(errno, "open journal " + path));
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return tl::unexpected(errno_error(errno, "lock journal " + path));
      return fail(ErrorKind::kDenied, "another supervisor of this job is running (it holds {})",
                  path);
    }
    if (is_file(fd.get(), path)) return fd;
    // Its owner has replaced it meanwhile: the new one is locked.
  }
}

Result<void> JournalFile::replace(std::string_view bytes) {
  if (broken_) return fail(ErrorKind::kIo, "journal {} failed before and is not trusted", path_);
  const std::string next = next_to(path_);
  ::unlink(next.c_str());
  // Locked before it has the name: at any time the journal of that name is locked.
  auto fd = open_locked(next);
  if (!fd) return tl::unexpected(fd.error());
  JournalFile journal(next, std::move(*fd));
  auto done = journal.write_synced(bytes);
  if (done && ::rename(next.c_str(), path_.c_str()) != 0)
    done = tl::unexpected(errno_error(errno, "rename journal to " + path_));
  if (!done) {
    ::unlink(next.c_str());
    return done;
  }
  journal.path_ = path_;
  journal.header_ = bytes.starts_with(journal::kCutHeader) ? journal::kCutHeader : journal::kHeader;
  *this = std::move(journal);
  done = sync_folder_of(path_);
  broken_ =
      !done;  // after a crash the old one might be there, without what is appended from now on
  keep_ahead();
  return done;
}

Result<void> JournalFile::append(std::uint16_t type, std::string_view body) {
  auto written = write_synced(journal::append_bytes(type, body));
  if (written) keep_ahead();
  return written;
}

void JournalFile::keep_ahead() {
  if (size_ + kAhead / 2 <= kept_until_) return;
  int number = 0;
  for (std::uint64_t ahead = kAhead; ahead >= kLeastAhead; ahead /= 2) {
    const auto at = static_cast<off_t>(size_);
    if (::fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, at, static_cast<off_t>(ahead)) == 0) {
      kept_until_ = std::max(kept_until_, size_ + ahead);
      break;
    }
    number = errno;
    if (number == EINTR) ahead *= 2;
    if (!is_want_of_room(number) && number != EINTR) return;  // it cannot keep any
  }
  shortage_.clear();
  if (is_want_of_room(number))
    shortage_ = fmt::format("{}; {} kB are left for the journal",
                            errno_error(number, "keep room for " + path_).message,
                            (std::max(kept_until_, size_) - size_) >> 10);
}

Result<void> JournalFile::cut(std::uint64_t size) {
  if (::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0) {
    broken_ = true;
    return tl::unexpected(errno_error(errno, "truncate journal " + path_));
  }
  size_ = size;
  kept_until_ = 0;  // what was kept behind the end may have gone with it
  return {};
}

tl::unexpected<Error> JournalFile::failed(int number, std::string_view doing, bool is_sync) {
  Error error = errno_error(number, fmt::format("{} journal {}", doing, path_));
  is_full_ = is_want_of_room(number);
  // A part of a record followed by a whole one would be damage. What an earlier sync brought to the
  // disk is there; this record's pages are written again.
  (void)cut(size_);
  if (is_sync && !is_full_) broken_ = true;
  return tl::unexpected(std::move(error));
}

Result<void> JournalFile::write_synced(std::string_view bytes) {
  is_full_ = false;
  if (broken_) return fail(ErrorKind::kIo, "journal {} failed before and is not trusted", path_);
  std::uint64_t at = size_;
  for (std::string_view rest = bytes; !rest.empty();) {
    const ssize_t n = ::pwrite(fd_.get(), rest.data(), rest.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(errno, "write", false);
    rest.remove_prefix(static_cast<std::size_t>(n));
    at += static_cast<std::uint64_t>(n);
  }
  if (::fdatasync(fd_.get()) != 0) return failed(errno, "sync", true);
  size_ = at;
  return {};
}

}  // namespace dt::supervisor
