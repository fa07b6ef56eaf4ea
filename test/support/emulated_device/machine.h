/// The emulation's internals: streams, memories and injected errors.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "kvstore/compute/cuda/device.h"
#include "test/support/emulated_device/emulated_device.h"

namespace dt::test::emulated {

using kv::cuda::Status;
using Ticket = std::uint64_t;  ///< The how-manieth piece of work of a stream.

struct Queue;

/// A point in a queue's work.
struct Point {
  std::shared_ptr<Queue> queue;
  Ticket ticket = 0;
};

struct Work {
  enum class Kind : std::uint8_t { kRun, kWait, kCallBack };
  Kind kind = Kind::kRun;
  std::function<void()> run;
  Point after;  ///< The point that kWait waits for.
};

/// A stream's work, in order.
struct Queue {
  std::deque<Work> work;
  Ticket put = 0;
  Ticket done = 0;
  bool is_destroyed = false;  ///< No more work is added.
  bool is_busy = false;       ///< A thread runs the first piece of work, without the lock.
};

/// Calls the function of before_copies().
void a_copy_begins(const void* to);

class Machine {
 public:
  static Machine& get();

  void restart(int devices);
  /// The device has a context from now on.
  void enter(int device);
  [[nodiscard]] std::set<int> contexts();
  [[nodiscard]] int devices();
  /// The status of every call: the error of a broken device.
  [[nodiscard]] Status status();
  void break_with(const char* error);

  std::shared_ptr<Queue> create_stream();
  void destroy_stream(std::shared_ptr<Queue> queue);
  /// The stream of calls without a stream.
  std::shared_ptr<Queue> default_stream();
  Point put(const std::shared_ptr<Queue>& queue, Work work);
  Point last(const std::shared_ptr<Queue>& queue);
  bool is_past(const Point& point);
  /// Whether work before the point waits for a gate.
  bool is_held(const Point& point);
  /// Work put on the queue from now on waits until the gate is opened.
  std::shared_ptr<Queue> hold(const std::shared_ptr<Queue>& queue);
  void open(const std::shared_ptr<Queue>& gate);
  void run_until(const Point& point);
  void run_all();

  enum class Kind : std::uint8_t { kDevice, kPinned, kRegistered, kForeign };
  Status allocate(Kind kind, int device, std::size_t bytes, void*& data);
  void free(Kind kind, void* data);
  Status add_registration(void* data, std::size_t bytes);
  void remove_registration(void* data);
  /// Whether devices can read and write all of it.
  bool is_reachable(const void* data, std::size_t bytes);
  /// The device of the allocation of device memory that begins there; -1 without one.
  int device_of(const void* data);
  /// The unique name of that allocation; 0 without one.
  std::uint64_t name_of(const void* data);
  /// Maps the same memory at another address.
  Status open(std::uint64_t name, void*& data, std::size_t& bytes);
  void close(void* data);
  void refuse_foreign(const char* error);

  void limit(Kind kind, std::size_t bytes);
  template <class Change>
  void count(Change change) {
    std::lock_guard lock(mutex_);
    change(alive_, done_);
  }
  Alive alive();
  Done done();

 private:
  /// `seen`: points already visited, none of which is held.
  bool is_held_now(const Point& point, std::set<std::pair<const Queue*, Ticket>>& seen) const;
  struct Memory {
    Kind kind;
    int device = 0;
    std::size_t bytes = 0;
    std::unique_ptr<unsigned char[]> own;  ///< The bytes of kPinned.
    std::uint64_t name = 0;    ///< Name of kDevice; for kForeign, of the memory it maps.
    std::size_t openings = 0;  ///< How often kDevice is open.
  };

  Machine();
  ~Machine();
  void serve_callbacks();

  std::mutex mutex_;
  std::condition_variable changed_;
  int devices_ = 1;
  std::set<int> contexts_;
  const char* error_ = nullptr;
  const char* foreign_error_ = nullptr;
  bool reaches_all_ = false;
  std::uint64_t names_ = 0;  ///< Given to memories.
  std::size_t device_limit_ = 0;
  std::size_t pinned_limit_ = 0;
  std::map<std::uintptr_t, Memory> memories_;
  std::set<std::shared_ptr<Queue>> queues_;
  std::shared_ptr<Queue> default_;
  std::deque<Point> asked_;  ///< Points that the thread for callbacks is to reach.
  bool is_stopping_ = false;
  Alive alive_;
  Done done_;
  std::thread thread_;
};

}  // namespace dt::test::emulated
