#include "kvstore/server/checkpoint/tensor_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "core/base/crc32c.h"

namespace dt::kv {
namespace {

/// Bytes written between two calls of give_up.
constexpr std::size_t kStride = std::size_t{1} << 20;

/// By the dtype's number.
constexpr std::array<const char*, data::kDtypes.size()> kNames = {"F32", "F64", "F16", "BF16",
                                                                  "I64"};

std::string_view text_of(const std::byte* bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

/// A file that is being written; removed by the destructor unless it is kept.
class NewFile {
 public:
  explicit NewFile(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {}
  ~NewFile() {
    if (fd_) ::unlink(path_.c_str());  // gives a full volume its space back
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  Result<void> write(std::string_view bytes, std::uint64_t at) {
    if (!fd_) return wrong("create");
    const bool is_there = ::lseek(fd_.get(), static_cast<off_t>(at), SEEK_SET) >= 0;
    if (!is_there || !io::write_all(fd_.get(), bytes)) return wrong("write");
    return {};
  }
  Result<void> keep() {
    if (::fsync(fd_.get()) != 0) return wrong("sync");
    const int fd = fd_.release();
    if (::close(fd) == 0) return {};
    auto error = wrong("close");
    ::unlink(path_.c_str());
    return error;
  }

 private:
  Result<void> wrong(std::string_view doing) const {
    return tl::unexpected(errno_error(errno, fmt::format("{} {}", doing, path_)));
  }
  std::string path_;
  io::Fd fd_;
};

/// The arrays one after the other.
std::vector<safetensors::Array> places_of(std::span<const Tensor> tensors) {
  std::vector<safetensors::Array> arrays;
  std::uint64_t at = 0;
  for (const Tensor& tensor : tensors) {
    const std::uint64_t end = at + tensor.elements * data::element_bytes(tensor.dtype);
    arrays.push_back({tensor.name, safetensors_name(tensor.dtype), {tensor.elements}, at, end});
    at = end;
  }
  return arrays;
}

/// `data_at`: where the arrays begin in the file.
Result<std::vector<TensorFile::Entry>> entries_of(const safetensors::Header& header,
                                                  std::uint64_t data_at) {
  const auto checksums = checksums_of(header);
  if (!checksums) return tl::unexpected(checksums.error());
  std::vector<TensorFile::Entry> entries;
  for (const auto& array : header.arrays) {
    const auto dtype = dtype_of(array.dtype);
    if (!dtype) return fail(ErrorKind::kInvalid, "dtype {}", array.dtype);
    if (array.shape.size() != 1)
      return fail(ErrorKind::kInvalid, "{} has not one dimension", array.name);
    entries.push_back(
        {array.name, *dtype, array.shape[0], data_at + array.begin, (*checksums)[entries.size()]});
  }
  return entries;
}

Result<void> read_at(const io::Fd& fd, std::uint64_t at, std::span<std::byte> into,
                     const std::string& path) {
  while (!into.empty()) {
    const ssize_t n = ::pread(fd.get(), into.data(), into.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return tl::unexpected(errno_error(errno, "read " + path));
    if (n == 0) return fail(ErrorKind::kInvalid, "{}: cut short", path);
    into = into.subspan(static_cast<std::size_t>(n));
    at += static_cast<std::uint64_t>(n);
  }
  return {};
}

}  // namespace

const char* safetensors_name(data::Dtype dtype) {
  const auto number = static_cast<std::size_t>(dtype);
  return number < kNames.size() ? kNames[number] : nullptr;
}

std::optional<data::Dtype> dtype_of(std::string_view safetensors_name) {
  const auto found = std::ranges::find(kNames, safetensors_name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<data::Dtype>(found - kNames.begin());
}

Result<WrittenFile> write_tensor_file(const std::string& path, std::span<const Tensor> tensors,
                                      Metadata metadata, const std::function<bool()>& give_up) {
  std::vector<std::uint32_t> checksums(tensors.size(), 0);
  safetensors::Header parts{places_of(tensors), std::move(metadata)};
  const auto format = [&] {
    safetensors::set_checksums(parts.metadata, checksums);
    return format_header(parts, safetensors::Order::kOfData);
  };
  // The checksums are known when the arrays are written: until then their place is kept.
  const std::size_t header_bytes = format().size();
  if (header_bytes - safetensors::kLengthBytes > safetensors::kMaxHeader)
    return fail(ErrorKind::kInvalid, "{}: too many arrays for one file", path);
  NewFile file(path);
  std::uint64_t at = header_bytes;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t size = tensors[i].elements * data::element_bytes(tensors[i].dtype);
    for (std::size_t done = 0; done < size;) {
      if (give_up && give_up()) return fail(ErrorKind::kClosed, "{}: given up", path);
      const auto part = text_of(tensors[i].values + done, std::min(kStride, size - done));
      checksums[i] = crc32c(checksums[i], part);
      if (auto ok = file.write(part, at); !ok) return tl::unexpected(ok.error());
      done += part.size();
      at += part.size();
    }
  }
  const std::string header = format();
  DT_CHECK(header.size() == header_bytes, "checksums have a fixed width");
  auto ok = file.write(header, 0);
  if (ok) ok = file.keep();
  if (!ok) return tl::unexpected(ok.error());
  return WrittenFile{at, crc32c(0, header)};
}

Result<TensorFile> TensorFile::open(const std::string& path) {
  TensorFile file;
  file.path_ = path;
  file.fd_ = io::Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.fd_) return tl::unexpected(errno_error(errno, "open " + path));
  struct stat now {};
  if (::fstat(file.fd_.get(), &now) != 0) return tl::unexpected(errno_error(errno, "stat " + path));
  if (!S_ISREG(now.st_mode)) return fail(ErrorKind::kInvalid, "{}: not a file", path);
  file.bytes_ = static_cast<std::uint64_t>(now.st_size);
  std::string length(std::min<std::uint64_t>(safetensors::kLengthBytes, file.bytes_), '\0');
  auto read = read_at(file.fd_, 0, std::as_writable_bytes(std::span(length)), path);
  if (!read) return tl::unexpected(read.error());
  const auto header_bytes = safetensors::parse_length(length, file.bytes_);
  if (!header_bytes) return tl::unexpected(header_bytes.error().at(path));
  std::string text(*header_bytes, '\0');
  read = read_at(file.fd_, length.size(), std::as_writable_bytes(std::span(text)), path);
  if (!read) return tl::unexpected(read.error());
  file.header_crc_ = crc32c(crc32c(0, length), text);
  const std::uint64_t data_at = safetensors::kLengthBytes + *header_bytes;
  auto header = safetensors::parse_header(text, file.bytes_ - data_at);
  auto entries = header ? entries_of(*header, data_at) : tl::unexpected(header.error());
  if (!entries)
    return fail(ErrorKind::kInvalid, "{}: damaged, or none of ours ({})", path,
                entries.error().message);
  file.entries_ = std::move(*entries);
  file.metadata_ = std::move(header->metadata);
  return file;
}

Result<void> TensorFile::read(const Entry& entry, std::byte* into) const {
  const std::size_t size = entry.bytes();
  if (auto ok = read_at(fd_, entry.at, {into, size}, path_); !ok) return ok;
  if (crc32c(0, text_of(into, size)) != entry.crc)
    return fail(ErrorKind::kInvalid, "{}: {} is damaged (its checksum differs)", path_, entry.name);
  return {};
}

}  // namespace dt::kv
