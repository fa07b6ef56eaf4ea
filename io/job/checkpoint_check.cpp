#include "io/job/checkpoint_check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/base/crc32c.h"
#include "core/base/number.h"
#include "io/fd.h"

namespace dt::io {
namespace {

using nlohmann::json;

constexpr std::size_t kPart = std::size_t{4} << 20;
constexpr std::uint64_t kMostHeader = std::uint64_t{64} << 20;
constexpr std::size_t kDigits = 8;  ///< Hexadecimal digits of an array's checksum.

/// A file that is read once, in order.
class Reader {
 public:
  static Result<Reader> open(std::string path) {
    Reader reader;
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

struct Array {
  std::string name;
  std::uint64_t begin = 0;  ///< Offset from the header's end.
  std::uint64_t end = 0;
  std::uint32_t crc = 0;
};

/// The arrays in the order of their data. Throws an exception that describes the defect.
std::vector<Array> arrays_of(const std::string& header, std::uint64_t data_bytes) {
  const auto shallow = [](int depth, json::parse_event_t, json&) { return depth <= 3; };
  const json all = json::parse(header, shallow);
  std::vector<Array> arrays;
  for (const auto& [name, one] : all.items()) {
    if (name == "__metadata__") continue;
    const auto place = one.at("data_offsets").get<std::vector<std::uint64_t>>();
    if (place.size() != 2) throw std::runtime_error(name + " has no place");
    arrays.push_back({name, place[0], place[1], 0});
  }
  std::sort(arrays.begin(), arrays.end(), [](const Array& a, const Array& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  const auto digits = all.at("__metadata__").at("crc32c").get<std::string>();
  if (digits.size() != arrays.size() * kDigits) throw std::runtime_error("checksums are missing");
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].begin != at || arrays[i].end < at)
      throw std::runtime_error("arrays overlap or leave gaps");
    at = arrays[i].end;
    const auto crc =
        parse_number<std::uint32_t>(std::string_view(digits).substr(i * kDigits, kDigits), 16);
    if (!crc) throw std::runtime_error("a checksum is not of hex digits");
    arrays[i].crc = *crc;
  }
  if (at != data_bytes) throw std::runtime_error("its arrays do not fill the file");
  return arrays;
}

/// Checks one file. Calls `passed` with the number of bytes read.
Result<void> check_file(const std::string& path, const Manifest::File& named,
                        const std::function<void(std::uint64_t)>& passed) {
  auto file = Reader::open(path);
  if (!file) return tl::unexpected(file.error());
  if (file->bytes() != named.bytes)
    return fail(ErrorKind::kInvalid, "{}: has {} bytes, {} were written", path, file->bytes(),
                named.bytes);
  std::uint64_t length = 0;
  char raw[sizeof length];
  if (named.bytes < sizeof raw) return fail(ErrorKind::kInvalid, "{}: cut short", path);
  if (auto ok = file->read(raw, sizeof raw); !ok) return ok;
  std::memcpy(&length, raw, sizeof length);
  if (length > kMostHeader || length > named.bytes - sizeof raw)
    return fail(ErrorKind::kInvalid, "{}: its header is damaged", path);
  std::string header(length, '\0');
  if (auto ok = file->read(header.data(), header.size()); !ok) return ok;
  if (crc32c(crc32c(0, {raw, sizeof raw}), header) != named.header_crc)
    return fail(ErrorKind::kInvalid, "{}: its header is damaged (its checksum differs)", path);
  passed(sizeof raw + length);
  std::vector<Array> arrays;
  try {
    arrays = arrays_of(header, named.bytes - sizeof raw - length);
  } catch (const std::exception& wrong) {
    return fail(ErrorKind::kInvalid, "{}: damaged, or none of ours ({})", path, wrong.what());
  }
  std::vector<char> part(std::min<std::uint64_t>(kPart, named.bytes));
  for (const Array& array : arrays) {
    std::uint32_t crc = 0;
    for (std::uint64_t left = array.end - array.begin; left > 0;) {
      const std::size_t n = std::min<std::uint64_t>(left, part.size());
      if (auto ok = file->read(part.data(), n); !ok) return ok;
      crc = crc32c(crc, {part.data(), n});
      left -= n;
      passed(n);
    }
    if (crc != array.crc)
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
