/// The memory dtbench shares with the processes it measures: orders, meeting point, times.
///
///     coordinator                    each worker (rank 0..workers-1)
///     create(), start processes      attach() or inherit, set up, ready()
///     await_ready()
///     order(kVerify | kTime)  ---->  next() ... do it ... done()
///     await_done()            <----
///     order(kQuit)            ---->  next() returns kQuit: exit
///
/// It is a memfd, so that no file is left behind; a program that is not forked attaches through
/// /proc/PID/fd/N. All waits are futex waits, which use no CPU. A worker waits without a deadline:
/// it gets a signal when its parent dies.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/time.h"
#include "io/fd.h"

namespace dt::bench {

inline constexpr std::uint32_t kMostWorkers = 64;
inline constexpr std::uint32_t kMostServers = 64;
/// The most operations of one kTime: the time of each is kept.
inline constexpr std::uint32_t kMostOperations = 8192;

enum class Order : std::uint32_t {
  kTime,    ///< `operations` operations, timed.
  kVerify,  ///< The same, each on new values; every element of the result is checked, untimed.
  kQuit,
};

struct Command {
  Order order = Order::kQuit;
  std::uint32_t operations = 0;
  std::uint32_t round = 0;  ///< Number of the first operation's values.
  double straggle = 0;      ///< Seconds that one worker, in turn, is late before an operation.
};

/// What a kvstore keeps for exchanges that are under way.
struct KeptMemory {
  double staged_mib = 0;  ///< In memory that servers of the host share.
  double pinned_mib = 0;
  double device_mib = 0;
};

class Control {
 public:
  /// For `workers` workers that exchange tensors of these sizes.
  Control(std::uint32_t workers, const std::vector<std::uint64_t>& elements);
  /// In another program; `path` is the creator's path().
  explicit Control(const std::string& path);

  /// Valid while the creator lives.
  [[nodiscard]] std::string path() const;
  [[nodiscard]] std::uint32_t workers() const;
  [[nodiscard]] std::span<const std::uint64_t> elements() const;
  /// Seconds of each operation of the worker's last order, kMostOperations at most.
  [[nodiscard]] std::span<double> times(std::uint32_t rank) const;

  // The coordinator's side. `watch` is called a few times a second; its exception, for instance
  // that a process has ended, ends the wait.
  using Watch = std::function<void()>;
  void await_ready(Duration limit, const Watch& watch);
  void order(const Command& command);
  void await_done(Duration limit, const Watch& watch);
  /// All processes that have registered: workers by rank, then servers.
  [[nodiscard]] std::vector<int> pids() const;
  [[nodiscard]] std::vector<int> server_pids() const;
  /// Seconds from the first operation's begin to the last one's end.
  [[nodiscard]] double elapsed(std::uint32_t rank) const;
  /// Elements found wrong, by all workers since the start.
  [[nodiscard]] std::uint64_t bad() const;
  /// The largest reports of all workers. Nothing: no worker has reported yet.
  [[nodiscard]] std::optional<KeptMemory> kept() const;
  /// Contributions that servers read in the memory of a worker's device; complete after their end.
  [[nodiscard]] std::uint64_t read_in_place() const;

  // A worker's side.
  void ready(std::uint32_t rank);
  [[nodiscard]] Command next();
  /// Returns when every worker has called it.
  void meet();
  void done(std::uint32_t rank, double elapsed, std::uint64_t bad);
  /// Reports the worker's kept memory, and replaces its last report.
  void keeps(std::uint32_t rank, const KeptMemory& memory);
  /// After kQuit: the worker needs no server any more.
  void leave();

  // A server's side, and the side of processes that wait for it.
  void server_ready(std::uint32_t server, std::uint16_t port);
  /// Waits until all servers are ready.
  [[nodiscard]] std::vector<std::uint16_t> await_ports(std::uint32_t servers);
  void has_read_in_place(std::uint64_t contributions);
  /// Returns when every worker has left.
  void await_leavers();

 private:
  struct Head;
  struct Unmap {
    std::size_t bytes;
    void operator()(Head* head) const;
  };
  void map(std::size_t bytes);
  void await(std::atomic<std::uint32_t>& count, Duration limit, const Watch& watch);

  io::Fd fd_;
  std::unique_ptr<Head, Unmap> head_;
  std::uint32_t seen_ = 0;  ///< Number of the last order that this worker has received.
};

}  // namespace dt::bench
