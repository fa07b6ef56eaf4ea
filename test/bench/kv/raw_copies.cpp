#include "test/bench/kv/raw_copies.h"

#include <cstring>
#include <deque>

#include "test/bench/kv/device_tensors.h"
#include "test/bench/kv/worker.h"

namespace dt::bench {

namespace {

class CopyWorker final : public Exchange {
 public:
  CopyWorker(const KvOptions& options, const TensorList& list, std::uint32_t rank)
      : options_(options),
        list_(list),
        rank_(rank),
        device_(options.device_of(rank)),
        bytes_(list.bytes()) {
    if (device_) take_tensors();
    for (auto* pinned : {&out_, &back_}) {
      must(pinned->allocate(bytes_), "pinned memory");
      std::memset(pinned->data(), 0, bytes_);
    }
    if (device_) add(*device_, out_.data(), gradient_.data());
    if (options_.server_device) add_server(*options_.server_device);
    if (device_) add(*device_, result_.data(), back_.data());
  }

  std::span<float> gradient() override { return device_ ? gradient_.mirror() : values(out_); }
  std::span<const float> result() override { return device_ ? result_.mirror() : values(back_); }
  void load() override {
    if (device_) gradient_.to_device();
  }
  void fetch() override {
    if (device_) result_.to_mirror();
  }

  void run() override {
    for (auto& copy : copies_) begin(copy);
    for (auto& copy : copies_) end(copy);
  }

  void run_to_check() override {
    for (auto& copy : copies_) {
      // Without a server nothing else brings the bytes here.
      if (copy.from == back_.data() && !options_.server_device)
        std::memcpy(back_.data(), out_.data(), bytes_);
      begin(copy);
      end(copy);
    }
  }

  std::uint64_t count_bad(std::uint32_t /*workers*/, std::uint32_t round) override {
    return count_wrong(result(), static_cast<float>(rank_ + 1), round);
  }

 private:
  /// One of the copies, with a stream of the device that makes it.
  struct Copy {
    void* to = nullptr;
    const void* from = nullptr;
    kv::cuda::UniqueStream stream;
  };

  void take_tensors() {
    const std::string where = fmt::format("cuda:{}", *device_);
    must(kv::cuda::use_device(*device_), where);
    must(stream_.create(), where);
    gradient_ = DeviceTensors(*device_, list_, stream_.get());
    result_ = DeviceTensors(*device_, list_, stream_.get());
    bytes_ = gradient_.bytes();
  }

  void add_server(int device) {
    const std::string where = fmt::format("memory for the server on cuda:{}", device);
    must(kv::cuda::use_device(device), where);
    must(server_.allocate(bytes_), where);
    add(device, server_.data(), out_.data());
    add(device, back_.data(), server_.data());
  }

  void add(int device, void* to, const void* from) {
    auto& copy = copies_.emplace_back();
    copy.to = to;
    copy.from = from;
    must(kv::cuda::use_device(device), "streams");
    must(copy.stream.create(), "streams");
  }

  void begin(Copy& copy) const {
    must(kv::cuda::copy(copy.to, copy.from, bytes_, copy.stream.get()), "copy");
  }
  static void end(Copy& copy) { must(kv::cuda::wait(copy.stream.get()), "copy"); }

  [[nodiscard]] std::span<float> values(const kv::cuda::PinnedMemory& pinned) const {
    return {static_cast<float*>(pinned.data()), list_.total_elements()};
  }

  const KvOptions& options_;
  const TensorList& list_;
  std::uint32_t rank_;
  std::optional<int> device_;
  std::size_t bytes_;  ///< Bytes of a copy.
  kv::cuda::UniqueStream stream_;
  DeviceTensors gradient_;
  DeviceTensors result_;
  kv::cuda::PinnedMemory out_;
  kv::cuda::PinnedMemory back_;
  kv::cuda::DeviceMemory server_;  ///< A contribution, and the answer.
  std::deque<Copy> copies_;        ///< In the order in which bytes go from gradient to result.
};

}  // namespace

Contender start_copies(const KvOptions& options, const TensorList& list) {
  Contender copies(kCopiesPeer, options, list);
  copies.children.fork("copies", options.workers, [&](std::uint32_t w) {
    CopyWorker worker(options, list, w);
    take_part(copies.control, w, worker);
  });
  return copies;
}

}  // namespace dt::bench
