#include "kvstore/worker/device/copies.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "kvstore/compute/cuda/device_guard.h"
#include "kvstore/worker/device/arrays.h"

namespace dt::kv {

namespace {

using namespace std::chrono_literals;

/// Bytes on their way from a device beyond which the next chunk waits its turn by priority.
constexpr std::size_t kCopyWindow = std::size_t{8} << 20;
/// Between two polls: CUDA does not call back if a failure of the device has ended the work.
constexpr Duration kLookEvery = 20ms;

}  // namespace

struct DeviceCopies::Copy {
  Request request;
  Outcome outcome;
  std::unique_ptr<cuda::Event> passed;  ///< Not of arrays on several devices.
  bool has_started = false;             ///< on_out_started() was called.
};

struct DeviceLane {
  // Fixed.
  int device = 0;
  cuda::UniqueStream in;
  cuda::UniqueStream out;
  cuda::UniqueStream bell;  ///< For callbacks, so that copies do not wait for their end.

  // The loop's.
  std::map<std::int64_t, DeviceCopies::Queue> waiting;  ///< By -priority.
  DeviceCopies::Queue ins;                              ///< Under way, in the stream's order.
  DeviceCopies::Queue outs;
  std::size_t in_bytes = 0;  ///< Bytes of ins.
  std::vector<std::unique_ptr<cuda::Event>> spare;
  bool is_followed = false;
};

DeviceCopies::DeviceCopies(WorkerId worker, io::asio::io_context& context, Owner& owner,
                           cuda::LocalGroup::Options group)
    : worker_(worker),
      context_(context),
      owner_(owner),
      timer_(context),
      group_(std::move(group)) {}

DeviceCopies::~DeviceCopies() {
  DT_CHECK(busy_ == 0, "copies end before the store does");
  for (const auto& [device, lane] : lanes_) {
    const cuda::DeviceGuard here(device);
    (void)cuda::wait(lane->bell.get());  // afterwards no callback is pending
  }
}

StoreError DeviceCopies::error_of(int device, const char* what) const {
  return {Code::kInternal, fmt::format("worker {}: CUDA device {}: {}", worker_, device, what)};
}

// ---------------------------------------------------------------- the caller

StoreResult<std::shared_ptr<DeviceCall>> DeviceCopies::begin_call(const Array& array) {
  const int device = array.place.device;
  const cuda::DeviceGuard here(device);
  auto& lane = lanes_[device];
  if (!lane) {
    auto fresh = std::make_shared<DeviceLane>();
    fresh->device = device;
    for (auto* stream : {&fresh->in, &fresh->out, &fresh->bell})
      if (const auto status = stream->create(); !status.ok())
        return tl::unexpected(error_of(device, status.error));
    lane = std::move(fresh);
  }
  auto call = std::make_shared<DeviceCall>();
  call->lane = lane;
  call->device = device;
  call->stream = array.stream;
  auto status = call->begin.create();
  if (status.ok()) status = call->begin.record(array.stream);
  if (!status.ok()) return tl::unexpected(error_of(device, status.error));
  return call;
}

cuda::Stream DeviceCopies::stream_out(const DeviceCall& call) { return call.lane->out.get(); }

Status DeviceCopies::make_wait(const DeviceCalls& calls) {
  for (const auto& call : calls) {
    const cuda::DeviceGuard here(call->device);
    cuda::Event event;
    auto status = event.create();
    if (status.ok()) status = event.record(call->lane->out.get());
    if (status.ok()) status = event.make_wait(call->stream);
    if (!status.ok()) return tl::unexpected(error_of(call->device, status.error));
  }
  return {};
}

// ---------------------------------------------------------------- the loop

void DeviceCopies::follow(const std::shared_ptr<DeviceLane>& lane) {
  ++busy_;
  if (!std::exchange(lane->is_followed, true)) followed_.push_back(lane);
  tick();
}

void DeviceCopies::bring_in(Request request) {
  const auto ends = request.device;
  const auto urgency = -static_cast<std::int64_t>(request.header.priority);
  auto copy = std::make_unique<Copy>();
  copy->request = std::move(request);
  if (!ends->all_from.empty()) return start_group(std::move(copy), true);
  const auto lane = (ends->in ? ends->in : ends->out)->lane;
  follow(lane);
  lane->waiting[urgency].push_back(std::move(copy));
  bring_in_more(*lane);
}

void DeviceCopies::bring_in_more(DeviceLane& lane) {
  while (!lane.waiting.empty() && lane.in_bytes < kCopyWindow) {
    auto& first = lane.waiting.begin()->second;
    auto copy = std::move(first.front());
    first.pop_front();
    if (first.empty()) lane.waiting.erase(lane.waiting.begin());
    const auto status = put(lane, *copy, true);
    if (!status.ok()) {
      finish(*copy, true, error_of(lane.device, status.error));
      continue;
    }
    lane.in_bytes += copy->request.into_bytes;
    lane.ins.push_back(std::move(copy));
  }
}

void DeviceCopies::bring_out(Request request, Outcome outcome) {
  const auto ends = request.device;
  auto copy = std::make_unique<Copy>();
  copy->request = std::move(request);
  copy->outcome = std::move(outcome);
  if (!ends->all_into.empty()) return start_group(std::move(copy), false);
  const auto lane = ends->out->lane;
  follow(lane);
  const auto status = put(*lane, *copy, false);
  start_out(*copy);
  if (status.ok())
    lane->outs.push_back(std::move(copy));
  else
    finish(*copy, false, error_of(lane->device, status.error));
}

/// The copies are on the group's thread.
void DeviceCopies::start_group(std::shared_ptr<Copy> copy, bool is_in) {
  const auto& request = copy->request;
  const auto& ends = *request.device;
  DeviceGroup::Copy whole;
  whole.is_sum = is_in;
  whole.ends = is_in ? ends.all_from : ends.all_into;
  whole.place = ends.place;
  whole.dtype = request.header.dtype;
  whole.count = request.into_bytes / data::element_bytes(whole.dtype);
  whole.priority = request.header.priority;
  if (!is_in)
    whole.on_started = [this, copy] {
      io::asio::post(context_, [this, copy] { start_out(*copy); });
    };
  whole.on_ended = [this, copy, is_in](std::optional<StoreError> error) {
    io::asio::post(context_, [this, copy, is_in, error = std::move(error)] {
      finish(*copy, is_in, error);
      look();
    });
  };
  ++busy_;
  tick();
  group_.start(std::move(whole));
}

/// Puts the copy on its stream, after the events that it waits for. After an error no copy is under
/// way.
cuda::Status DeviceCopies::put(DeviceLane& lane, Copy& copy, bool is_in) {
  const cuda::DeviceGuard here(lane.device);
  const auto& ends = *copy.request.device;
  const std::size_t bytes = copy.request.into_bytes;
  const auto stream = is_in ? lane.in.get() : lane.out.get();
  if (lane.spare.empty()) {
    auto event = std::make_unique<cuda::Event>();
    if (const auto status = event->create(); !status.ok()) return status;
    lane.spare.push_back(std::move(event));
  }
  copy.passed = std::move(lane.spare.back());
  lane.spare.pop_back();
  cuda::Status status;
  if (is_in && ends.in) status = ends.in->begin.make_wait(stream);
  // A request whose answer goes into an array is not sent before the caller's stream has finished
  // with that array; an array on a device is written after that stream, and need not wait here.
  const bool out_waits = ends.out && (is_in ? !ends.into : true);
  if (status.ok() && out_waits) status = ends.out->begin.make_wait(stream);
  if (!status.ok()) return status;
  if (is_in && ends.from) status = cuda::copy(ends.place, ends.from, bytes, stream);
  if (!is_in) status = cuda::copy(ends.into, ends.place, bytes, stream);
  if (status.ok()) status = copy.passed->record(stream);
  if (status.ok()) status = copy.passed->make_wait(lane.bell.get());
  const auto call = [](void* self) { static_cast<DeviceCopies*>(self)->ring(); };
  if (status.ok()) status = cuda::add_callback(lane.bell.get(), call, this);
  if (!status.ok()) (void)cuda::wait(stream);
  return status;
}

/// On one of CUDA's threads.
void DeviceCopies::ring() {
  if (!is_rung_.exchange(true)) io::asio::post(context_, [this] { look(); });
}

/// Polls every kLookEvery while copies are under way, which keeps the loop alive as well.
void DeviceCopies::tick() {
  if (busy_ == 0) timer_.cancel();
  if (busy_ == 0 || is_ticking_) return;
  is_ticking_ = true;
  timer_.expires_after(kLookEvery);
  timer_.async_wait([this](const boost::system::error_code&) {
    is_ticking_ = false;
    look();
  });
}

void DeviceCopies::look() {
  is_rung_ = false;
  for (std::size_t i = 0; i < followed_.size(); ++i) {
    const auto lane = followed_[i];
    const cuda::DeviceGuard here(lane->device);
    look_at(*lane, true);
    look_at(*lane, false);
    bring_in_more(*lane);
  }
  tick();
  owner_.on_looked();
}

void DeviceCopies::look_at(DeviceLane& lane, bool is_in) {
  auto& queue = is_in ? lane.ins : lane.outs;
  while (!queue.empty()) {
    bool has_passed = false;
    const auto status = queue.front()->passed->query(has_passed);
    if (status.ok() && !has_passed) return;
    // No copy touches the caller's memory after its operation has ended.
    if (!status.ok()) (void)cuda::wait(is_in ? lane.in.get() : lane.out.get());
    auto copy = std::move(queue.front());
    queue.pop_front();
    lane.spare.push_back(std::move(copy->passed));
    if (is_in) lane.in_bytes -= copy->request.into_bytes;
    std::optional<StoreError> error;
    if (!status.ok()) error = error_of(lane.device, status.error);
    finish(*copy, is_in, std::move(error));
  }
}

void DeviceCopies::start_out(Copy& copy) {
  if (!std::exchange(copy.has_started, true)) owner_.on_out_started(copy.request);
}

void DeviceCopies::finish(Copy& copy, bool is_in, std::optional<StoreError> error) {
  --busy_;
  if (is_in) return owner_.on_in(std::move(copy.request), std::move(error));
  start_out(copy);
  owner_.on_out(std::move(copy.request), std::move(copy.outcome), std::move(error));
}

}  // namespace dt::kv
