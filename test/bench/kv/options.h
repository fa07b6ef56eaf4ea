/// The command line of `dtbench kv`. Pure but for the number of cores.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/base/time.h"
#include "io/flags.h"
#include "kvstore/compute/compression.h"
#include "kvstore/worker/client.h"
#include "test/bench/kv/tensor_list.h"

namespace dt::bench {

struct ServerNetwork;

enum class Operation { kPushPull, kPush, kPull };
[[nodiscard]] const char* to_string(Operation operation);

/// Where a worker's gradients and results lie.
enum class Memory {
  kStore,    ///< Memory from the store's allocate().
  kPrivate,  ///< The worker's own memory, on 2 MB boundaries.
};
[[nodiscard]] const char* to_string(Memory memory);
[[nodiscard]] const char* to_string(kv::Transport transport);
[[nodiscard]] const char* to_string(kv::DataAuth auth);

struct KvOptions {
  std::vector<TensorList> lists;  ///< Each is a measurement of its own.
  Operation operation = Operation::kPushPull;
  std::uint32_t workers = 2;
  std::uint32_t servers = 1;
  std::uint32_t loops = 0;           ///< Loops of a server; dtserver's default unless given.
  std::string type = "dist_sync";    ///< With devices dist_device_sync.
  std::vector<int> devices;          ///< CUDA devices of the workers' arrays, in turn; none: host.
  std::optional<int> server_device;  ///< Where servers keep and compute their values; none: host.
  std::string optimizer;             ///< Empty: keys are sums.
  std::uint64_t chunk_bytes = std::uint64_t{1} << 20;
  Duration busy_poll{};  ///< How long a waiting thread polls before it sleeps.
  kv::Transport transport = kv::Transport::kAuto;
  kv::DataAuth data_auth = kv::DataAuth::kAuto;
  /// As if every worker had a machine of its own, with one server on it.
  bool is_colocated = false;
  bool is_apart = false;  ///< Servers have a network namespace of their own.
  std::shared_ptr<const ServerNetwork> server_network;  ///< It, once it is made.
  bool is_deterministic = false;                        ///< Servers add in worker id order.
  data::Codec codec = data::Codec::kNone;               ///< Compression of the gradients.
  Memory memory = Memory::kStore;
  bool is_in_place = false;  ///< The result overwrites the gradient.
  bool is_streamed = false;  ///< The tensors go one after the other.
  std::vector<std::string> peers;
  std::uint32_t repetitions = 0;  ///< Repetitions per contender; with peers: per pair.
  double seconds = 0.3;           ///< A repetition takes about so long, and one operation at least.
  bool verify_all = false;        ///< Each operation works on new values and is checked.
  double straggle = 0;            ///< Seconds that one worker, in turn, is late.
  bool json = false;

  // For a job of dtlaunch instead of processes on this machine:
  std::string hosts;                      ///< Its hosts file; empty: no job.
  std::vector<std::string> launch_words;  ///< More options for dtlaunch.
  std::vector<std::string> job_words;     ///< The options for the job's workers.

  [[nodiscard]] bool is_async() const { return type == "dist_async"; }
  [[nodiscard]] bool uses_devices() const { return !devices.empty() || server_device.has_value(); }
  [[nodiscard]] std::optional<int> device_of(std::uint32_t rank) const {
    if (devices.empty()) return {};
    return devices[rank % devices.size()];
  }
};

struct Parsed {
  std::optional<std::string> answer;  ///< What --help prints: that is all.
  KvOptions options;
};

/// The words after `dtbench kv`; `in_job`: this is a worker of a job. The error names the option.
[[nodiscard]] Result<Parsed> parse_kv(const io::Words& words, bool in_job);

}  // namespace dt::bench
