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

/// A regular file of `bytes` bytes, to be read once, in order.
Result<Fd> open_file(const std::string& path, std::uint64_t bytes) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return tl::unexpected(errno_error(errno, "open " + path));
  struct stat now {};
  if (::fstat(file.get(), &now) != 0) return tl::unexpected(errno_error(errno, "stat " + path));
  if (!S_ISREG(now.st_mode)) return fail(ErrorKind::kInvalid, "{}: not a file", path);
  if (static_cast<std::uint64_t>(now.st_size) != bytes)
    return fail(ErrorKind::kInvalid, "{}: has {} bytes, {} were written", path, now.st_size, bytes);
  static_cast<void>(::posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL));
  return file;
}

Result<void> read_all(const Fd& file, const std::string& path, char* into, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::read(file.get(), into, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return tl::unexpected(errno_error(errno, "read " + path));
    if (n == 0) return fail(ErrorKind::kInvalid, "{}: cut short", path);
    into += n;
    size -= static_cast<std::size_t>(n);
  }
  return {};
}

/// Checks one file. Calls `passed` with the number of bytes read.
Result<void> check_file(const std::string& path, const Manifest::File& named,
                        const std::function<void(std::uint64_t)>& passed) {
  const auto file = open_file(path, named.bytes);
  if (!file) return tl::unexpected(file.error());
  char raw[safetensors::kLengthBytes];
  if (named.bytes < sizeof raw) return fail(ErrorKind::kInvalid, "{}: cut short", path);
  if (auto ok = read_all(*file, path, raw, sizeof raw); !ok) return ok;
  const auto length = safetensors::parse_length({raw, sizeof raw}, named.bytes);
  if (!length) return fail(ErrorKind::kInvalid, "{}: its header is damaged", path);
  std::string text(*length, '\0');
  if (auto ok = read_all(*file, path, text.data(), text.size()); !ok) return ok;
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
      if (auto ok = read_all(*file, path, part.data(), n); !ok) return ok;
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
