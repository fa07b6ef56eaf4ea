#include "kvstore/compute/cuda/nccl.h"

#include <dlfcn.h>

#include <thread>

#include "kvstore/compute/cuda/device_guard.h"

namespace dt::kv::cuda {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kUnhandledCudaError = 1;
constexpr int kSystemError = 2;
constexpr int kInternalError = 3;
constexpr int kInvalidUsage = 5;
constexpr int kRemoteError = 6;

/// The pause between two polls, since NCCL has no notification; there is none at first.
class Pause {
 public:
  explicit Pause(std::chrono::milliseconds limit) : end_(Clock::now() + limit) {}
  /// False: the limit has passed.
  bool operator()() {
    if (Clock::now() >= end_) return false;
    if (++times_ < kBusyTimes)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kPause);  // tidy: allow (NCCL has no notification)
    return true;
  }

 private:
  static constexpr int kBusyTimes = 1000;
  static constexpr std::chrono::microseconds kPause{50};
  Clock::time_point end_;
  int times_ = 0;
};

const char* remedy(int result) {
  switch (result) {
    case kUnhandledCudaError:
      return "dtgpucheck looks at each GPU; NCCL_DEBUG=WARN says more";
    case kSystemError:
      return "often /dev/shm is too small or no network interface is up; NCCL_DEBUG=WARN says more";
    case kInternalError:
      return "try another version of NCCL; NCCL_DEBUG=WARN says more";
    case kInvalidUsage:
      return "is a device named twice, or CUDA_VISIBLE_DEVICES not what it was?";
    case kRemoteError:
      return "another rank has failed: its message says why";
    default:
      return "NCCL_DEBUG=WARN says more";
  }
}

template <class Function>
bool find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  return function != nullptr;
}

}  // namespace

std::size_t size_of(NcclType type) {
  if (type == NcclType::kFloat16 || type == NcclType::kBFloat16) return 2;
  return type == NcclType::kFloat32 ? 4 : 8;
}

std::string open_nccl(NcclFunctions& f, const std::string& library) {
  const std::string path = library.empty() ? "libnccl.so.2" : library;
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    return "several GPUs need NCCL: " + (why ? std::string(why) : path) +
           ": install it (libnccl2), or name its folder in LD_LIBRARY_PATH";
  }
  const bool has_all =
      find(handle, "ncclGetUniqueId", f.GetUniqueId) &&
      find(handle, "ncclCommInitRankConfig", f.CommInitRankConfig) &&
      find(handle, "ncclCommFinalize", f.CommFinalize) &&
      find(handle, "ncclCommDestroy", f.CommDestroy) &&
      find(handle, "ncclCommAbort", f.CommAbort) &&
      find(handle, "ncclCommGetAsyncError", f.CommGetAsyncError) &&
      find(handle, "ncclGetErrorString", f.GetErrorString) &&
      find(handle, "ncclGetLastError", f.GetLastError) &&
      find(handle, "ncclGroupStart", f.GroupStart) && find(handle, "ncclGroupEnd", f.GroupEnd) &&
      find(handle, "ncclReduce", f.Reduce) && find(handle, "ncclBroadcast", f.Broadcast) &&
      find(handle, "ncclReduceScatter", f.ReduceScatter) &&
      find(handle, "ncclAllGather", f.AllGather);
  if (has_all) return {};
  ::dlclose(handle);
  return path + " is no NCCL, or one before 2.14: install a later one (libnccl2)";
}

NcclComms::NcclComms(Options options) : options_(std::move(options)) {}

NcclComms::~NcclComms() {
  if (comms_.empty()) return;
  const DeviceGuard keep;
  const auto finalize = [](const NcclFunctions& nccl, Comm comm, int /*rank*/) {
    return nccl.CommFinalize(comm);
  };
  if (settle(each_rank(finalize), "end").empty())
    for (std::size_t rank = 0; rank < comms_.size(); ++rank)
      if (use(rank) == 0) (void)functions().CommDestroy(comms_[rank]);
}

std::string NcclComms::begin() {
  NcclUniqueId id;
  if (const int result = functions().GetUniqueId(&id); result != 0) return fail(result, 0, "begin");
  const int ranks = static_cast<int>(options_.devices.size());
  comms_.assign(options_.devices.size(), nullptr);
  return group("begin", [&](const NcclFunctions& nccl, Comm /*none*/, int rank) {
    NcclConfig config;
    Comm* comm = &comms_[static_cast<std::size_t>(rank)];
    return nccl.CommInitRankConfig(comm, ranks, id, rank, &config);
  });
}

std::string NcclComms::wait_for(const std::vector<std::unique_ptr<Event>>& events,
                                const char* doing) {
  Pause pause(options_.deadline);
  for (std::size_t rank = 0; rank < events.size();) {
    if (!failure_.empty()) return failure_;
    bool is_done = false;
    if (const Status status = events[rank]->query(is_done); !status.ok()) {
      abort("could not " + std::string(doing) + " on " + names() + ": " + status.error + ": " +
            remedy(kUnhandledCudaError));
      return failure_;
    }
    if (is_done) {
      ++rank;
      continue;
    }
    if (const std::string why = check(doing); !why.empty()) return why;
    if (!pause()) return fail_late(doing);
  }
  return check(doing);
}

std::string NcclComms::check(const char* doing) {
  if (!failure_.empty()) return failure_;
  std::size_t rank = 0;
  const int result = ask(rank);
  return result == 0 || result == kNcclInProgress ? std::string() : fail(result, rank, doing);
}

void NcclComms::abort(std::string why) {
  if (!failure_.empty()) return;
  failure_ = std::move(why);
  const DeviceGuard keep;
  for (std::size_t rank = 0; rank < comms_.size(); ++rank) {
    if (comms_[rank] == nullptr) continue;
    (void)use(rank);
    (void)functions().CommAbort(comms_[rank]);
  }
  comms_.clear();
}

int NcclComms::use(std::size_t rank) {
  return use_device(options_.devices[rank]).ok() ? 0 : kUnhandledCudaError;
}

std::string NcclComms::settle(int result, const char* doing) {
  std::size_t rank = 0;
  if (result != 0 && result != kNcclInProgress) return fail(result, rank, doing);
  Pause pause(options_.deadline);
  for (;;) {
    result = ask(rank);
    if (result == 0) return {};
    if (result != kNcclInProgress) return fail(result, rank, doing);
    if (!pause()) return fail_late(doing);
  }
}

int NcclComms::ask(std::size_t& rank) {
  int all = 0;
  for (std::size_t i = 0; i < comms_.size(); ++i) {
    int result = 0;
    int asked =
        comms_[i] == nullptr ? kNcclInProgress : functions().CommGetAsyncError(comms_[i], &result);
    if (asked == 0) asked = result;
    if (asked == 0) continue;
    rank = i;
    if (asked != kNcclInProgress) return asked;
    all = asked;
  }
  return all;
}

std::string NcclComms::fail(int result, std::size_t rank, const char* doing) {
  const Comm comm = rank < comms_.size() ? comms_[rank] : nullptr;
  std::string words = functions().GetErrorString(result);
  const char* last = functions().GetLastError(comm);
  if (last != nullptr && *last != '\0') words += " (" + std::string(last) + ")";
  abort("NCCL could not " + std::string(doing) + " on " + names() + ": " + words + ": " +
        remedy(result));
  return failure_;
}

std::string NcclComms::fail_late(const char* doing) {
  const auto ms = options_.deadline.count();
  const std::string limit =
      ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
  abort("NCCL could not " + std::string(doing) + " on " + names() + " within " + limit +
        " and was aborted: a GPU or the link between two hangs; dtgpucheck finds which, and "
        "NCCL_P2P_DISABLE=1 goes round a broken link");
  return failure_;
}

std::string NcclComms::names() const {
  std::string out = options_.devices.size() == 1 ? "device" : "devices";
  for (std::size_t i = 0; i < options_.devices.size(); ++i)
    out += (i == 0 ? " " : ", ") + std::to_string(options_.devices[i]);
  return out;
}

}  // namespace dt::kv::cuda
