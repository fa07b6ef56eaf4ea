/// device.h over the emulated machine.
#include "kvstore/compute/cuda/device.h"

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "test/support/emulated_device/machine.h"
#include "test/support/emulated_device/put.h"

using dt::test::emulated::Machine;
using dt::test::emulated::Point;
using dt::test::emulated::Queue;
using dt::test::emulated::Work;

/// The state of a UniqueStream.
struct CUstream_st {
  std::shared_ptr<Queue> queue;
  int device = 0;
};

/// The state of an Event: the point recorded last, and when the stream passed it.
struct CUevent_st {
  struct Record {
    Point point;
    std::chrono::steady_clock::time_point at;  ///< Once it is past.
  };
  std::shared_ptr<Record> record;
  bool is_asked = false;  ///< The first query of a point answers "not passed".
};

namespace dt::test::emulated {

namespace {
thread_local int the_device = 0;
}

std::shared_ptr<Queue> queue_of(kv::cuda::Stream stream) {
  return stream ? stream->queue : Machine::get().default_stream();
}

Status put(kv::cuda::Stream stream, std::function<void()> run) {
  const Status status = Machine::get().status();
  if (status.ok()) Machine::get().put(queue_of(stream), {Work::Kind::kRun, std::move(run), {}});
  return status;
}

Status put_launch(kv::cuda::Stream stream, std::function<void()> run) {
  if (stream && stream->device != the_device) return {"invalid resource handle"};
  return put(stream, std::move(run));
}

std::function<void()> hold(kv::cuda::Stream stream) {
  auto gate = Machine::get().hold(queue_of(stream));
  return [gate] { Machine::get().open(gate); };
}

}  // namespace dt::test::emulated

namespace dt::kv::cuda {

using test::emulated::put;
using test::emulated::queue_of;

namespace {

using test::emulated::the_device;

Machine& machine() { return Machine::get(); }

/// The status of a call that gives the thread's device a context.
Status enter() {
  const Status status = machine().status();
  if (status.ok()) machine().enter(the_device);
  return status;
}

/// A handle's bytes. Only the process that has the memory finds it.
struct Exported {
  pid_t process = 0;
  std::uint64_t name = 0;
};
static_assert(sizeof(Exported) <= sizeof(MemoryHandle));

}  // namespace

std::string why_no_device(int number) {
  const int count = machine().devices();
  if (count == 0) return "no CUDA device on this machine";
  if (number < 0 || number >= count)
    return "no CUDA device " + std::to_string(number) + ": this machine has " +
           std::to_string(count);
  return {};
}

std::string describe_device(int) { return "Emulated device, sm_90, 0 GB"; }

Status use_device(int number) {
  if (const Status status = machine().status(); !status.ok()) return status;
  if (number < 0 || number >= machine().devices()) return {"invalid device ordinal"};
  the_device = number;
  return enter();
}
Status current_device(int& number) {
  number = the_device;
  return machine().status();
}
bool has_context(int number) { return machine().contexts().contains(number); }

Status wait(Stream stream) {
  machine().run_until(machine().last(queue_of(stream)));
  return machine().status();
}

Status copy(void* to, const void* from, std::size_t bytes, Stream stream) {
  test::emulated::a_copy_begins(to);
  return put(stream, [=] {
    machine().count([](auto&, auto& done) { ++done.copies; });
    if (bytes > 0) std::memmove(to, from, bytes);
  });
}

Status fill(void* to, int value, std::size_t bytes, Stream stream) {
  return put(stream, [=] {
    if (bytes > 0) std::memset(to, value, bytes);
  });
}

Status add_callback(Stream stream, void (*function)(void*), void* argument) {
  if (const Status status = machine().status(); !status.ok()) return status;
  machine().count([](auto&, auto& done) { ++done.callbacks; });
  machine().put(queue_of(stream), {Work::Kind::kCallBack, [=] { function(argument); }, {}});
  return {};
}

Status device_memory(std::size_t& free, std::size_t& total) {
  total = std::size_t{16} << 30;
  free = total - machine().alive().device_bytes;
  return machine().status();
}

// ---------------------------------------------------------------- memory

Status DeviceMemory::allocate(std::size_t bytes) {
  void* fresh = nullptr;
  Status status = enter();
  if (status.ok() && bytes > 0)
    status = machine().allocate(Machine::Kind::kDevice, the_device, bytes, fresh);
  if (!status.ok()) return status;
  data_ = {fresh, [](void* data) { machine().free(Machine::Kind::kDevice, data); }};
  size_ = bytes;
  return {};
}

Status PinnedMemory::allocate(std::size_t bytes) {
  void* fresh = nullptr;
  Status status = enter();
  if (status.ok() && bytes > 0)
    status = machine().allocate(Machine::Kind::kPinned, 0, bytes, fresh);
  if (status.ok())
    data_ = {fresh, [](void* data) { machine().free(Machine::Kind::kPinned, data); }};
  return status;
}

Status PinnedRegistration::add(void* data, std::size_t bytes) {
  Status status = enter();
  if (status.ok() && bytes > 0) status = machine().add_registration(data, bytes);
  if (status.ok())
    data_ = {bytes > 0 ? data : nullptr, [](void* old) { machine().remove_registration(old); }};
  return status;
}

Status export_memory(const DeviceMemory& memory, MemoryHandle& handle) {
  const Exported exported{getpid(), machine().name_of(memory.data())};
  if (exported.name == 0) return {"invalid argument"};
  std::memcpy(handle.bytes, &exported, sizeof exported);
  return machine().status();
}

Status IpcMemory::open(const MemoryHandle& handle) {
  Exported told;
  std::memcpy(&told, handle.bytes, sizeof told);
  if (const Status status = enter(); !status.ok()) return status;
  if (told.process != getpid()) return {"invalid resource handle"};
  void* fresh = nullptr;
  std::size_t size = 0;
  const Status status = machine().open(told.name, fresh, size);
  if (!status.ok()) return status;
  data_ = {fresh, [](void* data) { machine().close(data); }};
  size_ = size;
  return {};
}

// ---------------------------------------------------------------- streams, events

UniqueStream::~UniqueStream() {
  if (!stream_) return;
  machine().destroy_stream(std::move(stream_->queue));
  delete stream_;
}
Status UniqueStream::create() {
  if (const Status status = enter(); !status.ok()) return status;
  stream_ = new CUstream_st{machine().create_stream(), the_device};
  return {};
}

Event::~Event() {
  if (!event_) return;
  machine().count([](auto& alive, auto&) { --alive.events; });
  delete event_;
}
Status Event::create() {
  if (const Status status = enter(); !status.ok()) return status;
  event_ = new CUevent_st;
  machine().count([](auto& alive, auto&) { ++alive.events; });
  return {};
}
Status Event::record(Stream stream) {
  if (const Status status = machine().status(); !status.ok()) return status;
  auto record = std::make_shared<CUevent_st::Record>();
  auto pass = [record] { record->at = std::chrono::steady_clock::now(); };
  const Point point = machine().put(queue_of(stream), {Work::Kind::kRun, std::move(pass), {}});
  record->point = point;
  event_->record = std::move(record);
  event_->is_asked = false;
  return {};
}
Status Event::make_wait(Stream stream) const {
  if (const Status status = machine().status(); !status.ok()) return status;
  if (event_->record)
    machine().put(queue_of(stream), {Work::Kind::kWait, {}, event_->record->point});
  return {};
}
Status Event::wait() const {
  if (event_->record) machine().run_until(event_->record->point);
  return machine().status();
}
Status Event::query(bool& is_done) const {
  is_done = !event_->record || machine().is_past(event_->record->point);
  if (!is_done && std::exchange(event_->is_asked, true) &&
      !machine().is_held(event_->record->point)) {
    machine().run_until(event_->record->point);
    is_done = true;
  }
  return machine().status();
}
Status Event::milliseconds_since(const Event& earlier, float& milliseconds) const {
  if (!event_->record || !earlier.event_->record) return {"invalid resource handle"};
  if (!machine().is_past(event_->record->point) ||
      !machine().is_past(earlier.event_->record->point))
    return {"device not ready"};
  const std::chrono::duration<float, std::milli> took =
      event_->record->at - earlier.event_->record->at;
  milliseconds = took.count();
  return machine().status();
}

}  // namespace dt::kv::cuda
