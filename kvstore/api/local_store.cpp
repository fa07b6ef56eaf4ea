#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "kvstore/compute/compression.h"
#include "kvstore/compute/cuda/device_guard.h"
#include "kvstore/compute/device_engine.h"
#include "kvstore/compute/reduce.h"
#include "kvstore/link/shared_memory.h"
#include "kvstore/server/shard.h"
#include "kvstore/store.h"
#include "kvstore/worker/device/arrays.h"
#include "kvstore/worker/threshold_warnings.h"

namespace dt::kv {

std::string array_mismatch(WorkerId worker, const data::KeySpec& key, const Array& array) {
  if (array.count == key.count && array.dtype == key.dtype) return {};
  return fmt::format("worker {}: key '{}' has {} elements of {}, the array has {} of {}", worker,
                     key.name, key.count, name_of(key.dtype), array.count, name_of(array.dtype));
}

namespace {

/// A server's shard without a network: its only contributor is this worker, so every round
/// completes within the call.
///
/// If the first array is on a device, that device has the values and computes: its arrays are read
/// and written where they are, in the order of their streams. Other arrays on devices are copied
/// through host memory, and a call with such arrays waits for their streams.
class LocalStore final : public Store, private Answers {
 public:
  explicit LocalStore(std::string type) : type_(std::move(type)) { begin_shard(); }

  const std::string& type() const override { return type_; }
  View view() const override {
    View view;
    view.generation = Generation(1);
    view.epoch = epoch_.value_or(Epoch(0));
    return view;
  }
  WorkerId worker() const override { return WorkerId(0); }
  bool is_newcomer() const override { return false; }
  bool is_lead() const override { return true; }

  Status init(const Keys& keys, const Arrays& given, std::uint8_t flags) override {
    if (auto chosen = choose_engine(given); !chosen) return chosen;
    HostArrays on_host(given);
    if (auto made = on_host.make(devices_, true); !made) return made;
    const auto& values = on_host.get();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      data::KeySpec spec{keys[i], values[i].count, values[i].dtype, flags};
      const auto known = keys_.find(keys[i]);
      if (known != keys_.end()) {
        if (known->second.spec == spec) continue;
        return store_error(Code::kMismatch,
                           array_mismatch(worker(), known->second.spec, values[i]));
      }
      if (!is_supported(values[i].dtype))
        return store_error(
            Code::kInvalid,
            fmt::format("key '{}': float32, float64 and int64 are supported", keys[i]));
      Key key{spec, KeyId(static_cast<std::uint32_t>(keys_.size())), Round(1), {}};
      data::Header header = header_of(data::Type::kInit, key);
      header.flags = flags;
      header.samples = spec.count;
      auto done = ask(header, bytes(header, values[i]), nullptr);
      if (!done) return done;
      keys_.emplace(keys[i], std::move(key));
    }
    return {};
  }

  StoreResult<Handle> begin(const Keys& keys, const Arrays* values, const Arrays* out,
                            const PushOptions& options) override {
    const Arrays none;
    HostArrays from(values ? *values : none);
    HostArrays into(out ? *out : none);
    const auto stays = [this](const Array& array) { return is_direct(array); };
    if (auto made = from.make(devices_, true, stays); !made) return tl::unexpected(made.error());
    if (auto made = into.make(devices_, false, stays); !made) return tl::unexpected(made.error());
    std::set<cuda::Stream> streams;
    for (const auto* arrays : {values, out}) {
      if (!arrays) continue;
      if (auto fits = check(keys, *arrays); !fits) return tl::unexpected(fits.error());
      for (const Array& array : *arrays)
        if (is_direct(array)) streams.insert(array.stream);
    }
    for (const cuda::Stream stream : streams) device_->follow(stream);
    Status done;
    for (std::size_t i = 0; done && i < keys.size(); ++i) {
      Key& key = keys_.at(keys[i]);
      const Array* place = out ? &into.get()[i] : nullptr;
      done = values ? contribute(key, from.get()[i], place, options)
                    : ask(header_of(data::Type::kPull, key), Payload(), place);
    }
    for (const cuda::Stream stream : streams) device_->lead(stream);
    if (!done) return tl::unexpected(done.error());
    if (auto written = into.write(); !written) return tl::unexpected(written.error());
    return ++last_handle_;
  }
  StoreResult<void*> allocate(std::size_t bytes) override {
    auto memory = SharedMemory::anonymous(bytes);
    if (!memory) return store_error(memory.error());
    memories_.push_back(std::move(*memory));
    return memories_.back()->bytes().data();
  }
  std::shared_ptr<const void> owner_of(const void* memory) const override {
    for (const auto& own : memories_)
      if (own->bytes().data() == memory) return own;
    return nullptr;
  }
  Status release(void* memory) override {
    const auto erased =
        std::erase_if(memories_, [&](const auto& own) { return own->bytes().data() == memory; });
    if (erased == 0)
      return store_error(Code::kInvalid, "this memory was not allocated by the store");
    return {};
  }
  Status wait(Handle /*handle*/, double /*timeout_s*/) override { return finish(); }
  Status wait_all(double /*timeout_s*/) override { return finish(); }
  Status wait_in_stream(Handle /*handle*/, double /*timeout_s*/) override { return {}; }
  Status set_optimizer(const std::string& spec) override {
    return ask({.type = data::Type::kSetOptimizer}, Payload(spec), nullptr);
  }
  StoreResult<std::string> optimizer() override {
    const data::Header asks{.type = data::Type::kSetOptimizer, .flags = data::kCheckOnly};
    if (auto done = ask(asks, {}, nullptr); !done) return tl::unexpected(done.error());
    return text_;
  }
  Status pull_state(const Keys& keys, State which, const Arrays& out,
                    std::span<std::uint64_t> updates) override {
    HostArrays into(out);
    if (auto made = into.make(devices_, false); !made) return made;
    if (auto fits = check(keys, into.get()); !fits) return fits;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const data::Header header = state_header(data::Type::kPullState, keys[i], which);
      if (auto done = ask(header, {}, &into.get()[i]); !done) return named(keys[i], done);
      updates[i] = answered_step_;
    }
    return into.write();
  }
  Status init_state(const Keys& keys, State which, const Arrays& values,
                    std::span<const std::uint64_t> updates) override {
    HostArrays from(values);
    if (auto made = from.make(devices_, true); !made) return made;
    if (auto fits = check(keys, from.get()); !fits) return fits;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      data::Header header = state_header(data::Type::kInitState, keys[i], which);
      header.step = updates[i];
      Payload payload = bytes(header, from.get()[i]);
      if (auto done = ask(header, std::move(payload), nullptr); !done) return named(keys[i], done);
    }
    return {};
  }
  Status set_gradient_compression(const std::string& spec) override {
    const auto parsed = parse_compression(spec);
    if (!parsed) return store_error(parsed.error());
    compression_ = *parsed;
    return {};
  }
  Status barrier() override { return {}; }
  Status finish_steps() override { return {}; }
  Status finish_epoch() override { return {}; }
  StoreResult<View> epoch_boundary(Epoch epoch) override {
    if (auto right = check_epoch(epoch_, epoch); !right) return tl::unexpected(right.error());
    epoch_ = epoch;
    return view();
  }
  Status progress(Epoch /*epoch*/, std::uint64_t /*step*/) override { return {}; }
  Status report(const std::string& /*name*/, const Figure& /*value*/) override { return {}; }

 private:
  struct Key {
    data::KeySpec spec;
    KeyId id;
    Round next;
    GradientEncoder encoder;
  };

  /// Whether the keys exist and the arrays fit them.
  Status check(const Keys& keys, const Arrays& arrays) const {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto known = keys_.find(keys[i]);
      if (known == keys_.end())
        return store_error(Code::kInvalid, fmt::format("key '{}' was not initialised", keys[i]));
      const std::string wrong = array_mismatch(worker(), known->second.spec, arrays[i]);
      if (!wrong.empty()) return store_error(Code::kMismatch, wrong);
    }
    return {};
  }

  static Status named(const std::string& key, const Status& failed) {
    return store_error(failed.error().code,
                       fmt::format("key '{}': {}", key, failed.error().message));
  }

  static data::Header header_of(data::Type type, const Key& key) {
    return {.type = type, .dtype = key.spec.dtype, .key = key.id};
  }
  data::Header state_header(data::Type type, const std::string& name, State which) const {
    data::Header header = header_of(type, keys_.at(name));
    header.flags = which == State::kSecond ? data::kSecondState : 0;
    return header;
  }

  void begin_shard() {
    ShardOptions options;
    options.is_registrar = true;
    options.device = device_;
    shard_.emplace(std::move(options), static_cast<Answers&>(*this));
    ServerCommit commit;
    commit.generation = Generation(1);
    commit.contributors = {WorkerId(0)};
    shard_->commit(commit, Time{});
  }
  /// Before the first keys: the device of their arrays computes.
  Status choose_engine(const Arrays& given) {
    const bool is_first = keys_.empty() && !device_ && !given.empty();
    if (!is_first || !given.front().is_on_device()) return {};
    if (auto known = devices_.check(given); !known) return known;
    const cuda::DeviceGuard before;
    auto device = DeviceEngine::open(given.front().place.device);
    if (!device) return store_error(device.error());
    const auto spec = optimizer();
    if (!spec) return tl::unexpected(spec.error());
    device_ = std::move(*device);
    device_->be_lazy();
    begin_shard();
    return spec->empty() ? Status() : set_optimizer(*spec);
  }
  /// Whether the device reads and writes it where it is.
  bool is_direct(const Array& array) const {
    return device_ && array.is_on_device() && array.place.device == device_->number() &&
           DeviceEngine::computes(array.dtype) && compression_.codec == data::Codec::kNone;
  }
  /// Values are where they belong, for the host too.
  Status finish() {
    if (!device_) return {};
    device_->finish();
    const std::string why = device_->take_failure();
    return why.empty() ? Status() : store_error(Code::kInternal, why);
  }
  Payload bytes(data::Header& header, const Array& array) {
    const std::size_t size = bytes_of(array);
    header.payload = static_cast<std::uint32_t>(size);
    Payload payload = header.payload == size ? shard_->take(header) : Payload(size);
    if (!payload.empty()) std::memcpy(payload.data(), array.data, payload.size());
    return payload;
  }

  Status contribute(Key& key, const Array& value, const Array* out, const PushOptions& options) {
    data::Header header = header_of(out ? data::Type::kPushPull : data::Type::kPush, key);
    header.reduce = options.reduce;
    header.generation = Generation(1);
    header.round = key.next;
    header.samples = options.samples;
    header.step = options.step;
    header.learning_rate = options.learning_rate;
    key.next = key.next.next();  // with one contributor the round completes, well or badly
    if (is_direct(value)) return ask(header, {}, out, static_cast<const std::byte*>(value.data));
    const bool auxiliary = (key.spec.flags & data::kAuxiliary) != 0;
    if (compression_.codec == data::Codec::kNone || !is_compressible(header.dtype, auxiliary))
      return ask(header, bytes(header, value), out);
    data::set_codec(header, compression_.codec);
    const auto codes = key.encoder.encode(compression_, static_cast<const float*>(value.data),
                                          value.count, header.samples > 0);
    Payload payload(codes.size());
    std::memcpy(payload.data(), codes.data(), codes.size());
    warnings_.look_at(key.encoder, compression_, key.spec.name);
    return ask(header, std::move(payload), out);
  }

  /// `in`: the gradient, if the device reads it where it is.
  Status ask(const data::Header& header, Payload payload, const Array* out,
             const std::byte* in = nullptr) {
    std::optional<cuda::DeviceGuard> here;
    if (device_) here.emplace(device_->number());
    SharedBuffers shared;
    shared.in = in;
    shared.in_is_on_device = in != nullptr;
    shared.out_is_on_device = out && is_direct(*out);
    if (shared.out_is_on_device) shared.out = static_cast<std::byte*>(out->data);
    out_ = out;
    answer_.reset();
    shard_->handle(header, std::move(payload), Time{}, std::move(shared));
    if (device_ && device_->is_broken())
      return store_error(Code::kInternal, device_->take_failure());
    DT_CHECK(answer_, "a store of one worker answers at once");
    return *answer_;
  }

  void answer(WorkerId /*to*/, const data::Header& header,
              std::shared_ptr<const Payload> payload) override {
    answer_.emplace();
    if (device_ && payload) device_->finish();
    answered_step_ = header.step;
    text_ = payload && header.type == data::Type::kDone ? payload->text() : std::string_view();
    if (header.type == data::Type::kFailed) {
      const auto failure = wire::parse<data::Failure>(payload->text());
      DT_CHECK(failure, "our own failure parses");
      *answer_ = store_error(failure->code, failure->message);
    } else if (out_ && payload && header.type == data::Type::kValue && !payload->empty()) {
      std::memcpy(out_->data, payload->data(), payload->size());
    }
  }

  std::string type_;
  std::shared_ptr<DeviceEngine> device_;  ///< Null: the host computes.
  std::optional<Shard> shard_;
  std::map<std::string, Key> keys_;
  std::vector<std::shared_ptr<SharedMemory>> memories_;
  Compression compression_;
  io::FdLog stderr_{2};
  ThresholdWarnings warnings_{stderr_};
  KnownDevices devices_;
  std::optional<Epoch> epoch_;  ///< Nothing before the first boundary.
  Handle last_handle_ = 0;
  const Array* out_ = nullptr;
  std::optional<Status> answer_;
  std::uint64_t answered_step_ = 0;
  std::string text_;  ///< The last answer's.
};

}  // namespace

std::unique_ptr<Store> make_local_store(std::string type) {
  return std::make_unique<LocalStore>(std::move(type));
}

}  // namespace dt::kv
