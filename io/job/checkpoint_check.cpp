#include "io/job/checkpoint_check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "core/base/crc32c.h"
#include "core/files/safetensors.h"
#include "io/fd.h"

namespace dt::io {
namespace {

constexpr std::size_t kPart = std::size_t{4} << 20;

/// A file that is read once, in order.
class FileReader {
 public:
  static Result<FileReader> open(std::string path) {
    FileReader reader;
    reader.fd_ = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!reader.fd_) return tl::unexpected(errno_error(errno, "open " + path));
    struct stat now {};
    if (::fstat(reader.fd_.get(), &now) != 0)
      return tl::unexpected(errno_error(errno, "stat " + path));
    if (!S_ISREG(now.st_mode)) return fail(ErrorKind::kInvalid, "{}: not a file", path);
    static_cast<void>(::posix_fadvise(reader.fd_.get(), 0, 0, POSIX_FADV_SEQUENTIAL));
    reader.bytes_ = static_cast<std::uint64_t>(now.st_size);
    reader.path_ = std::move(path);
    return reader;
  }

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

  Result<void> read(char* into, std::size_t size) {
    while (size > 0) {
      const ssize_t n = ::read(fd_.get(), into, size);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return tl::unexpected(errno_error(errno, "read " + path_));
      if (n == 0) return fail(ErrorKind::kInvalid, "{}: cut short", path_);
      into += n;
      size -= static_cast<std::size_t>(n);
    }
    return {};
  }

 private:
  std::string path_;
  Fd fd_;
  std::uint64_t bytes_ = 0;
};

/// Checks one file. Calls `passed` with the number of bytes read.
Result<void> check_file(const std::string& path, const Manifest::File& named,
                        const std::function<void(std::uint64_t)>& passed) {
  auto file = FileReader::open(path);
  if (!file) return tl::unexpected(file.error());
  if (file->bytes() != named.bytes)
    return fail(ErrorKind::kInvalid, "{}: has {} bytes, {} were written", path, file->bytes(),
                named.bytes);
  char raw[safetensors::kLengthBytes];
  if (named.bytes < sizeof raw) return fail(ErrorKind::kInvalid, "{}: cut short", path);
  if (auto ok = file->read(raw, sizeof raw); !ok) return ok;
  const auto length = safetensors::parse_length({raw, sizeof raw}, named.bytes);
  if (!length) return fail(ErrorKind::kInvalid, "{}: its header is damaged", path);
  std::string text(*length, '\0');
  if (auto ok = file->read(text.data(), text.size()); !ok) return ok;
  if (crc32c(crc32c(0, {raw, sizeof raw}), text) != named.header_crc)
    return fail(ErrorKind::kInvalid, "{}: its header is damaged (its checksum differs)", path);
  passed(sizeof raw + *length);
  const auto header = safetensors::parse_header(text, named.bytes - sizeof raw - *length);
  const auto checksums = header ? checksums_of(*header) : tl::unexpected(header.error());
  if (!checksums)
    return fail(ErrorKind::kInvalid, "{}: damaged, or none of ours ({})", path,
                checksums.error().message);
  std::vector<char> part(std::min<std::uint64_t>(kPart, named.bytes));
  for (std::size_t i = 0; i < header->arrays.size(); ++i) {
    const auto& array = header->arrays[i];
    std::uint32_t crc = 0;
    for (std::uint64_t left = array.end - array.begin; left > 0;) {
      const std::size_t n = std::min<std::uint64_t>(left, part.size());
      if (auto ok = file->read(part.data(), n); !ok) return ok;
      crc = crc32c(crc, {part.data(), n});
      left -= n;
      passed(n);
    }
    if (crc != (*checksums)[i])
      return fail(ErrorKind::kInvalid, "{}: {} is damaged (its checksum differs)", path,
                  array.name);
  }
  return {};
}

}  // namespace

Result<void> check_checkpoint(const std::string& folder, const Manifest& manifest,
                              const CheckProgress& progress) {
  std::uint64_t total = 0;
  for (const auto& file : manifest.files) total += file.bytes;
  std::uint64_t done = 0;
  const auto passed = [&](std::uint64_t bytes) {
    done += bytes;
    if (progress) progress(done, total);
  };
  for (const auto& file : manifest.files)
    if (auto ok = check_file(folder + "/" + file.name, file, passed); !ok) return ok;
  return {};
}

}  // namespace dt::io
