#include "trainer/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "core/files/safetensors.h"

namespace dt::train {
namespace {

namespace fs = std::filesystem;
/// A file that is being written under a temporary name; removed unless it was renamed.
class NewFile {
 public:
  explicit NewFile(fs::path path) : path_(std::move(path)) {
    temporary_ = path_.string() + fmt::format(".{}.tmp", getpid());
    fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  }
  ~NewFile() {
    if (fd_ < 0) return;
    close(fd_);
    unlink(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  Result<void> write(const void* data, std::size_t size) {
    if (fd_ < 0) return wrong();
    const auto* at = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t n = ::write(fd_, at, size);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return wrong();
      at += n;
      size -= static_cast<std::size_t>(n);
    }
    return {};
  }

  Result<void> put_in_place() {
    if (fsync(fd_) != 0 || rename(temporary_.c_str(), path_.c_str()) != 0) return wrong();
    close(std::exchange(fd_, -1));
    return {};
  }

 private:
  Result<void> wrong() const {
    return tl::unexpected(errno_error(errno, "write checkpoint " + path_.string()));
  }
  fs::path path_;
  std::string temporary_;
  int fd_ = -1;
};

/// `data` is the part of the file after the header.
Result<NamedArray> read_array(const safetensors::Array& entry, std::string_view data) {
  if (entry.dtype != "F32") return fail(ErrorKind::kInvalid, "{} is not of dtype F32", entry.name);
  NamedArray array{entry.name, {entry.shape.begin(), entry.shape.end()}, {}};
  array.values.resize((entry.end - entry.begin) / sizeof(float));
  if (!array.values.empty())
    std::memcpy(array.values.data(), data.data() + entry.begin, entry.end - entry.begin);
  return array;
}

Result<std::vector<NamedArray>> parse_checkpoint(std::string_view bytes, Metadata* metadata) {
  const auto length =
      safetensors::parse_length(bytes.substr(0, safetensors::kLengthBytes), bytes.size());
  if (!length) return tl::unexpected(length.error());
  const auto text = bytes.substr(safetensors::kLengthBytes, *length);
  const auto data = bytes.substr(safetensors::kLengthBytes + *length);
  const auto header = safetensors::parse_header(text, data.size());
  if (!header) return tl::unexpected(header.error());
  std::vector<NamedArray> arrays;
  for (const auto& entry : header->arrays) {
    auto array = read_array(entry, data);
    if (!array) return tl::unexpected(array.error());
    arrays.push_back(std::move(*array));
  }
  if (metadata != nullptr) *metadata = header->metadata;
  return arrays;
}

}  // namespace

fs::path checkpoint_path(const std::string& prefix, std::uint32_t epochs) {
  return fmt::format("{}-{:04}.safetensors", prefix, epochs);
}

fs::path optimizer_path(const std::string& prefix, std::uint32_t epochs) {
  return fmt::format("{}-{:04}.optimizer.safetensors", prefix, epochs);
}

Result<void> save_checkpoint(const fs::path& path, const std::vector<NamedArray>& arrays,
                             const Metadata& metadata) {
  safetensors::Header header;
  header.metadata = metadata;
  std::uint64_t at = 0;
  for (const auto& array : arrays) {
    const std::uint64_t end = at + array.values.size() * sizeof(float);
    header.arrays.push_back({array.name, "F32", {array.shape.begin(), array.shape.end()}, at, end});
    at = end;
  }
  const std::string text = format_header(header, safetensors::Order::kOfNames);
  NewFile file(path);
  auto ok = file.write(text.data(), text.size());
  for (const auto& array : arrays)
    if (ok) ok = file.write(array.values.data(), array.values.size() * sizeof(float));
  return ok ? file.put_in_place() : ok;
}

Result<std::vector<NamedArray>> load_checkpoint(const fs::path& path, Metadata* metadata) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return tl::unexpected(errno_error(errno, "open checkpoint " + path.string()));
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  auto arrays = parse_checkpoint(all, metadata);
  if (!arrays)
    return fail(ErrorKind::kInvalid, "{}: not a checkpoint of this program, or cut short ({})",
                path.string(), arrays.error().message);
  return arrays;
}

void CheckpointWriter::write_all(const std::stop_token& ending) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!changed_.wait(lock, ending, [this] { return !waiting_.empty(); })) return;
    const auto& [path, arrays, metadata] = waiting_.front();  // a deque's elements stay
    lock.unlock();
    const auto ok = save_checkpoint(path, arrays, metadata);
    lock.lock();
    messages_.push_back(ok ? fmt::format("Saved checkpoint to \"{}\"", path.string())
                           : fmt::format("Warning: {}", ok.error().message));
    waiting_.pop_front();
    changed_.notify_all();
  }
}

bool CheckpointWriter::submit(fs::path path, std::vector<NamedArray> arrays, Metadata metadata) {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= kMaxWaiting) return false;
  waiting_.push_back({std::move(path), std::move(arrays), std::move(metadata)});
  changed_.notify_all();
  return true;
}

std::vector<std::string> CheckpointWriter::take_messages() {
  const std::lock_guard lock(mutex_);
  return std::exchange(messages_, {});
}

void CheckpointWriter::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty(); });
}

}  // namespace dt::train
