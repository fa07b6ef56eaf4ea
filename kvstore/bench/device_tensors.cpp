#include "kvstore/bench/device_tensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "io/fd.h"
#include "kvstore/bench/contender.h"

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

Result<void> result_of(const kv::cuda::Status& status, const std::string& what) {
  if (status.ok()) return {};
  return fail(ErrorKind::kUnavailable, "{}: {}", what, status.error);
}

Result<std::string> why_no_devices(const KvOptions& options) {
  const auto devices = devices_of(options);
  if (devices.empty()) return std::string();
  const auto answer = io::make_pipe();
  if (!answer) return tl::unexpected(answer.error());
  Children asking;
  const auto ask = [&]() -> Result<void> {
    for (const int device : devices) {
      const std::string why = kv::cuda::why_no_device(device);
      if (why.empty()) continue;
      // The message fits into the pipe's buffer, so this write does not block.
      if (::write(answer->write.get(), why.data(), why.size()) < 0)
        return tl::unexpected(errno_error(errno, "tell of the devices"));
      break;
    }
    return {};
  };
  if (auto started = asking.fork("devices", ask); !started) return tl::unexpected(started.error());
  if (auto ended = asking.join(kAskLimit); !ended) return tl::unexpected(ended.error());
  char text[1024];
  if (::fcntl(answer->read.get(), F_SETFL, O_NONBLOCK) != 0)
    return tl::unexpected(errno_error(errno, "read of the devices"));
  const ssize_t size = ::read(answer->read.get(), text, sizeof text);
  return std::string(text, size > 0 ? static_cast<std::size_t>(size) : 0);
}

Result<DeviceTensors> DeviceTensors::make(int device, const TensorList& list,
                                          kv::cuda::Stream stream) {
  DeviceTensors made;
  made.device_ = device;
  made.stream_ = stream;
  std::size_t offset = 0;
  std::size_t first = 0;
  for (const std::uint64_t count : list.elements) {
    made.tensors_.push_back({offset, first, count});
    first += count;
    offset += (count * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  }
  const std::string where = fmt::format("{} on cuda:{}", list.name, device);
  if (auto used = result_of(kv::cuda::use_device(device), where); !used)
    return tl::unexpected(used.error());
  if (auto got = result_of(made.memory_.allocate(offset), where); !got)
    return tl::unexpected(got.error());
  if (auto got = result_of(made.pinned_.allocate(first * sizeof(float)), where); !got)
    return tl::unexpected(got.error());
  made.mirror_ = {static_cast<float*>(made.pinned_.data()), first};
  std::ranges::fill(made.mirror_, 0.0F);
  if (auto zeroed = made.to_device(); !zeroed) return tl::unexpected(zeroed.error());
  return made;
}

Result<void> DeviceTensors::to_device() const { return copy_all(true); }
Result<void> DeviceTensors::to_mirror() const { return copy_all(false); }

Result<void> DeviceTensors::copy_all(bool to_device) const {
  for (const Tensor& tensor : tensors_) {
    void* there = data() + tensor.offset;
    void* here = mirror_.data() + tensor.first;
    const auto put = kv::cuda::copy(to_device ? there : here, to_device ? here : there,
                                    tensor.count * sizeof(float), stream_);
    if (auto copied = result_of(put, "copy"); !copied) return copied;
  }
  return result_of(kv::cuda::wait(stream_), "copy");
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
