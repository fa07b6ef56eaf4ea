#include "kvstore/worker/device/group.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <future>
#include <utility>

#include "core/base/result.h"
#include "kvstore/compute/cuda/device_guard.h"
#include "kvstore/worker/device/arrays.h"

namespace dt::kv {

namespace {

using namespace std::chrono_literals;

/// Scratch memory of a device, unless one copy needs more.
constexpr std::size_t kScratch = std::size_t{16} << 20;
/// Bytes of a piece of arrays that are copied whole.
constexpr std::size_t kPiece = std::size_t{4} << 20;
/// Between two polls: CUDA does not call back if a failure of the device has ended the work.
constexpr auto kWakeEvery = 20ms;

/// By the dtype's number.
constexpr std::array<cuda::NcclType, data::kDtypes.size()> kTypes = {
    cuda::NcclType::kFloat32, cuda::NcclType::kFloat64, cuda::NcclType::kFloat16,
    cuda::NcclType::kBFloat16, cuda::NcclType::kInt64};

cuda::NcclType type_of(data::Dtype dtype) {
  const auto number = static_cast<std::size_t>(dtype);
  DT_CHECK(number < kTypes.size(), "an unknown dtype");
  return kTypes[number];
}

Status on_device(int device, cuda::Status status) {
  if (status.ok()) return {};
  return store_error(Code::kInternal, fmt::format("CUDA device {}: {}", device, status.error));
}

Status in_group(std::string why) {
  if (why.empty()) return {};
  return store_error(Code::kUnavailable, std::move(why));
}

std::size_t bytes_of(const DeviceGroup::Copy& copy) {
  return copy.count * data::element_bytes(copy.dtype);
}

std::vector<int> devices_of(const DeviceGroup::Copy& copy) {
  std::vector<int> devices;
  for (const auto& end : copy.ends) devices.push_back(end.device);
  return devices;
}

/// A part of an array, in bytes.
struct Bytes {
  std::size_t begin = 0;
  std::size_t size = 0;
};

Bytes part_of(const DeviceGroup::Copy& copy, std::size_t rank) {
  const auto part = cuda::part_of(copy.count, type_of(copy.dtype), copy.ends.size(), rank);
  const std::size_t width = data::element_bytes(copy.dtype);
  return {part.begin * width, part.size * width};
}

}  // namespace

DeviceGroup::DeviceGroup(cuda::LocalGroup::Options options)
    : group_(options), deadline_(options.deadline), order_(kScratch) {}

DeviceGroup::~DeviceGroup() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool DeviceGroup::takes(std::span<const Array> arrays) {
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (!arrays[i].is_on_device()) return false;
    if (reinterpret_cast<std::uintptr_t>(arrays[i].data) % kItem != 0) return false;
    for (std::size_t k = 0; k < i; ++k)
      if (arrays[k].place == arrays[i].place) return false;
  }
  return true;
}

// ---------------------------------------------------------------- any thread

void DeviceGroup::start(Copy copy) {
  {
    std::lock_guard lock(mutex_);
    fresh_.push_back(std::move(copy));
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  }
  changed_.notify_all();
}

Status DeviceGroup::run(const std::vector<Key>& keys, bool is_sum) {
  std::vector<std::promise<std::optional<StoreError>>> ends;
  std::vector<Copy> copies;
  for (const auto& key : keys) {
    Copy whole;
    whole.is_sum = is_sum;
    whole.dtype = key.arrays.front().dtype;
    for (const auto& array : key.arrays) {
      const cuda::DeviceGuard here(array.place.device);
      auto begin = std::make_shared<cuda::Event>();
      auto status = begin->create();
      if (status.ok()) status = begin->record(array.stream);
      if (!status.ok()) return on_device(array.place.device, status);
      whole.ends.push_back(
          {array.place.device, static_cast<std::byte*>(array.data), std::move(begin), nullptr});
    }
    const std::size_t width = data::element_bytes(whole.dtype);
    const std::size_t count = key.arrays.front().count;
    for (std::size_t first = 0; first < count; first += kPiece / width) {
      auto& piece = copies.emplace_back(whole);
      piece.count = std::min(count - first, kPiece / width);
      piece.place = key.host + first * width;
      for (auto& end : piece.ends) end.data += first * width;
    }
  }
  ends.resize(copies.size());
  for (std::size_t i = 0; i < copies.size(); ++i) {
    copies[i].on_ended = [&end = ends[i]](std::optional<StoreError> error) {
      end.set_value(std::move(error));
    };
    start(std::move(copies[i]));
  }
  Status all;
  for (auto& end : ends)
    if (auto error = end.get_future().get(); error && all) all = tl::unexpected(std::move(*error));
  return all;
}

/// On one of CUDA's threads.
void DeviceGroup::ring() {
  std::lock_guard lock(mutex_);
  is_rung_ = true;
  changed_.notify_all();  // under the mutex: the woken thread may destroy this object
}

// ---------------------------------------------------------------- the thread

void DeviceGroup::serve() {
  ::pthread_setname_np(::pthread_self(), "dtkv-devices");
  std::unique_lock lock(mutex_);
  for (;;) {
    auto fresh = std::exchange(fresh_, {});
    is_rung_ = false;
    lock.unlock();
    for (auto& copy : fresh) take(std::move(copy));
    look();
    lock.lock();
    const auto is_told = [this] { return is_rung_ || !fresh_.empty(); };
    if (is_told()) continue;
    if (works_.empty() && is_stopping_) break;
    if (works_.empty())
      changed_.wait(lock, [&] { return is_told() || is_stopping_; });
    else
      changed_.wait_for(lock, kWakeEvery, is_told);
  }
  lock.unlock();
  for (const auto& [device, lane] : lanes_) {
    const cuda::DeviceGuard here(device);
    (void)cuda::wait(lane.door.get());  // afterwards no callback is pending
    (void)cuda::wait(lane.bell.get());
  }
}

void DeviceGroup::take(Copy copy) {
  const auto id = order_.add({copy.is_sum, copy.priority, bytes_of(copy), devices_of(copy)});
  const auto at = works_.emplace(id, Work{std::move(copy), 0, {}}).first;
  not_ready_.insert(at->first);
  for (const auto& one : at->second.copy.ends) {
    const auto lane = lane_of(one.device);
    if (!lane) return end(at, lane.error());
    // Neighbours mostly belong to one call.
    if ((*lane)->asked == one.begin) continue;
    (*lane)->asked = one.begin;
    const cuda::DeviceGuard here(one.device);
    auto status = one.begin->make_wait((*lane)->door.get());
    if (status.ok()) status = add_callback((*lane)->door.get());
    if (auto asked = on_device(one.device, status); !asked) return end(at, asked.error());
  }
}

cuda::Status DeviceGroup::add_callback(cuda::Stream stream) {
  const auto call = [](void* self) { static_cast<DeviceGroup*>(self)->ring(); };
  return cuda::add_callback(stream, call, this);
}

void DeviceGroup::look() {
  look_who_has_passed();
  look_who_is_ready();
  start_more();
}

void DeviceGroup::look_who_has_passed() {
  if (under_way_.empty()) return;
  std::vector<Works::iterator> passed;
  for (const Id id : under_way_) {
    const auto at = works_.find(id);
    const auto& work = at->second;
    bool has_passed = true;
    for (std::size_t rank = 0; has_passed && rank < work.passed.size(); ++rank) {
      const int device = work.copy.ends[rank].device;
      const cuda::DeviceGuard here(device);
      auto status = on_device(device, work.passed[rank]->query(has_passed));
      if (!status) return end_all(status.error());
    }
    if (has_passed) passed.push_back(at);
  }
  // Events of calls that NCCL aborted have passed as well.
  std::string why = group_.check();
  const bool is_late = passed.empty() && Clock::now() - since_ > deadline_;
  if (why.empty() && is_late) why = group_.give_up_late();
  if (!why.empty()) return end_all({Code::kUnavailable, std::move(why)});
  for (const auto at : passed) end(at, {});
}

void DeviceGroup::look_who_is_ready() {
  std::set<const cuda::Event*> not_passed;  // many copies wait for few events
  for (auto next = not_ready_.begin(); next != not_ready_.end();) {
    const auto at = works_.find(*next++);
    auto& work = at->second;
    const auto& ends = work.copy.ends;
    for (bool has_passed = true; has_passed && work.begun < ends.size();) {
      const auto& one = ends[work.begun];
      if (not_passed.contains(one.begin.get())) break;
      const cuda::DeviceGuard here(one.device);
      const auto status = on_device(one.device, one.begin->query(has_passed));
      if (!status) return end_all(status.error());
      if (has_passed)
        ++work.begun;
      else
        not_passed.insert(one.begin.get());
    }
    if (work.begun < ends.size()) continue;
    order_.set_ready(at->first);
    not_ready_.erase(at->first);
  }
}

void DeviceGroup::start_more() {
  for (;;) {
    const auto start = order_.next();
    if (!start) return;
    if (under_way_.empty()) since_ = Clock::now();
    const auto at = works_.find(start->id);
    auto& work = at->second;
    if (auto prepared = prepare(work.copy, start->offset); !prepared) {
      end(at, prepared.error());
      continue;
    }
    auto put = in_group(group_.use(devices_of(work.copy)));
    if (put) put = work.copy.is_sum ? put_sum(work, start->offset) : put_value(work);
    if (!put) return end_all(put.error());
    under_way_.insert(start->id);
    if (work.copy.on_started) work.copy.on_started();
  }
}

StoreResult<DeviceGroup::Lane*> DeviceGroup::lane_of(int device) {
  const auto found = lanes_.find(device);
  if (found != lanes_.end()) return &found->second;
  const cuda::DeviceGuard here(device);
  Lane& lane = lanes_[device];
  cuda::Status status = lane.step.create();
  for (auto* stream : {&lane.exchange, &lane.down, &lane.up, &lane.door, &lane.bell})
    if (status.ok()) status = stream->create();
  if (status.ok()) return &lane;
  lanes_.erase(device);
  return tl::unexpected(on_device(device, status).error());
}

/// Prepares the memory for a copy. Puts nothing on a stream.
Status DeviceGroup::prepare(const Copy& copy, std::size_t offset) {
  for (const auto& one : copy.ends) {
    auto& lane = lanes_.at(one.device);
    const cuda::DeviceGuard here(one.device);
    if (lane.spare.empty()) {
      lane.spare.push_back(std::make_unique<cuda::Event>());
      if (auto made = on_device(one.device, lane.spare.back()->create()); !made) return made;
    }
    const std::size_t bytes = std::max(kScratch, bytes_of(copy));
    if (!copy.is_sum || lane.scratch.size() >= offset + bytes_of(copy)) continue;
    // Only a sum that is alone needs more scratch memory than kScratch.
    if (const auto status = lane.scratch.allocate(bytes); !status.ok())
      return store_error(Code::kInternal,
                         fmt::format("CUDA device {}: {} bytes to add gradients up in: {}",
                                     one.device, bytes, status.error));
  }
  return {};
}

Status DeviceGroup::put_sum(Work& work, std::size_t offset) {
  const auto& copy = work.copy;
  std::vector<cuda::LocalGroup::Array> arrays;
  for (const auto& one : copy.ends) {
    auto& lane = lanes_.at(one.device);
    const cuda::DeviceGuard here(one.device);
    auto* to = static_cast<std::byte*>(lane.scratch.data()) + offset;
    const auto status = cuda::copy(to, one.data, bytes_of(copy), lane.exchange.get());
    if (auto done = on_device(one.device, status); !done) return done;
    arrays.push_back({to, lane.exchange.get()});
  }
  auto summed = in_group(group_.reduce_scatter(arrays, copy.count, type_of(copy.dtype)));
  if (!summed) return summed;
  for (std::size_t rank = 0; rank < copy.ends.size(); ++rank) {
    const int device = copy.ends[rank].device;
    auto& lane = lanes_.at(device);
    const cuda::DeviceGuard here(device);
    auto done = order(lane, device, lane.exchange.get(), lane.down.get());
    const Bytes part = part_of(copy, rank);
    const auto* from = static_cast<const std::byte*>(arrays[rank].data) + part.begin;
    auto* to = copy.place + part.begin;
    if (done) done = on_device(device, cuda::copy(to, from, part.size, lane.down.get()));
    if (done) done = note_end(work, rank, lane.down.get());
    if (!done) return done;
  }
  return {};
}

Status DeviceGroup::put_value(Work& work) {
  const auto& copy = work.copy;
  std::vector<cuda::LocalGroup::Array> arrays;
  for (std::size_t rank = 0; rank < copy.ends.size(); ++rank) {
    const auto& one = copy.ends[rank];
    auto& lane = lanes_.at(one.device);
    const cuda::DeviceGuard here(one.device);
    const Bytes part = part_of(copy, rank);
    const auto status =
        cuda::copy(one.data + part.begin, copy.place + part.begin, part.size, lane.up.get());
    auto done = on_device(one.device, status);
    if (done) done = order(lane, one.device, lane.up.get(), lane.exchange.get());
    if (!done) return done;
    arrays.push_back({one.data, lane.exchange.get()});
  }
  auto gathered = in_group(group_.all_gather(arrays, copy.count, type_of(copy.dtype)));
  if (!gathered) return gathered;
  for (std::size_t rank = 0; rank < copy.ends.size(); ++rank) {
    const auto& one = copy.ends[rank];
    const cuda::DeviceGuard here(one.device);
    auto done = note_end(work, rank, lanes_.at(one.device).exchange.get());
    if (done && one.behind) done = on_device(one.device, work.passed.back()->make_wait(one.behind));
    if (!done) return done;
  }
  return {};
}

/// Makes `then` wait for what is on `first` now.
Status DeviceGroup::order(Lane& lane, int device, cuda::Stream first, cuda::Stream then) {
  auto status = lane.step.record(first);
  if (status.ok()) status = lane.step.make_wait(then);
  return on_device(device, status);
}

/// Records that the copy has ended for this rank when `stream` has come to this point.
Status DeviceGroup::note_end(Work& work, std::size_t rank, cuda::Stream stream) {
  const int device = work.copy.ends[rank].device;
  auto& lane = lanes_.at(device);
  work.passed.push_back(std::move(lane.spare.back()));
  lane.spare.pop_back();
  auto status = work.passed.back()->record(stream);
  if (status.ok()) status = work.passed.back()->make_wait(lane.bell.get());
  if (status.ok()) status = add_callback(lane.bell.get());
  return on_device(device, status);
}

void DeviceGroup::end(Works::iterator at, std::optional<StoreError> error) {
  Work work = std::move(at->second);
  order_.remove(at->first);
  not_ready_.erase(at->first);
  under_way_.erase(at->first);
  works_.erase(at);
  since_ = Clock::now();
  for (std::size_t rank = 0; rank < work.passed.size(); ++rank)
    lanes_.at(work.copy.ends[rank].device).spare.push_back(std::move(work.passed[rank]));
  work.copy.on_ended(std::move(error));
}

/// After a failure. No GPU touches the caller's memory after an operation has ended.
void DeviceGroup::end_all(const StoreError& error) {
  group_.abort();
  for (const auto& [device, lane] : lanes_) {
    const cuda::DeviceGuard here(device);
    for (const auto* stream : {&lane.up, &lane.exchange, &lane.down})
      (void)cuda::wait(stream->get());
  }
  while (!works_.empty()) end(works_.begin(), error);
}

}  // namespace dt::kv
