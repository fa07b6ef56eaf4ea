/// The command line of `dtbench kv`. Pure but for the number of cores.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  Memory memory = Memory::kHost;
  std::vector<std::string> peers;
  std::uint32_t repetitions = 7;  ///< Of every contender; with peers: of every pair.
  double seconds = 0.3;           ///< A repetition takes about so long, and one operation at least.
  bool verify_all = false;        ///< Each operation works on new values and is checked.
  bool json = false;
};

enum class Wish { kRun, kHelp };
struct Parsed {
  Wish wish = Wish::kRun;
  KvOptions options;
};

/// The words after `dtbench kv`. The error names the option.
[[nodiscard]] Result<Parsed> parse_kv(const std::vector<std::string>& words);
[[nodiscard]] std::string kv_help();

}  // namespace dt::bench
