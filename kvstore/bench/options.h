/// The command line of `dtbench kv`. Pure but for the number of cores.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "core/id.h"
#include "core/result.h"
#include "kvstore/bench/tensor_list.h"

namespace dt::bench {

enum class Operation { kPushPull, kPush, kPull };
[[nodiscard]] const char* to_string(Operation operation);

/// Where gradients and results lie.
enum class Memory { kHost };
[[nodiscard]] const char* to_string(Memory memory);

struct KvOptions {
  std::vector<TensorList> lists;  ///< Each is a measurement of its own.
  Operation operation = Operation::kPushPull;
  std::uint32_t workers = 2;
  std::uint32_t servers = 1;
  std::uint32_t loops = 0;  ///< Of a server; as many as dtserver takes unless given.
  std::string type = "dist_sync";
  std::string optimizer;  ///< Empty: keys are sums.
  std::uint64_t chunk_bytes = std::uint64_t{1} << 20;
  bool busy_poll = false;  ///< Who waits polls for kBusyPoll before it sleeps.
  Memory memory = Memory::kHost;
  std::vector<std::string> peers;
  std::uint32_t repetitions = 7;  ///< Of every contender; with peers: of every pair.
  double seconds = 0.3;           ///< A repetition takes about so long, and one operation at least.
  bool verify_all = false;        ///< Each operation works on new values and is checked.
  bool json = false;

  // A job of dtlaunch instead of processes of this machine:
  std::string hosts;                      ///< Its hosts file; empty: no job.
  std::vector<std::string> launch_words;  ///< More options for dtlaunch.
  std::vector<std::string> job_words;     ///< The options that the job's workers are to have.
};

inline constexpr Duration kBusyPoll = std::chrono::milliseconds(2);

enum class Wish { kRun, kHelp };
struct Parsed {
  Wish wish = Wish::kRun;
  KvOptions options;
};

/// The words after `dtbench kv`; `in_job`: this is a worker of a job. The error names the option.
[[nodiscard]] Result<Parsed> parse_kv(const std::vector<std::string>& words, bool in_job);
[[nodiscard]] std::string kv_help();

}  // namespace dt::bench
