#include "test/bench/kv/device_tensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "io/fd.h"
#include "test/bench/kv/contender.h"
#include "test/bench/kv/failure.h"

namespace dt::bench {

namespace {

constexpr std::size_t kAlignment = 256;
/// A driver takes seconds to start if no process keeps it running.
constexpr auto kAskLimit = std::chrono::seconds(60);

/// The devices in the options, each once.
std::vector<int> devices_of(const KvOptions& options) {
  std::vector<int> all = options.devices;
  if (options.server_device) all.push_back(*options.server_device);
  std::ranges::sort(all);
  const auto rest = std::ranges::unique(all);
  all.erase(rest.begin(), rest.end());
  return all;
}

}  // namespace

void must(kv::cuda::Status status, const std::string& what) {
  if (!status.ok()) throw Failure("{}: {}", what, status.error);
}

std::string why_no_devices(const KvOptions& options) {
  const auto devices = devices_of(options);
  if (devices.empty()) return {};
  const io::Pipe answer = must(io::make_pipe());
  Children asking;
  asking.fork("devices", [&] {
    for (const int device : devices) {
      const std::string why = kv::cuda::why_no_device(device);
      if (why.empty()) continue;
      // The message fits into the pipe's buffer, so this write does not block.
      if (::write(answer.write.get(), why.data(), why.size()) < 0)
        throw Failure(errno_error(errno, "tell of the devices"));
      break;
    }
  });
  asking.join(kAskLimit);
  char text[1024];
  if (::fcntl(answer.read.get(), F_SETFL, O_NONBLOCK) != 0)
    throw Failure(errno_error(errno, "read of the devices"));
  const ssize_t size = ::read(answer.read.get(), text, sizeof text);
  return {text, size > 0 ? static_cast<std::size_t>(size) : 0};
}

DeviceTensors::DeviceTensors(int device, const TensorList& list, kv::cuda::Stream stream)
    : device_(device), stream_(stream) {
  std::size_t offset = 0;
  std::size_t first = 0;
  for (const std::uint64_t count : list.elements) {
    tensors_.push_back({offset, first, count});
    first += count;
    offset += (count * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  }
  const std::string where = fmt::format("{} on cuda:{}", list.name, device);
  must(kv::cuda::use_device(device), where);
  must(memory_.allocate(offset), where);
  must(pinned_.allocate(first * sizeof(float)), where);
  mirror_ = {static_cast<float*>(pinned_.data()), first};
  std::ranges::fill(mirror_, 0.0F);
  to_device();
}

void DeviceTensors::copy_all(bool to_device) const {
  for (const Tensor& tensor : tensors_) {
    void* there = data() + tensor.offset;
    void* here = mirror_.data() + tensor.first;
    must(kv::cuda::copy(to_device ? there : here, to_device ? here : there,
                        tensor.count * sizeof(float), stream_),
         "copy");
  }
  must(kv::cuda::wait(stream_), "copy");
}

kv::Array DeviceTensors::array(std::size_t tensor) const {
  const Tensor& the = tensors_.at(tensor);
  return {data() + the.offset,
          the.count,
          data::Dtype::kFloat32,
          {kv::cuda::Place::Kind::kDevice, device_},
          stream_};
}

}  // namespace dt::bench
