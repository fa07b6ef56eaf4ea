#include "io/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "io/fd.h"

namespace dt::io {

Result<std::optional<std::string>> read_file_if_there(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file && errno == ENOENT) return std::optional<std::string>();
  struct stat info {};
  if (file && ::fstat(file.get(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
    return fail(ErrorKind::kIo, "read {}: it is no regular file", path);
  std::string text;
  if (!file || !read_rest(file.get(), text))
    return tl::unexpected(errno_error(errno, "read " + path));
  return std::optional(std::move(text));
}

Result<std::string> read_file(const std::string& path) {
  auto text = read_file_if_there(path);
  if (!text) return tl::unexpected(text.error());
  if (!*text) return tl::unexpected(errno_error(ENOENT, "read " + path));
  return std::move(**text);
}

std::string first_line(const std::string& path) {
  const std::string text = read_file(path).value_or("");
  return text.substr(0, text.find('\n'));
}

std::string end_of_file(const std::string& path, std::size_t most) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const off_t begin = ::lseek(file.get(), 0, SEEK_END) - static_cast<off_t>(most);
  std::string text(most, '\0');
  const ssize_t n = ::pread(file.get(), text.data(), most, std::max<off_t>(0, begin));
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, n)));
  return text;
}

}  // namespace dt::io
