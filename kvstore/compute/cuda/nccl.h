/// NCCL, the library with which GPUs exchange arrays, opened at run time: it is not needed to
/// build, link or start a program. Calls return "" or one sentence with NCCL's error, the place and
/// the remedy.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kvstore/compute/cuda/device.h"

struct ncclComm;  // from NCCL's nccl.h, as are the names and numbers below

namespace dt::kv::cuda {

using Comm = ncclComm*;

enum class NcclType : int { kInt64 = 4, kFloat16 = 6, kFloat32 = 7, kFloat64 = 8, kBFloat16 = 9 };
[[nodiscard]] std::size_t size_of(NcclType type);

/// ncclConfig_t of NCCL 2.14, which later versions accept; they choose defaults for newer fields.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

struct NcclUniqueId {
  char internal[128] = {};
};

/// The functions in use, as nccl.h declares them. A result is 0, or kNcclInProgress, or an error.
struct NcclFunctions {
  using Result = int;
  Result (*GetUniqueId)(NcclUniqueId* id) = nullptr;
  Result (*CommInitRankConfig)(Comm* comm, int ranks, NcclUniqueId id, int rank,
                               NcclConfig* config) = nullptr;
  Result (*CommFinalize)(Comm comm) = nullptr;
  Result (*CommDestroy)(Comm comm) = nullptr;
  Result (*CommAbort)(Comm comm) = nullptr;
  Result (*CommGetAsyncError)(Comm comm, Result* error) = nullptr;
  const char* (*GetErrorString)(Result result) = nullptr;
  const char* (*GetLastError)(Comm comm) = nullptr;
  Result (*GroupStart)() = nullptr;
  Result (*GroupEnd)() = nullptr;
  Result (*Reduce)(const void* send, void* receive, std::size_t count, int type, int operation,
                   int root, Comm comm, Stream stream) = nullptr;
  Result (*Broadcast)(const void* send, void* receive, std::size_t count, int type, int root,
                      Comm comm, Stream stream) = nullptr;
  Result (*ReduceScatter)(const void* send, void* receive, std::size_t count_each, int type,
                          int operation, Comm comm, Stream stream) = nullptr;
  Result (*AllGather)(const void* send, void* receive, std::size_t count_each, int type, Comm comm,
                      Stream stream) = nullptr;
};
constexpr int kNcclSum = 0;
constexpr int kNcclInProgress = 7;

/// The functions of libnccl.so.2, or of the file given. Once open it stays so until the process
/// ends.
[[nodiscard]] std::string open_nccl(NcclFunctions& functions, const std::string& library = {});

/// The communicators of this process, one per device, in a group without other processes. They
/// never block: calls are polled until a deadline, and then aborted. One thread.
class NcclComms {
 public:
  struct Options {
    const NcclFunctions* functions = nullptr;    ///< Outlives this.
    std::vector<int> devices;                    ///< All different, in rank order.
    std::chrono::milliseconds deadline{30'000};  ///< For each wait.
  };

  explicit NcclComms(Options options);
  /// Ends them in order, within the deadline, or aborts them.
  ~NcclComms();
  NcclComms(const NcclComms&) = delete;
  NcclComms& operator=(const NcclComms&) = delete;

  /// To be called once, before any other call.
  [[nodiscard]] std::string begin();
  /// The calls of one NCCL group: each returns an NCCL result; `doing` names them in an error: "sum
  /// the gradients". Returns when they are on their streams.
  template <class Calls>
  [[nodiscard]] std::string group(const char* doing, Calls calls) {
    if (!failure_.empty()) return failure_;
    int result = functions().GroupStart();
    if (result == 0) result = each_rank(calls);
    const int end = functions().GroupEnd();
    return settle(result == 0 ? end : result, doing);
  }
  /// Waits until the events, one per rank, have passed.
  [[nodiscard]] std::string wait_for(const std::vector<std::unique_ptr<Event>>& events,
                                     const char* doing);
  /// The failure so far; does not wait.
  [[nodiscard]] std::string check(const char* doing);
  /// Aborts the calls that were not done within the deadline; returns the error.
  [[nodiscard]] std::string fail_late(const char* doing);
  /// Aborts the calls under way on all devices. All later calls fail with `why`, a sentence.
  void abort(std::string why);
  /// "" while no call has failed. Calls that fail are aborted.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  [[nodiscard]] const NcclFunctions& functions() const { return *options_.functions; }
  /// Makes the call for each rank, on its device, up to the first error, which is returned.
  template <class Call>
  [[nodiscard]] int each_rank(Call call) {
    int result = 0;
    for (std::size_t rank = 0; result == 0 && rank < comms_.size(); ++rank) {
      result = use(rank);
      if (result == 0) result = call(functions(), comms_[rank], static_cast<int>(rank));
      if (result == kNcclInProgress) result = 0;
    }
    return result;
  }
  /// Makes the rank's device current; CUDA's status as an NCCL result.
  [[nodiscard]] int use(std::size_t rank);
  /// After a call that returned `result`: polls until no communicator is in progress.
  [[nodiscard]] std::string settle(int result, const char* doing);
  /// Polls all communicators: 0, kNcclInProgress, or the first error, which is that of `rank`.
  [[nodiscard]] int ask(std::size_t& rank);
  [[nodiscard]] std::string fail(int result, std::size_t rank, const char* doing);
  [[nodiscard]] std::string names() const;

  Options options_;
  std::vector<Comm> comms_;
  std::string failure_;
};

}  // namespace dt::kv::cuda
