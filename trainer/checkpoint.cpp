#include "trainer/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

namespace dt {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

/// A file being written under a temporary name; removed unless it was put in place.
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

  Result<void> write(const void* data, size_t size) {
    if (fd_ < 0) return wrong();
    const auto* at = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t n = ::write(fd_, at, size);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return wrong();
      at += n;
      size -= static_cast<size_t>(n);
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

/// One entry of the header as an array, its numbers taken from `data`.
NamedArray parse_array(const std::string& name, const json& entry, const std::string& data) {
  if (entry.at("dtype") != "F32") throw std::runtime_error(name + " is not of dtype F32");
  NamedArray array{name, entry.at("shape").get<std::vector<int64_t>>(), {}};
  size_t count = 1;
  for (const int64_t n : array.shape) {
    if (n < 0 || (n > 0 && count > data.size() / static_cast<size_t>(n))) {
      throw std::runtime_error(name + " has an impossible shape");
    }
    count *= static_cast<size_t>(n);
  }
  const auto offsets = entry.at("data_offsets").get<std::array<size_t, 2>>();
  if (offsets[0] > offsets[1] || offsets[1] > data.size() ||
      offsets[1] - offsets[0] != count * sizeof(float)) {
    throw std::runtime_error(name + " lies outside the file or has another size than its shape");
  }
  array.values.resize(count);
  if (count > 0) {
    std::memcpy(array.values.data(), data.data() + offsets[0], count * sizeof(float));
  }
  return array;
}

}  // namespace

fs::path checkpoint_path(const std::string& prefix, uint32_t epochs) {
  return fmt::format("{}-{:04}.safetensors", prefix, epochs);
}

Result<void> save_checkpoint(const fs::path& path, const std::vector<NamedArray>& arrays) {
  json header = json::object();
  size_t at = 0;
  for (const auto& array : arrays) {
    const size_t end = at + array.values.size() * sizeof(float);
    header[array.name] = {{"dtype", "F32"}, {"shape", array.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the format aligns the numbers
  const uint64_t length = text.size();
  NewFile file(path);
  auto ok = file.write(&length, sizeof length);
  if (ok) ok = file.write(text.data(), text.size());
  for (const auto& array : arrays) {
    if (ok) ok = file.write(array.values.data(), array.values.size() * sizeof(float));
  }
  return ok ? file.put_in_place() : ok;
}

Result<std::vector<NamedArray>> load_checkpoint(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return tl::unexpected(errno_error(errno, "open checkpoint " + path.string()));
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  uint64_t length = 0;
  if (all.size() < sizeof length) {
    return fail(ErrorKind::kInvalid, "{}: too short for a checkpoint", path.string());
  }
  std::memcpy(&length, all.data(), sizeof length);
  if (length > all.size() - sizeof length) {
    return fail(ErrorKind::kInvalid, "{}: not a checkpoint, or cut short", path.string());
  }
  std::vector<NamedArray> arrays;
  try {
    const auto header = json::parse(all.begin() + sizeof length,
                                    all.begin() + static_cast<ptrdiff_t>(sizeof length + length));
    const std::string data = all.substr(sizeof length + length);
    for (const auto& [name, entry] : header.items()) {
      if (name != "__metadata__") arrays.push_back(parse_array(name, entry, data));
    }
  } catch (const std::exception& wrong) {
    return fail(ErrorKind::kInvalid, "{}: not a checkpoint of this program, or cut short ({})",
                path.string(), wrong.what());
  }
  return arrays;
}

struct CheckpointWriter::State {
  std::mutex mutex;  // guards all but the thread
  std::condition_variable changed;
  std::deque<std::pair<fs::path, std::vector<NamedArray>>> waiting;  // the first is being written
  std::vector<std::string> messages;
  bool stopping = false;
  std::thread thread;

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stopping || !waiting.empty(); });
      if (waiting.empty()) return;
      const auto& [path, arrays] = waiting.front();  // a deque's elements stay where they are
      lock.unlock();
      const auto ok = save_checkpoint(path, arrays);
      lock.lock();
      messages.push_back(ok ? fmt::format("Saved checkpoint to \"{}\"", path.string())
                            : fmt::format("Warning: {}", ok.error().message));
      waiting.pop_front();
      changed.notify_all();
    }
  }
};

CheckpointWriter::CheckpointWriter() : state_(std::make_unique<State>()) {
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

bool CheckpointWriter::submit(fs::path path, std::vector<NamedArray> arrays) {
  const std::lock_guard lock(state_->mutex);
  if (state_->waiting.size() >= kMaxWaiting) return false;
  state_->waiting.emplace_back(std::move(path), std::move(arrays));
  state_->changed.notify_all();
  return true;
}

std::vector<std::string> CheckpointWriter::take_messages() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->messages, {});
}

void CheckpointWriter::flush() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->waiting.empty(); });
}

}  // namespace dt
