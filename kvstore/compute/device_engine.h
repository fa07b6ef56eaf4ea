/// The engine of a loop whose chunks are on a device: their values, optimizer states and open
/// rounds lie in its memory, and the loop's own stream does the arithmetic.
///
/// One thread, which uses the device (begin_thread). Calls put work on the stream and return;
/// wait() blocks the thread until all of it is done, tens of microseconds for a chunk. It waits for
/// this stream only, not for other loops' work on the device. A failure is kept until
/// take_failure(), and until then calls do nothing:
/// - no memory: the call failed, the engine can be used again after take_failure();
/// - anything else: the device is broken, and every later call fails (is_broken).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "kvstore/compute/cuda/device.h"
#include "kvstore/compute/engine.h"
#include "kvstore/compute/payload.h"

namespace dt::kv {

class DeviceEngine final : public Engine {
 public:
  /// With a stream on device `number`; kUnavailable contains the reason why it cannot be used.
  [[nodiscard]] static Result<std::shared_ptr<DeviceEngine>> open(int number);
  ~DeviceEngine() override;

  /// Whether this engine computes with the type; int64 stays on the host.
  [[nodiscard]] static bool computes(data::Dtype dtype) {
    return dtype == data::Dtype::kFloat32 || dtype == data::Dtype::kFloat64;
  }
  /// To be called once by the thread that uses it, if another thread opened it.
  void begin_thread() { expect(cuda::use_device(number_)); }

  /// Sets the function that take() calls if the device has no memory; take() tries again if it
  /// returns true: it has freed some. The function must not take any itself.
  void on_no_memory(std::function<bool()> make_room) { make_room_ = std::move(make_room); }
  [[nodiscard]] Payload take(std::size_t bytes) override;
  void give(Payload payload) override;
  [[nodiscard]] std::shared_ptr<Payload> share(Payload ours) override {
    return kv::share(std::move(ours), pool_);
  }
  [[nodiscard]] Payload bring(Payload host) override;
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  [[nodiscard]] Payload swap_out(Payload& ours, std::mutex& guard) override;
  void wait() override;
  /// Waits, also where wait() does not.
  void finish();
  /// For a caller that orders its own streams: wait() does nothing from now on, and what it
  /// promises holds on a stream after lead(), and for the host after finish().
  void be_lazy() { is_lazy_ = true; }
  /// Later calls come after the work that is on `stream`.
  void follow(cuda::Stream stream) { order(stream, stream_.get()); }
  /// Later work on `stream` comes after the calls made so far.
  void lead(cuda::Stream stream) { order(stream_.get(), stream); }
  [[nodiscard]] std::string take_failure() override;
  [[nodiscard]] bool goes_on() const override { return failure_.empty(); }
  /// The device has failed.
  [[nodiscard]] bool is_broken() const { return is_broken_; }

  void reduce(data::Dtype dtype, const Reduction& reduction, std::byte* out,
              std::size_t elements) override;
  void count(data::Dtype dtype, std::byte* values, std::size_t elements) override;
  void update(const OptimizerSpec& spec, OptimizerState& state, data::Dtype dtype,
              double learning_rate, std::byte* values, const Reduction& gradient,
              std::size_t elements) override;
  void add(data::Dtype dtype, std::byte* into, const std::byte* from, double weight,
           std::size_t elements, bool counts) override;
  void scale(data::Dtype dtype, std::byte* values, double factor, std::size_t elements) override;
  void decode(data::Codec codec, std::byte* out, const Payload& codes,
              std::size_t elements) override;
  void decode_add(data::Codec codec, std::byte* into, const Payload& codes, float weight,
                  std::size_t elements) override;
  /// Counts up to the last wait().
  [[nodiscard]] std::uint64_t take_nonfinite() override { return std::exchange(seen_, 0); }

  /// The pool of host payloads; for the engine's thread.
  [[nodiscard]] const std::shared_ptr<PayloadPool>& host_pool() const { return host_pool_; }
  [[nodiscard]] int number() const { return number_; }

  /// Copies in host memory, null where `from` is null, made on a stream of their own: any thread,
  /// while the engine's thread uses other memory. `from` are on device `number`, and complete.
  [[nodiscard]] static Result<std::vector<std::shared_ptr<const Payload>>> fetch(
      int number, const std::vector<const Payload*>& from);

 private:
  explicit DeviceEngine(int number);
  cuda::Status start();
  /// Keeps the host's bytes until the stream has read them.
  void keep(Payload host);
  void expect(cuda::Status status);
  void order(cuda::Stream first, cuda::Stream second);
  std::byte* moments(std::shared_ptr<Payload>& state, std::size_t bytes);
  /// Where the device counts non-finite elements.
  [[nodiscard]] std::uint64_t* found() const { return static_cast<std::uint64_t*>(found_.data()); }
  template <class Format>
  void reduce_as(const Reduction& reduction, std::byte* out, std::size_t elements,
                 std::uint64_t* found);
  template <class Format>
  void update_as(const OptimizerSpec& spec, OptimizerState& state, double learning_rate,
                 std::byte* values, const Reduction& gradient, std::size_t elements);
  template <class Run>
  void with_codes(const Payload& codes, Run run);

  int number_;
  std::shared_ptr<PayloadPool> host_pool_;
  std::shared_ptr<PayloadPool> pool_;
  cuda::UniqueStream stream_;
  cuda::Event ordered_;
  cuda::PinnedMemory found_;
  std::uint64_t told_ = 0;  ///< *found() at the last wait().
  std::uint64_t seen_ = 0;  ///< Counted up to the last wait(), and not taken yet.
  std::vector<Payload> kept_;
  std::size_t kept_bytes_ = 0;
  std::string failure_;
  bool is_broken_ = false;
  bool is_lazy_ = false;
  std::function<bool()> make_room_;
};

}  // namespace dt::kv
