#include "kvstore/bench/raw_copies.h"

#include <cstring>
#include <deque>

#include "kvstore/bench/device_tensors.h"
#include "kvstore/bench/worker.h"

namespace dt::bench {

namespace {

class CopyWorker final : public Exchange {
 public:
  CopyWorker(const KvOptions& options, const TensorList& list, std::uint32_t rank)
      : options_(options), list_(list), rank_(rank), device_(options.device_of(rank)) {}

  /// Takes memory; before the first operation.
  Result<void> prepare() {
    bytes_ = list_.bytes();
    if (device_)
      if (auto taken = take_tensors(); !taken) return taken;
    for (auto* pinned : {&out_, &back_}) {
      if (auto got = result_of(pinned->allocate(bytes_), "pinned memory"); !got) return got;
      std::memset(pinned->data(), 0, bytes_);
    }
    if (device_)
      if (auto added = add(*device_, out_.data(), gradient_.data()); !added) return added;
    if (options_.server_device)
      if (auto added = add_server(*options_.server_device); !added) return added;
    if (device_) return add(*device_, result_.data(), back_.data());
    return {};
  }

  std::span<float> gradient() override { return device_ ? gradient_.mirror() : values(out_); }
  std::span<const float> result() override { return device_ ? result_.mirror() : values(back_); }
  Result<void> load() override { return device_ ? gradient_.to_device() : Result<void>(); }
  Result<void> fetch() override { return device_ ? result_.to_mirror() : Result<void>(); }

  Result<void> run() override {
    for (auto& copy : copies_)
      if (auto begun = begin(copy); !begun) return begun;
    for (auto& copy : copies_)
      if (auto ended = end(copy); !ended) return ended;
    return {};
  }

  Result<void> run_to_check() override {
    for (auto& copy : copies_) {
      // Without a server nothing else brings the bytes here.
      if (copy.from == back_.data() && !options_.server_device)
        std::memcpy(back_.data(), out_.data(), bytes_);
      if (auto begun = begin(copy); !begun) return begun;
      if (auto ended = end(copy); !ended) return ended;
    }
    return {};
  }

  std::uint64_t count_bad(std::uint32_t /*workers*/, std::uint32_t round) override {
    const auto weight = static_cast<float>(rank_ + 1);
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < result().size(); ++i)
      wrong += result()[i] == weight * value_at(i, round) ? 0 : 1;
    return wrong;
  }

 private:
  /// One of the copies, with a stream of the device that makes it.
  struct Copy {
    void* to = nullptr;
    const void* from = nullptr;
    kv::cuda::UniqueStream stream;
  };

  Result<void> take_tensors() {
    const std::string where = fmt::format("cuda:{}", *device_);
    if (auto used = result_of(kv::cuda::use_device(*device_), where); !used) return used;
    if (auto made = result_of(stream_.create(), where); !made) return made;
    for (auto* tensors : {&gradient_, &result_}) {
      auto made = DeviceTensors::make(*device_, list_, stream_.get());
      if (!made) return tl::unexpected(made.error());
      *tensors = std::move(*made);
    }
    bytes_ = gradient_.bytes();
    return {};
  }

  Result<void> add_server(int device) {
    const std::string where = fmt::format("memory for the server on cuda:{}", device);
    if (auto used = result_of(kv::cuda::use_device(device), where); !used) return used;
    if (auto got = result_of(server_.allocate(bytes_), where); !got) return got;
    if (auto added = add(device, server_.data(), out_.data()); !added) return added;
    return add(device, back_.data(), server_.data());
  }

  Result<void> add(int device, void* to, const void* from) {
    auto& copy = copies_.emplace_back();
    copy.to = to;
    copy.from = from;
    if (auto used = result_of(kv::cuda::use_device(device), "streams"); !used) return used;
    return result_of(copy.stream.create(), "streams");
  }

  Result<void> begin(Copy& copy) const {
    return result_of(kv::cuda::copy(copy.to, copy.from, bytes_, copy.stream.get()), "copy");
  }
  static Result<void> end(Copy& copy) {
    return result_of(kv::cuda::wait(copy.stream.get()), "copy");
  }

  [[nodiscard]] std::span<float> values(const kv::cuda::PinnedMemory& pinned) const {
    return {static_cast<float*>(pinned.data()), list_.total_elements()};
  }

  const KvOptions& options_;
  const TensorList& list_;
  std::uint32_t rank_;
  std::optional<int> device_;
  std::size_t bytes_ = 0;  ///< Bytes of a copy.
  kv::cuda::UniqueStream stream_;
  DeviceTensors gradient_;
  DeviceTensors result_;
  kv::cuda::PinnedMemory out_;
  kv::cuda::PinnedMemory back_;
  kv::cuda::DeviceMemory server_;  ///< A contribution, and the answer.
  std::deque<Copy> copies_;        ///< In the order in which bytes go from gradient to result.
};

}  // namespace

Result<Contender> start_copies(const KvOptions& options, const TensorList& list) {
  auto control = Control::create(options.workers, list.elements);
  if (!control) return tl::unexpected(control.error());
  Contender copies{kCopiesPeer, std::move(*control), {}, {}};
  for (std::uint32_t w = 0; w < options.workers; ++w) {
    auto body = [&]() -> Result<void> {
      CopyWorker worker(options, list, w);
      if (auto prepared = worker.prepare(); !prepared) return prepared;
      return take_part(copies.control, w, worker);
    };
    if (auto started = copies.children.fork(fmt::format("copies {}", w), body); !started)
      return tl::unexpected(started.error());
  }
  return copies;
}

}  // namespace dt::bench
