// The floor inside a machine: gradients and sums lie in memory that workers and servers share, so
// nothing is copied; a server reads all gradients and writes the sum, in one pass.
//
//     worker  increments `published`; waits until the servers have finished the round; reads the
//     sum server  waits until all workers have published; sums its slices; increments `summed`
//
// A sum is overwritten when all workers have published the next round, so when no worker reads it.

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <deque>

#include "test/bench/kv/raw_exchange.h"
#include "test/bench/kv/raw_parts.h"
#include "test/bench/kv/stream.h"
#include "test/bench/kv/worker.h"

namespace dt::bench {

namespace {

/// A count that only grows, waited for across processes.
class Count {
 public:
  /// Wakes waiting processes when a multiple of `party` is reached.
  void add_one(std::uint32_t party) {
    if ((++value_) % party == 0) wake();
  }
  /// False: it ended before.
  bool await(std::uint32_t wanted) {
    for (std::uint32_t have = value_; (have & ~kEnded) < wanted; have = value_) {
      if (have & kEnded) return false;
      (void)::syscall(SYS_futex, &value_, FUTEX_WAIT, have, nullptr, nullptr, 0);
    }
    return true;
  }
  void end() {
    value_ |= kEnded;
    wake();
  }

 private:
  static constexpr std::uint32_t kEnded = 1U << 31;
  void wake() { (void)::syscall(SYS_futex, &value_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }
  std::atomic<std::uint32_t> value_{0};
};

struct Shared {
  alignas(64) Count published;
  alignas(64) Count summed;
};

/// The memory that all processes map.
struct SharedTensors {
  SharedTensors(std::uint32_t workers, std::size_t elements)
      : sum(elements, true), counts(sizeof(Shared) / sizeof(float), true) {
    for (std::uint32_t w = 0; w < workers; ++w) gradients.emplace_back(elements, true);
    shared = new (counts.bytes()) Shared;
  }
  std::deque<Buffer> gradients;
  Buffer sum;
  Buffer counts;
  Shared* shared;
};

class ShmWorker final : public Exchange {
 public:
  ShmWorker(SharedTensors& memory, std::uint32_t rank, std::uint32_t servers)
      : memory_(memory), rank_(rank), servers_(servers) {}
  ~ShmWorker() override { memory_.shared->published.end(); }

  std::span<float> gradient() override { return memory_.gradients[rank_].values(); }
  std::span<const float> result() override { return memory_.sum.values(); }

  void run() override {
    ++round_;
    memory_.shared->published.add_one(static_cast<std::uint32_t>(memory_.gradients.size()));
    memory_.shared->summed.await(round_ * servers_);
  }

 private:
  SharedTensors& memory_;
  std::uint32_t rank_;
  std::uint32_t servers_;
  std::uint32_t round_ = 0;
};

/// Blocks that stay in the first-level cache if more than two gradients are added.
constexpr std::size_t kBlock = 4096;

void sum_slice(SharedTensors& memory, std::size_t first, std::size_t count, SumFloats sum,
               AddFloats add) {
  auto& gradients = memory.gradients;
  float* into = memory.sum.values().data();
  const auto at = [&](std::size_t w) { return gradients[w].values().data(); };
  if (gradients.size() == 1) {
    std::copy_n(at(0) + first, count, into + first);
    return;
  }
  for (const std::size_t end = first + count; first < end; first += kBlock) {
    const std::size_t n = std::min(kBlock, end - first);
    sum(into + first, at(0) + first, at(1) + first, n);
    for (std::size_t w = 2; w < gradients.size(); ++w) add(into + first, at(w) + first, n);
  }
}

void serve(SharedTensors& memory, const Stream& stream, std::uint32_t servers) {
  const SumFloats sum = best_sum();
  const AddFloats add = best_add();
  const auto workers = static_cast<std::uint32_t>(memory.gradients.size());
  for (std::uint32_t round = 1; memory.shared->published.await(round * workers); ++round) {
    stream.for_each(0, stream.bytes(), [&](std::size_t offset, std::size_t bytes) {
      sum_slice(memory, offset / sizeof(float), bytes / sizeof(float), sum, add);
    });
    memory.shared->summed.add_one(servers);
  }
}

}  // namespace

Contender start_raw_shm(const KvOptions& options, const TensorList& list) {
  Contender raw("raw-shm", options, list);
  const auto streams = streams_of(list.elements, options.servers, options.chunk_bytes);
  SharedTensors memory(options.workers, list.total_elements());
  raw.children.fork("raw server", options.servers, [&](std::uint32_t s) {
    raw.control.server_ready(s, 0);
    serve(memory, streams[s], options.servers);
  });
  raw.children.fork("raw worker", options.workers, [&](std::uint32_t w) {
    ShmWorker worker(memory, w, options.servers);
    take_part(raw.control, w, worker);
  });
  return raw;
}

}  // namespace dt::bench
