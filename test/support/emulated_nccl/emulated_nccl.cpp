#include "test/support/emulated_nccl/emulated_nccl.h"

#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "test/kvstore/compute/cuda/plain_formats.h"
#include "test/support/emulated_device/machine.h"
#include "test/support/emulated_device/put.h"

struct ncclComm {
  std::string group;
  int ranks = 0;
  int rank = 0;
  int device = 0;
  int answers_left = 0;  ///< Number of "in progress" answers left.
  int error = 0;
  bool never_ends = false;
  bool is_finalized = false;
  std::vector<std::function<void()>> held;  ///< Opens the gates that wait for a missing rank.
};

namespace dt::test::emulated {
namespace {

using namespace kv::cuda;

enum class Kind { kReduce, kBroadcast, kReduceScatter, kAllGather };
struct Call {
  Kind kind;
  const void* send;
  void* receive;
  std::size_t count;
  int type;
  int root;
  Comm comm;
  Stream stream;
};

constexpr int kUnhandledCudaError = 1;
constexpr int kInvalidUsage = 5;

struct World {
  std::recursive_mutex mutex;  ///< Guards all members; not held while computing.
  NcclTroubles troubles;
  NcclCounts counts;
  bool is_held = false;
  std::vector<std::function<void()>> gates;
  std::set<Comm> alive;
  int ids = 0;
  int depth = 0;
  std::vector<Comm> beginning;
  std::vector<Call> calls;
};
World& world() {
  static World the_world;
  return the_world;
}

/// A function of NCCL's, or a question of the test's.
auto locked() { return std::unique_lock(world().mutex); }

int device_now() {
  int device = -1;
  return current_device(device).ok() ? device : -1;
}

struct Int64 {
  using Element = std::int64_t;
  using Math = std::int64_t;
};

template <class Format>
std::vector<unsigned char> sum_as(const std::vector<const void*>& arrays, std::size_t count) {
  using Element = typename Format::Element;
  std::vector<unsigned char> out(count * sizeof(Element));
  for (std::size_t i = 0; i < count; ++i) {
    auto total = Plain<Format>::widen(static_cast<const Element*>(arrays[0])[i]);
    for (std::size_t a = 1; a < arrays.size(); ++a)
      total += Plain<Format>::widen(static_cast<const Element*>(arrays[a])[i]);
    const Element element = Plain<Format>::narrow(total);
    std::memcpy(out.data() + i * sizeof element, &element, sizeof element);
  }
  return out;
}

std::vector<unsigned char> sum(const std::vector<const void*>& arrays, std::size_t count,
                               int type) {
  switch (static_cast<NcclType>(type)) {
    case NcclType::kInt64:
      return sum_as<Int64>(arrays, count);
    case NcclType::kFloat16:
      return sum_as<Fp16>(arrays, count);
    case NcclType::kFloat32:
      return sum_as<Float32>(arrays, count);
    case NcclType::kFloat64:
      return sum_as<Float64>(arrays, count);
    case NcclType::kBFloat16:
      return sum_as<Bf16>(arrays, count);
  }
  return {};
}

/// Computes one call of every rank; all input is ready.
void compute(const std::vector<Call>& calls, int damaged_rank) {
  const Call& any = calls.front();
  const std::size_t bytes = any.count * size_of(static_cast<NcclType>(any.type));
  const auto root = static_cast<std::size_t>(any.root);
  std::vector<std::vector<unsigned char>> results;
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    std::vector<const void*> from;
    for (const Call& call : calls)
      from.push_back(static_cast<const char*>(call.send) +
                     (any.kind == Kind::kReduceScatter ? rank * bytes : 0));
    if (any.kind == Kind::kReduce || any.kind == Kind::kReduceScatter) {
      results.push_back(sum(from, any.count, any.type));
      continue;
    }
    std::vector<unsigned char> all;
    for (std::size_t r = 0; r < calls.size(); ++r) {
      if (any.kind == Kind::kBroadcast && r != root) continue;
      const auto* data = static_cast<const unsigned char*>(calls[r].send);
      all.insert(all.end(), data, data + bytes);
    }
    results.push_back(std::move(all));
  }
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    if (static_cast<int>(rank) == damaged_rank && !results[rank].empty())
      results[rank].back() ^= 1U;
    if (any.kind != Kind::kReduce || rank == root)
      std::memcpy(calls[rank].receive, results[rank].data(), results[rank].size());
  }
}

bool is_reachable(const Call& call) {
  const std::size_t bytes = call.count * size_of(static_cast<NcclType>(call.type));
  const auto ranks = static_cast<std::size_t>(call.comm->ranks);
  const bool sends_all = call.kind == Kind::kReduceScatter;
  const bool receives_all = call.kind == Kind::kAllGather;
  return Machine::get().is_reachable(call.send, sends_all ? bytes * ranks : bytes) &&
         Machine::get().is_reachable(call.receive, receives_all ? bytes * ranks : bytes);
}

void start(const std::vector<Call>& calls) {
  // The call runs after the earlier work of each rank's stream; then every stream continues.
  const Stream leader = calls.front().stream;
  if (world().is_held) {
    world().gates.push_back(hold(leader));
    calls.front().comm->held.push_back(world().gates.back());
  }
  std::vector<std::unique_ptr<Event>> events;
  const auto add = [&events] {
    events.push_back(std::make_unique<Event>());
    (void)events.back()->create();
    return events.back().get();
  };
  for (const Call& call : calls) {
    Event* ready = add();
    (void)ready->record(call.stream);
    (void)ready->make_wait(leader);
  }
  const int damaged_rank = world().troubles.damaged_rank;
  (void)put(leader, [calls, damaged_rank] { compute(calls, damaged_rank); });
  Event* done = add();
  (void)done->record(leader);
  for (const Call& call : calls) (void)done->make_wait(call.stream);
}

int end_calls() {
  World& w = world();
  const std::vector<Call> calls = std::move(w.calls);
  w.calls.clear();
  if (calls.empty()) return 0;
  if (const int result = std::exchange(w.troubles.call_fails, 0); result != 0) return result;
  const auto ranks = static_cast<std::size_t>(calls.front().comm->ranks);
  std::vector<std::vector<Call>> by_rank(ranks);
  for (const Call& call : calls) by_rank[static_cast<std::size_t>(call.comm->rank)].push_back(call);
  const int broken = std::exchange(w.troubles.breaks_under_way, 0);
  const int missing = w.troubles.missing_rank;
  for (const Call& call : calls) {
    call.comm->answers_left = w.troubles.slow_answers;
    if (broken != 0) call.comm->error = broken;
    // Kernels of the ranks that called never end.
    if (broken != 0 || (missing >= 0 && call.comm->rank != missing))
      call.comm->held.push_back(hold(call.stream));
  }
  if (broken != 0 || missing >= 0) return kNcclInProgress;
  for (std::size_t i = 0; i < by_rank[0].size(); ++i) {
    std::vector<Call> same;
    for (const auto& of_rank : by_rank) {
      const Call& first = by_rank[0][i];
      if (of_rank.size() != by_rank[0].size()) return kInvalidUsage;
      const Call& call = of_rank[i];
      if (call.kind != first.kind || call.count != first.count || call.type != first.type ||
          call.root != first.root || call.comm->group != first.comm->group)
        return kInvalidUsage;
      if (!is_reachable(call)) return kUnhandledCudaError;
      same.push_back(call);
    }
    start(same);
  }
  return kNcclInProgress;
}

int add(Call call) {
  const auto lock = locked();
  World& w = world();
  ++w.counts.calls;
  if (w.depth == 0 || call.comm->error != 0) return kInvalidUsage;
  if (device_now() != call.comm->device) return kInvalidUsage;
  w.calls.push_back(call);
  return 0;
}

void release(Comm comm) {
  for (const auto& go_on : comm->held) go_on();
  --world().counts.alive;
  world().alive.erase(comm);
  delete comm;
}

NcclFunctions make() {
  NcclFunctions f;
  f.GetUniqueId = [](NcclUniqueId* id) {
    const auto lock = locked();
    const std::string name = std::to_string(++world().ids);
    name.copy(id->internal, sizeof id->internal - 1);
    return 0;
  };
  f.CommInitRankConfig = [](Comm* comm, int ranks, NcclUniqueId id, int rank, NcclConfig* config) {
    const auto lock = locked();
    World& w = world();
    if (config->blocking != 0 || config->magic != 0xcafebeef || w.depth == 0) return kInvalidUsage;
    *comm = new ncclComm{id.internal,
                         ranks,
                         rank,
                         device_now(),
                         w.troubles.slow_answers,
                         w.troubles.begin_fails,
                         w.troubles.begin_never_ends,
                         false,
                         {}};
    ++w.counts.alive;
    w.alive.insert(*comm);
    if (rank == 0) ++w.counts.begun;
    w.beginning.push_back(*comm);
    return kNcclInProgress;
  };
  f.CommFinalize = [](Comm comm) {
    const auto lock = locked();
    comm->answers_left = world().troubles.slow_answers;
    comm->is_finalized = true;
    return kNcclInProgress;
  };
  f.CommDestroy = [](Comm comm) {
    const auto lock = locked();
    if (!comm->is_finalized || comm->answers_left > 0 || comm->device != device_now())
      return kInvalidUsage;
    ++world().counts.destroyed;
    release(comm);
    return 0;
  };
  f.CommAbort = [](Comm comm) {
    const auto lock = locked();
    ++world().counts.aborted;
    release(comm);
    return 0;
  };
  f.CommGetAsyncError = [](Comm comm, int* error) {
    const auto lock = locked();
    if (comm->never_ends || comm->answers_left-- > 0) {
      *error = kNcclInProgress;
      return 0;
    }
    comm->answers_left = 0;
    *error = comm->error;
    return 0;
  };
  f.GetErrorString = [](int result) {
    return result == 6   ? "remote process exited or there was a network error"
           : result == 2 ? "unhandled system error (run with NCCL_DEBUG=INFO for details)"
           : result == 5 ? "invalid usage (run with NCCL_DEBUG=WARN for details)"
                         : "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
  };
  f.GetLastError = [](Comm) { return "the last words"; };
  f.GroupStart = [] {
    const auto lock = locked();
    ++world().depth;
    return 0;
  };
  f.GroupEnd = [] {
    const auto lock = locked();
    World& w = world();
    if (--w.depth > 0) return 0;
    const bool begins = !w.beginning.empty();
    w.beginning.clear();
    return begins ? kNcclInProgress : end_calls();
  };
  f.Reduce = [](const void* send, void* receive, std::size_t count, int type, int, int root,
                Comm comm, Stream stream) {
    return add({Kind::kReduce, send, receive, count, type, root, comm, stream});
  };
  f.Broadcast = [](const void* send, void* receive, std::size_t count, int type, int root,
                   Comm comm, Stream stream) {
    return add({Kind::kBroadcast, send, receive, count, type, root, comm, stream});
  };
  f.ReduceScatter = [](const void* send, void* receive, std::size_t count, int type, int, Comm comm,
                       Stream stream) {
    return add({Kind::kReduceScatter, send, receive, count, type, 0, comm, stream});
  };
  f.AllGather = [](const void* send, void* receive, std::size_t count, int type, Comm comm,
                   Stream stream) {
    return add({Kind::kAllGather, send, receive, count, type, 0, comm, stream});
  };
  return f;
}

}  // namespace

const NcclFunctions& nccl() {
  static const NcclFunctions functions = make();
  return functions;
}

NcclTroubles& restart_nccl() {
  const auto lock = locked();
  World& w = world();
  w.troubles = {};
  w.counts = {};
  return w.troubles;
}
NcclTroubles& nccl_troubles() { return world().troubles; }
void set_nccl_troubles(NcclTroubles troubles) {
  const auto lock = locked();
  world().troubles = troubles;
}
std::function<void()> hold_nccl() {
  const auto lock = locked();
  world().is_held = true;
  return [] {
    const auto unlock = locked();
    world().is_held = false;
    for (const auto& open : std::exchange(world().gates, {})) open();
  };
}
void break_nccl(int error) {
  const auto lock = locked();
  for (Comm comm : world().alive) comm->error = error;
}
NcclCounts nccl_counts() {
  const auto lock = locked();
  return world().counts;
}

}  // namespace dt::test::emulated
