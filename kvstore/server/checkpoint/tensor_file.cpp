#include "kvstore/server/checkpoint/tensor_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/base/crc32c.h"
#include "core/base/number.h"
#include "io/json_number.h"

namespace dt::kv {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

constexpr const char* kMetadata = "__metadata__";
constexpr const char* kChecksums = "crc32c";
constexpr std::size_t kChecksumDigits = 8;
constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
/// Bytes written between two calls of give_up.
constexpr std::size_t kStride = std::size_t{1} << 20;

constexpr std::array kDtypes = {data::Dtype::kFloat32, data::Dtype::kFloat64, data::Dtype::kFloat16,
                                data::Dtype::kBfloat16, data::Dtype::kInt64};

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
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return wrong("write");
      bytes.remove_prefix(static_cast<std::size_t>(n));
      at += static_cast<std::uint64_t>(n);
    }
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

/// The header with its size in front. Its length does not depend on the checksums.
std::string header_of(std::span<const Tensor> tensors, Metadata metadata,
                      std::span<const std::uint32_t> checksums) {
  std::string digits;
  for (const std::uint32_t crc : checksums) digits += fmt::format("{:08x}", crc);
  metadata[kChecksums] = std::move(digits);
  std::string text = fmt::format("{{\"{}\":{}", kMetadata, json(metadata).dump());
  std::uint64_t at = 0;
  for (const Tensor& tensor : tensors) {
    const std::uint64_t end = at + tensor.elements * data::element_bytes(tensor.dtype);
    text += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        json(tensor.name).dump(), safetensors_name(tensor.dtype), tensor.elements,
                        at, end);
    at = end;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the format aligns the arrays
  std::array<char, kLengthBytes> length{};
  const std::uint64_t size = text.size();
  std::memcpy(length.data(), &size, sizeof size);
  return std::string(length.data(), length.size()) + text;
}

std::uint32_t parse_checksum(std::string_view digits) {
  const auto number = parse_number<std::uint32_t>(digits, 16);
  if (!number) throw std::runtime_error("a checksum is not of hex digits");
  return *number;
}

data::Dtype parse_dtype(const std::string& name) {
  for (const data::Dtype dtype : kDtypes)
    if (name == safetensors_name(dtype)) return dtype;
  throw std::runtime_error("dtype " + name);
}

/// Throws if it is invalid. `data_at`: where the arrays begin in the file.
TensorFile::Entry parse_entry(const std::string& name, const json& one, std::uint64_t data_at,
                              std::uint64_t data_bytes) {
  TensorFile::Entry entry;
  entry.name = name;
  entry.dtype = parse_dtype(one.at("dtype").get<std::string>());
  const json& shape = one.at("shape");
  const json& offsets = one.at("data_offsets");
  const auto begin = io::whole_number<std::uint64_t>(offsets.at(0));
  const auto end = io::whole_number<std::uint64_t>(offsets.at(1));
  if (!shape.is_array() || shape.size() != 1)
    throw std::runtime_error(name + " has not one dimension");
  entry.elements = io::whole_number<std::uint64_t>(shape[0]);
  const bool fits = begin <= end && end <= data_bytes &&
                    entry.elements <= data_bytes / data::element_bytes(entry.dtype) &&
                    entry.bytes() == end - begin;
  if (!fits) throw std::runtime_error(name + " lies outside the file or has another size");
  entry.at = data_at + begin;
  return entry;
}

Result<std::string> read_at(int fd, std::uint64_t at, std::size_t size, const std::string& path) {
  std::string out(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n = ::pread(fd, out.data() + done, size - done, static_cast<off_t>(at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return tl::unexpected(errno_error(errno, "read " + path));
    if (n == 0) return fail(ErrorKind::kInvalid, "{}: cut short", path);
    done += static_cast<std::size_t>(n);
  }
  return out;
}

}  // namespace

const char* safetensors_name(data::Dtype dtype) {
  switch (dtype) {
    case data::Dtype::kFloat32:
      return "F32";
    case data::Dtype::kFloat64:
      return "F64";
    case data::Dtype::kFloat16:
      return "F16";
    case data::Dtype::kBfloat16:
      return "BF16";
    case data::Dtype::kInt64:
      return "I64";
  }
  return nullptr;
}

Result<WrittenFile> write_tensor_file(const std::string& path, std::span<const Tensor> tensors,
                                      Metadata metadata, const std::function<bool()>& give_up) {
  std::vector<std::uint32_t> checksums(tensors.size(), 0);
  // The checksums are known only after the arrays are written: until then zeros fill their place.
  const std::size_t header_bytes = header_of(tensors, metadata, checksums).size();
  if (header_bytes - kLengthBytes > TensorFile::kMaxHeader)
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
  const std::string header = header_of(tensors, std::move(metadata), checksums);
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
  if (file.bytes_ < kLengthBytes) return fail(ErrorKind::kInvalid, "{}: cut short", path);
  auto length = read_at(file.fd_.get(), 0, kLengthBytes, path);
  if (!length) return tl::unexpected(length.error());
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, length->data(), sizeof header_bytes);
  if (header_bytes > kMaxHeader || header_bytes > file.bytes_ - kLengthBytes)
    return fail(ErrorKind::kInvalid, "{}: not of the safetensors format, or cut short", path);
  auto header = read_at(file.fd_.get(), kLengthBytes, header_bytes, path);
  if (!header) return tl::unexpected(header.error());
  file.header_crc_ = crc32c(crc32c(0, *length), *header);
  const std::uint64_t data_at = kLengthBytes + header_bytes;
  const std::uint64_t data_bytes = file.bytes_ - data_at;
  try {
    const auto shallow = [](int depth, json::parse_event_t, json&) { return depth <= 3; };
    const auto all = json::parse(*header, shallow);
    for (const auto& [name, one] : all.items()) {
      if (name == kMetadata)
        file.metadata_ = one.get<Metadata>();
      else
        file.entries_.push_back(parse_entry(name, one, data_at, data_bytes));
    }
    std::sort(file.entries_.begin(), file.entries_.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.at, a.bytes()) < std::pair(b.at, b.bytes());
    });
    const auto checksums = file.metadata_.find(kChecksums);
    if (checksums == file.metadata_.end() ||
        checksums->second.size() != file.entries_.size() * kChecksumDigits)
      throw std::runtime_error("no checksum for each array");
    std::uint64_t at = data_at;
    for (std::size_t i = 0; i < file.entries_.size(); ++i) {
      Entry& entry = file.entries_[i];
      if (entry.at != at) throw std::runtime_error("arrays overlap or leave gaps");
      at += entry.bytes();
      const std::string_view digits(checksums->second);
      entry.crc = parse_checksum(digits.substr(i * kChecksumDigits, kChecksumDigits));
    }
    if (at != file.bytes_) throw std::runtime_error("its arrays end before the file does");
  } catch (const std::exception& wrong) {
    return fail(ErrorKind::kInvalid, "{}: damaged, or none of ours ({})", path, wrong.what());
  }
  return file;
}

Result<void> TensorFile::read(const Entry& entry, std::byte* into) const {
  const std::uint64_t size = entry.bytes();
  for (std::uint64_t done = 0; done < size;) {
    const ssize_t n =
        ::pread(fd_.get(), into + done, size - done, static_cast<off_t>(entry.at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return tl::unexpected(errno_error(errno, "read " + path_));
    if (n == 0) return fail(ErrorKind::kInvalid, "{}: cut short", path_);
    done += static_cast<std::uint64_t>(n);
  }
  if (crc32c(0, text_of(into, size)) != entry.crc)
    return fail(ErrorKind::kInvalid, "{}: {} is damaged (its checksum differs)", path_, entry.name);
  return {};
}

}  // namespace dt::kv
