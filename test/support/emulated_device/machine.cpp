#include "test/support/emulated_device/machine.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#ifdef DT_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace dt::test::emulated {

namespace {

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kAlignment = 256;

thread_local bool serves_callbacks = false;
thread_local bool is_in_callback = false;

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "emulated device: %s\n", why);
  std::abort();
}

/// Whole pages for the memory, and an unused one behind them.
std::size_t mapped_bytes(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  return (bytes + kPage - 1) / kPage * kPage + kPage;
}
/// Has the address sanitizer watch the bytes behind the end, which it does not of itself.
void guard(void* at, std::size_t bytes, bool is_guarded) {
  auto* end = static_cast<char*>(at) + bytes;
  const std::size_t behind = mapped_bytes(bytes) - bytes;
#ifdef DT_ASAN
  if (is_guarded)
    __asan_poison_memory_region(end, behind);
  else
    __asan_unpoison_memory_region(end, behind);
#else
  static_cast<void>(end);
  static_cast<void>(behind);
  static_cast<void>(is_guarded);
#endif
}
void* guarded(void* at, std::size_t bytes) {
  if (at == MAP_FAILED) give_up("the host is out of memory");
  guard(at, bytes, true);
  return at;
}
/// Memory that can be mapped again, page-aligned.
void* map_pages(std::size_t bytes) {
  void* at = ::mmap(nullptr, mapped_bytes(bytes), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return guarded(at, bytes);
}
void* map_again(void* at, std::size_t bytes) {
  return guarded(::mremap(at, 0, mapped_bytes(bytes), MREMAP_MAYMOVE), bytes);
}
void unmap_pages(void* at, std::size_t bytes) {
  guard(at, bytes, false);
  ::munmap(at, mapped_bytes(bytes));
}

}  // namespace

Machine& Machine::get() {
  static Machine machine;
  if (is_in_callback) give_up("a callback calls device.h, which CUDA forbids");
  return machine;
}

Machine::Machine() : device_limit_(kNoLimit), pinned_limit_(kNoLimit) {
  if (const char* devices = std::getenv("DT_EMULATED_DEVICES"))
    devices_ = static_cast<int>(std::strtoul(devices, nullptr, 10));
  if (const char* bytes = std::getenv("DT_EMULATED_BYTES"))
    device_limit_ = std::strtoull(bytes, nullptr, 10);
  if (const char* reach = std::getenv("DT_EMULATED_REACH"))
    reaches_all_ = reach == std::string("all");
  thread_ = std::thread([this] { serve_callbacks(); });
}

Machine::~Machine() {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Machine::restart(int devices) {
  run_all();
  std::lock_guard lock(mutex_);
  if (!memories_.empty() || alive_.streams > 0 || alive_.events > 0)
    give_up("restart() while memories, streams or events are alive");
  devices_ = devices;
  contexts_.clear();
  error_ = foreign_error_ = nullptr;
  device_limit_ = pinned_limit_ = kNoLimit;
  done_ = {};
}

void Machine::enter(int device) {
  std::lock_guard lock(mutex_);
  contexts_.insert(device);
}

std::set<int> Machine::contexts() {
  std::lock_guard lock(mutex_);
  return contexts_;
}

int Machine::devices() {
  std::lock_guard lock(mutex_);
  return devices_;
}

Status Machine::status() {
  std::lock_guard lock(mutex_);
  if (error_) return {error_};
  return {devices_ > 0 ? nullptr : "no CUDA-capable device is detected"};
}

void Machine::break_with(const char* error) {
  std::lock_guard lock(mutex_);
  error_ = error;
}

// ---------------------------------------------------------------- streams

std::shared_ptr<Queue> Machine::create_stream() {
  auto queue = std::make_shared<Queue>();
  std::lock_guard lock(mutex_);
  queues_.insert(queue);
  ++alive_.streams;
  return queue;
}

void Machine::destroy_stream(std::shared_ptr<Queue> queue) {
  // Its work is still done at some time, and free() waits for it.
  std::lock_guard lock(mutex_);
  --alive_.streams;
  queue->is_destroyed = true;
  const Ticket all = queue->put;
  if (queue->done == all) {
    queues_.erase(queue);
    return;
  }
  asked_.push_back({std::move(queue), all});
  changed_.notify_all();
}

std::shared_ptr<Queue> Machine::default_stream() {
  std::lock_guard lock(mutex_);
  if (!default_) {
    default_ = std::make_shared<Queue>();
    queues_.insert(default_);
  }
  return default_;
}

Point Machine::put(const std::shared_ptr<Queue>& queue, Work work) {
  std::lock_guard lock(mutex_);
  const bool is_callback = work.kind == Work::Kind::kCallBack;
  queue->work.push_back(std::move(work));
  const Point point{queue, ++queue->put};
  if (is_callback) {
    asked_.push_back(point);
    changed_.notify_all();
  }
  return point;
}

Point Machine::last(const std::shared_ptr<Queue>& queue) {
  std::lock_guard lock(mutex_);
  return {queue, queue->put};
}

bool Machine::is_past(const Point& point) {
  std::lock_guard lock(mutex_);
  return point.queue->done >= point.ticket;
}

bool Machine::is_held(const Point& point) {
  std::lock_guard lock(mutex_);
  std::set<std::pair<const Queue*, Ticket>> seen;
  return is_held_now(point, seen);
}

bool Machine::is_held_now(const Point& point,
                          std::set<std::pair<const Queue*, Ticket>>& seen) const {
  const Queue& queue = *point.queue;
  if (queue.done >= point.ticket) return false;
  if (queue.work.empty()) return !queue.is_busy;  // a gate
  if (!seen.emplace(&queue, point.ticket).second) return false;
  const Ticket behind = queue.put - queue.work.size();
  for (std::size_t i = 0; i < queue.work.size() && behind + i < point.ticket; ++i)
    if (queue.work[i].kind == Work::Kind::kWait && is_held_now(queue.work[i].after, seen))
      return true;
  return false;
}

std::shared_ptr<Queue> Machine::hold(const std::shared_ptr<Queue>& queue) {
  auto gate = std::make_shared<Queue>();
  gate->put = 1;  // its work never exists, so no thread can do it
  put(queue, {Work::Kind::kWait, {}, {gate, 1}});
  return gate;
}

void Machine::open(const std::shared_ptr<Queue>& gate) {
  std::lock_guard lock(mutex_);
  gate->done = 1;
  changed_.notify_all();
}

void Machine::run_until(const Point& point) {
  Queue& queue = *point.queue;
  std::unique_lock lock(mutex_);
  while (queue.done < point.ticket) {
    if (queue.is_busy || queue.work.empty()) {
      changed_.wait(lock);
      continue;
    }
    Work& first = queue.work.front();
    if (first.kind == Work::Kind::kWait && first.after.queue->done < first.after.ticket) {
      const Point after = first.after;
      lock.unlock();  // other threads may use the queue meanwhile
      run_until(after);
      lock.lock();
      continue;
    }
    if (first.kind == Work::Kind::kCallBack && !serves_callbacks) {
      changed_.wait(lock);  // the thread of the callbacks does it
      continue;
    }
    const Work work = std::move(first);
    queue.work.pop_front();
    const bool is_callback = work.kind == Work::Kind::kCallBack;
    const bool runs = work.run && !(error_ && is_callback);
    queue.is_busy = true;
    lock.unlock();
    is_in_callback = is_callback;
    if (runs) work.run();
    is_in_callback = false;
    lock.lock();
    queue.is_busy = false;
    ++queue.done;
    changed_.notify_all();
  }
}

void Machine::run_all() {
  std::set<std::shared_ptr<Queue>> queues;
  {
    std::lock_guard lock(mutex_);
    queues = queues_;
  }
  for (const auto& queue : queues) run_until(last(queue));
  std::lock_guard lock(mutex_);
  std::erase_if(queues_,
                [](const auto& queue) { return queue->is_destroyed && queue->done == queue->put; });
}

void Machine::serve_callbacks() {
  serves_callbacks = true;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_stopping_ || !asked_.empty(); });
    if (asked_.empty()) return;
    const Point point = asked_.front();
    asked_.pop_front();
    lock.unlock();
    run_until(point);
    lock.lock();
  }
}

// ---------------------------------------------------------------- memory

void Machine::limit(Kind kind, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  (kind == Kind::kDevice ? device_limit_ : pinned_limit_) = bytes;
}

Status Machine::allocate(Kind kind, int device, std::size_t bytes, void*& data) {
  std::lock_guard lock(mutex_);
  std::size_t used = 0;
  for (const auto& [at, memory] : memories_)
    if ((memory.kind == Kind::kDevice) == (kind == Kind::kDevice) && memory.device == device)
      used += memory.bytes;
  const std::size_t limit = kind == Kind::kDevice ? device_limit_ : pinned_limit_;
  if (used > limit || bytes > limit - used) return {"out of memory"};
  Memory memory;
  memory.kind = kind;
  memory.device = device;
  memory.bytes = bytes;
  memory.name = ++names_;
  if (kind == Kind::kDevice) {
    data = map_pages(bytes);
  } else {
    memory.own = std::make_unique_for_overwrite<unsigned char[]>(bytes + kAlignment);
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.own.get());
    data = memory.own.get() + ((begin + kAlignment - 1) / kAlignment * kAlignment - begin);
  }
  std::memset(data, kPoison, bytes);
  memories_.emplace(reinterpret_cast<std::uintptr_t>(data), std::move(memory));
  ++done_.allocations;
  if (kind == Kind::kDevice) {
    ++alive_.device_memories;
    alive_.device_bytes += bytes;
  } else {
    ++alive_.pinned_memories;
  }
  return {};
}

void Machine::free(Kind kind, void* data) {
  run_all();
  std::lock_guard lock(mutex_);
  ++done_.waits_for_all;
  const auto it = memories_.find(reinterpret_cast<std::uintptr_t>(data));
  if (it == memories_.end() || it->second.kind != kind) give_up("memory is freed that is none");
  std::memset(data, kPoison, it->second.bytes);
  if (kind == Kind::kDevice) {
    --alive_.device_memories;
    alive_.device_bytes -= it->second.bytes;
    if (it->second.openings > 0) ++done_.freed_while_open;
    unmap_pages(data, it->second.bytes);
  } else {
    --alive_.pinned_memories;
  }
  memories_.erase(it);
}

Status Machine::add_registration(void* data, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  std::lock_guard lock(mutex_);
  std::size_t used = 0;
  for (const auto& [at, memory] : memories_) {
    if (memory.kind != Kind::kDevice) used += memory.bytes;
    const bool overlaps = at < begin + bytes && begin < at + memory.bytes;
    if (overlaps) return {"part or all of the requested memory range is already mapped"};
  }
  if (used > pinned_limit_ || bytes > pinned_limit_ - used) return {"out of memory"};
  Memory memory;
  memory.kind = Kind::kRegistered;
  memory.bytes = bytes;
  memories_.emplace(begin, std::move(memory));
  ++alive_.registrations;
  return {};
}

void Machine::remove_registration(void* data) {
  std::lock_guard lock(mutex_);
  const auto it = memories_.find(reinterpret_cast<std::uintptr_t>(data));
  if (it == memories_.end() || it->second.kind != Kind::kRegistered)
    give_up("a registration is removed that is none");
  unsigned char is_resident = 0;
  const std::uintptr_t page = it->first & ~std::uintptr_t{4095};
  if (::mincore(reinterpret_cast<void*>(page), 1, &is_resident) != 0)
    give_up("memory was unmapped before its registration was removed");
  memories_.erase(it);
  --alive_.registrations;
}

bool Machine::is_reachable(const void* data, std::size_t bytes) {
  if (bytes == 0 || reaches_all_) return true;
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  std::lock_guard lock(mutex_);
  auto it = memories_.upper_bound(begin);
  if (it == memories_.begin()) return false;
  --it;
  return begin - it->first <= it->second.bytes && bytes <= it->second.bytes - (begin - it->first);
}

int Machine::device_of(const void* data) {
  std::lock_guard lock(mutex_);
  const auto it = memories_.find(reinterpret_cast<std::uintptr_t>(data));
  const bool is_one = it != memories_.end() && it->second.kind == Kind::kDevice;
  return is_one ? it->second.device : -1;
}

std::uint64_t Machine::name_of(const void* data) {
  std::lock_guard lock(mutex_);
  const auto it = memories_.find(reinterpret_cast<std::uintptr_t>(data));
  const bool is_one = it != memories_.end() && it->second.kind == Kind::kDevice;
  return is_one ? it->second.name : 0;
}

Status Machine::open(std::uint64_t name, void*& data, std::size_t& bytes) {
  std::lock_guard lock(mutex_);
  if (foreign_error_) return {foreign_error_};
  const auto it = std::find_if(memories_.begin(), memories_.end(), [name](const auto& one) {
    return one.second.kind == Kind::kDevice && one.second.name == name;
  });
  if (it == memories_.end()) return {"invalid resource handle"};
  Memory foreign;
  foreign.kind = Kind::kForeign;
  foreign.device = it->second.device;
  foreign.bytes = bytes = it->second.bytes;
  foreign.name = name;
  ++it->second.openings;
  data = map_again(reinterpret_cast<void*>(it->first), bytes);
  memories_.emplace(reinterpret_cast<std::uintptr_t>(data), std::move(foreign));
  ++alive_.foreign_memories;
  ++done_.opened;
  return {};
}

void Machine::close(void* data) {
  std::lock_guard lock(mutex_);
  const auto it = memories_.find(reinterpret_cast<std::uintptr_t>(data));
  if (it == memories_.end() || it->second.kind != Kind::kForeign)
    give_up("memory is closed that is not open");
  for (auto& [at, memory] : memories_)
    if (memory.kind == Kind::kDevice && memory.name == it->second.name) --memory.openings;
  unmap_pages(data, it->second.bytes);
  memories_.erase(it);
  --alive_.foreign_memories;
}

void Machine::refuse_foreign(const char* error) {
  std::lock_guard lock(mutex_);
  foreign_error_ = error;
}

Alive Machine::alive() {
  std::lock_guard lock(mutex_);
  return alive_;
}

Done Machine::done() {
  std::lock_guard lock(mutex_);
  return done_;
}

// ---------------------------------------------------------------- for tests

void restart(int devices) { Machine::get().restart(devices); }
void limit_device_memory(std::size_t bytes) { Machine::get().limit(Machine::Kind::kDevice, bytes); }
void limit_pinned_memory(std::size_t bytes) { Machine::get().limit(Machine::Kind::kPinned, bytes); }
void refuse_foreign(const char* error) { Machine::get().refuse_foreign(error); }
void break_devices(const char* error) { Machine::get().break_with(error); }
namespace {
std::optional<std::size_t> spoiled;
}
namespace {
std::mutex copies_mutex;
std::function<void(const void*)> on_copy;  // under copies_mutex
}  // namespace
void before_copies(std::function<void(const void* to)> call) {
  const std::lock_guard lock(copies_mutex);
  on_copy = std::move(call);
}
void a_copy_begins(const void* to) {
  std::function<void(const void*)> call;
  {
    const std::lock_guard lock(copies_mutex);
    call = on_copy;
  }
  if (call) call(to);
}
void spoil_products(std::optional<std::size_t> element) { spoiled = element; }
std::optional<std::size_t> wrong_element() { return spoiled; }
std::set<int> contexts() { return Machine::get().contexts(); }
void flush() { Machine::get().run_all(); }
Alive alive() { return Machine::get().alive(); }
Done done() { return Machine::get().done(); }

std::string leaks() {
  const Alive left = alive();
  std::string out;
  const auto say = [&out](std::size_t count, const char* what) {
    if (count > 0) out += (out.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  };
  say(left.device_memories, "device memories");
  say(left.pinned_memories, "pinned memories");
  say(left.registrations, "registrations");
  say(left.foreign_memories, "foreign memories");
  say(left.streams, "streams");
  say(left.events, "events");
  say(done().freed_while_open, "memories freed while they were open");
  return out;
}

}  // namespace dt::test::emulated
