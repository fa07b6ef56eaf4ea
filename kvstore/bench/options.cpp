#include "kvstore/bench/options.h"

#include <algorithm>
#include <functional>
#include <thread>

#include "core/base/number.h"
#include "core/protocol/device_choice.h"
#include "kvstore/bench/control.h"
#include "kvstore/bench/peers.h"
#include "kvstore/bench/raw_copies.h"
#include "kvstore/bench/scaling.h"
#include "kvstore/compute/optimizer.h"

namespace dt::bench {

namespace {

using Value = const std::string&;

/// Where an option applies.
enum class For {
  kAll,
  kMachine,  ///< Only to processes on this machine, not to a job.
  kStart,    ///< Also to a job, but not passed to its workers.
};

/// An option is one line of the table below.
struct Option {
  const char* name;
  char letter;        ///< 0: none.
  const char* shown;  ///< Its value in --help; empty: it takes none.
  const char* help;
  For where;
  std::function<Result<void>(Parsed&, Value)> take;
};

Result<void> number(Value text, std::uint32_t least, std::uint32_t most, std::uint32_t& into) {
  const auto value = parse_number<std::uint32_t>(text);
  if (!value || *value < least || *value > most)
    return fail(ErrorKind::kInvalid, "'{}': a number {} to {} was expected", text, least, most);
  into = *value;
  return {};
}

Result<void> seconds(Value text, double& into) {
  const auto value = parse_number<double>(text);
  if (!value || !(*value >= 0) || *value > 60)
    return fail(ErrorKind::kInvalid, "'{}': seconds, 0 to 60, were expected", text);
  into = *value;
  return {};
}

Result<void> microseconds(Value text, Duration& into) {
  std::uint32_t count = 0;
  if (auto read = number(text, 0, 1'000'000, count); !read) return read;
  into = std::chrono::microseconds(count);
  return {};
}

Result<void> milliseconds(Value text, double& into) {
  std::uint32_t count = 0;
  if (auto read = number(text, 0, 10'000, count); !read) return read;
  into = count / 1e3;
  return {};
}

Result<void> rounds(Value text, std::uint64_t& into) {
  std::uint32_t count = 0;
  if (auto read = number(text, 100, 4'000'000'000U, count); !read) return read;
  into = count;
  return {};
}

Result<void> bytes(Value text, std::uint64_t& into) {
  const auto parsed = parse_bytes(text);
  if (!parsed) return tl::unexpected(parsed.error());
  into = *parsed;
  return {};
}

Result<void> flag(bool& into) {
  into = true;
  return {};
}

template <class Target>
Result<void> choice(Value text, const std::vector<std::pair<std::string, Target>>& choices,
                    Target& into) {
  std::vector<std::string> names;
  for (const auto& [name, target] : choices) {
    if (name == text) {
      into = target;
      return {};
    }
    names.push_back(name);
  }
  return fail(ErrorKind::kInvalid, "'{}': one of {} was expected", text, fmt::join(names, ", "));
}

std::vector<std::string> split(Value text) {
  std::vector<std::string> all;
  for (std::size_t begin = 0;;) {
    const auto comma = text.find(',', begin);
    all.push_back(text.substr(begin, comma - begin));
    if (comma == std::string::npos) return all;
    begin = comma + 1;
  }
}

template <class Read>
Result<void> lists(Value text, Read read, std::vector<TensorList>& into) {
  for (const auto& word : split(text)) {
    auto list = read(word);
    if (!list) return tl::unexpected(list.error());
    into.push_back(std::move(*list));
  }
  return {};
}

Result<void> optimizer(Value text, std::string& into) {
  const auto spec = kv::parse_optimizer(text);
  if (!spec) return tl::unexpected(spec.error());
  into = text;
  return {};
}

Result<void> chunk(Value text, std::uint64_t& into) {
  if (auto read = bytes(text, into); !read) return read;
  constexpr std::uint64_t kMost = std::uint64_t{256} << 20;
  if (into % 64 != 0 || into > kMost)
    return fail(ErrorKind::kInvalid, "'{}': a multiple of 64 bytes up to 256M was expected", text);
  return {};
}

Result<void> peers(Value text, std::vector<std::string>& into) {
  for (const auto& word : split(text)) {
    if (auto known = check_peer(word); !known) return known;
    into.push_back(word);
  }
  return {};
}

Result<void> cuda_device(Value text, std::vector<int>& into) {
  const auto device = parse_device(text);
  if (!device) return tl::unexpected(device.error());
  if (device->kind != DeviceChoice::Kind::kCuda)
    return fail(ErrorKind::kInvalid, "'{}': cuda:0, cuda:1, ... was expected", text);
  into.push_back(device->number);
  return {};
}

Result<void> devices(Value text, std::vector<int>& into) {
  into.clear();
  for (const auto& word : split(text))
    if (auto taken = cuda_device(word, into); !taken) return taken;
  return {};
}

Result<void> server_device(Value text, std::optional<int>& into) {
  std::vector<int> one;
  if (auto taken = cuda_device(text, one); !taken) return taken;
  into = one.front();
  return {};
}

const std::vector<std::pair<std::string, Operation>> kOperations = {
    {"pushpull", Operation::kPushPull}, {"push", Operation::kPush}, {"pull", Operation::kPull}};
const std::vector<std::pair<std::string, kv::Transport>> kTransports = {
    {"auto", kv::Transport::kAuto},
    {"tcp", kv::Transport::kTcp},
    {"shm", kv::Transport::kSharedMemory}};
const std::vector<std::pair<std::string, data::Codec>> kCodecs = {{"none", data::Codec::kNone},
                                                                  {"1bit", data::Codec::kOneBit},
                                                                  {"2bit", data::Codec::kTwoBit},
                                                                  {"fp16", data::Codec::kFp16},
                                                                  {"bf16", data::Codec::kBf16}};
const std::vector<std::pair<std::string, Memory>> kMemories = {{"store", Memory::kStore},
                                                               {"private", Memory::kPrivate}};
const std::vector<std::pair<std::string, std::string>> kTypes = {{"dist_sync", "dist_sync"},
                                                                 {"dist_async", "dist_async"}};

// clang-format off
const std::vector<Option> kOptions = {
    {"list", 0, "NAME[,NAME]", "a model's tensors: resnet50 (default), bert-base, embedding (1 GB)",
     For::kAll, [](Parsed& p, Value v) { return lists(v, model_list, p.options.lists); }},
    {"sizes", 0, "SIZE[,SIZE]", "tensors of given sizes instead: 1K, 64M, 1000x1K, 64M+100x4K; "
                                "a comma separates measurements",
     For::kAll, [](Parsed& p, Value v) { return lists(v, list_of_sizes, p.options.lists); }},
    {"op", 0, "OP", "pushpull (default), push or pull, of the whole list at once",
     For::kAll, [](Parsed& p, Value v) { return choice(v, kOperations, p.options.operation); }},
    {"workers", 'w', "N", "worker processes (2)",
     For::kStart, [](Parsed& p, Value v) { return number(v, 1, kMostWorkers, p.options.workers); }},
    {"servers", 's', "N", "server processes (1)",
     For::kStart, [](Parsed& p, Value v) { return number(v, 1, kMostServers, p.options.servers); }},
    {"loops", 0, "N", "event loops of a server (one per core, at most 8)",
     For::kMachine, [](Parsed& p, Value v) { return number(v, 1, 64, p.options.loops); }},
    {"type", 0, "TYPE", "dist_sync (default) or dist_async",
     For::kAll, [](Parsed& p, Value v) { return choice(v, kTypes, p.options.type); }},
    {"device", 0, "cuda:N[,cuda:N]", "workers' gradients and results are in the memory of these CUDA devices, "
                                     "in turn, and the type is dist_device_sync",
     For::kMachine, [](Parsed& p, Value v) { return devices(v, p.options.devices); }},
    {"server-device", 0, "cuda:N", "servers keep their values on this CUDA device and compute there",
     For::kMachine, [](Parsed& p, Value v) { return server_device(v, p.options.server_device); }},
    {"optimizer", 0, "SPEC", "the servers update weights, e.g. \"sgd momentum=0.9\"; default: sums",
     For::kAll, [](Parsed& p, Value v) { return optimizer(v, p.options.optimizer); }},
    {"chunk", 0, "BYTES", "slice of a tensor that travels on its own (1M)",
     For::kAll, [](Parsed& p, Value v) { return chunk(v, p.options.chunk_bytes); }},
    {"transport", 0, "WAY", "auto (default: shared memory, all being on this machine), tcp or shm",
     For::kAll, [](Parsed& p, Value v) { return choice(v, kTransports, p.options.transport); }},
    {"codec", 0, "CODEC", "gradients are compressed: none (default), 1bit, 2bit, fp16 or bf16; "
                          "with --transport tcp",
     For::kAll, [](Parsed& p, Value v) { return choice(v, kCodecs, p.options.codec); }},
    {"memory", 0, "WHOSE", "gradients and results lie in memory of the store's (default) or are "
                           "private, and then copied where it is shared",
     For::kAll, [](Parsed& p, Value v) { return choice(v, kMemories, p.options.memory); }},
    {"in-place", 0, "", "the result overwrites the gradient",
     For::kAll, [](Parsed& p, Value) { return flag(p.options.is_in_place); }},
    {"colocated", 0, "", "as many servers as workers, and each worker as if alone on a machine with one",
     For::kMachine, [](Parsed& p, Value) { return flag(p.options.is_colocated); }},
    {"deterministic", 0, "", "servers add in the workers' order, not as contributions come",
     For::kAll, [](Parsed& p, Value) { return flag(p.options.is_deterministic); }},
    {"busy-poll", 0, "US", "who waits polls for so many microseconds before it sleeps (0)",
     For::kAll, [](Parsed& p, Value v) { return microseconds(v, p.options.busy_poll); }},
    {"peer", 0, "PEER[,PEER]", "measure these in turn with the kvstore, and print the ratio (below)",
     For::kMachine, [](Parsed& p, Value v) { return peers(v, p.options.peers); }},
    {"pairs", 0, "N", "with --peer: repetitions of each, interleaved (7)",
     For::kMachine, [](Parsed& p, Value v) { return number(v, 1, 1000, p.options.repetitions); }},
    {"reps", 0, "N", "repetitions (7; with --scaling 3)",
     For::kAll, [](Parsed& p, Value v) { return number(v, 1, 1000, p.options.repetitions); }},
    {"seconds", 0, "S", "how long a repetition takes, one operation at least (0.3)",
     For::kAll, [](Parsed& p, Value v) { return seconds(v, p.options.seconds); }},
    {"check", 0, "", "new values for every operation, and every element of each result checked; "
                     "CPU is not measured then",
     For::kAll, [](Parsed& p, Value) { return flag(p.options.verify_all); }},
    {"straggle", 0, "MS", "before every operation one worker, each in its turn, is so many ms late",
     For::kAll, [](Parsed& p, Value v) { return milliseconds(v, p.options.straggle); }},
    {"scaling", 0, "", "1 to 16 workers and 1 to 8 servers instead: a line for each, and how even "
                       "servers are loaded",
     For::kMachine, [](Parsed& p, Value) { return flag(p.options.is_scaling); }},
    {"soak", 0, "ROUNDS", "so many rounds of chunks, and not their time but every process's memory, "
                          "descriptors and mappings: fails if they grow",
     For::kMachine, [](Parsed& p, Value v) { return rounds(v, p.options.soak_rounds); }},
    {"growth", 0, "BYTES", "with --soak: what a process's memory may grow by after the first tenth (1M)",
     For::kMachine, [](Parsed& p, Value v) { return bytes(v, p.options.soak_growth); }},
    {"json", 0, "", "one JSON object instead of a table",
     For::kAll, [](Parsed& p, Value) { return flag(p.options.json); }},
    {"hosts", 'H', "FILE", "workers and servers on these hosts instead, started by dtlaunch; "
                           "words after -- are more of its options",
     For::kStart, [](Parsed& p, Value v) -> Result<void> { p.options.hosts = v; return {}; }},
    {"help", 'h', "", "this",
     For::kAll, [](Parsed& p, Value) -> Result<void> { p.wish = Wish::kHelp; return {}; }},
};
// clang-format on

const Option* find(const std::string& name) {
  const auto same = [&](const Option& o) {
    return name == fmt::format("--{}", o.name) ||
           (o.letter && name == fmt::format("-{}", o.letter));
  };
  const auto it = std::ranges::find_if(kOptions, same);
  return it == kOptions.end() ? nullptr : &*it;
}

/// Checks of several options together.
Result<void> complete(KvOptions& options) {
  if (options.is_scaling && (!options.peers.empty() || options.soak_rounds > 0 ||
                             options.is_colocated || options.lists.size() > 1))
    return fail(ErrorKind::kInvalid,
                "--scaling: one list at a time, and no --peer, --soak or --colocated");
  if (options.lists.empty())
    options.lists.push_back(options.is_scaling ? *list_of_sizes(kScalingList)
                                               : *model_list("resnet50"));
  if (options.repetitions == 0) options.repetitions = options.is_scaling ? 3 : 7;
  if (options.loops == 0)
    options.loops = std::clamp(std::thread::hardware_concurrency(), 1U, 8U);  // as dtserver
  if (options.is_colocated) options.servers = options.workers;
  if (!options.devices.empty() && !options.is_async()) options.type = "dist_device_sync";
  for (const auto& peer : options.peers)
    if ((peer == kCpuPeer || peer == kCopiesPeer) && !options.uses_devices())
      return fail(ErrorKind::kInvalid, "--peer {}: give --device or --server-device as well", peer);
  if (options.is_colocated && options.transport != kv::Transport::kAuto)
    return fail(ErrorKind::kInvalid,
                "--colocated: it takes shared memory within a machine and TCP between them; leave "
                "out --transport");
  const auto is_ours = [](const std::string& peer) {
    return peer == kPlainPeer || peer == kCpuPeer;
  };
  if (options.operation != Operation::kPushPull && !std::ranges::all_of(options.peers, is_ours))
    return fail(ErrorKind::kInvalid, "--peer: others are compared in --op pushpull only");
  if (options.straggle > 0 && options.verify_all)
    return fail(ErrorKind::kInvalid, "--straggle: with --check workers wait for each other anyway");
  if (options.soak_rounds > 0 && (!options.peers.empty() || options.lists.size() > 1))
    return fail(ErrorKind::kInvalid, "--soak: one list at a time, and no --peer");
  if (options.is_in_place && options.is_async())
    return fail(ErrorKind::kInvalid, "--in-place: with --type dist_async the sums would be pushed");
  if (options.is_in_place && !options.optimizer.empty())
    return fail(ErrorKind::kInvalid, "--in-place: with --optimizer weights would be pushed");
  const bool compresses = options.codec != data::Codec::kNone;
  if (compresses && options.transport != kv::Transport::kTcp)
    return fail(ErrorKind::kInvalid,
                "--codec: what is shared is not compressed; give --transport tcp as well");
  if (compresses && (options.is_async() || !options.optimizer.empty()))
    return fail(ErrorKind::kInvalid,
                "--codec: sums alone are checked; leave out --optimizer and --type dist_async");
  if (options.operation == Operation::kPull && !options.optimizer.empty())
    return fail(ErrorKind::kInvalid, "--optimizer: nothing is updated by --op pull");
  return {};
}

}  // namespace

const char* to_string(Operation operation) {
  switch (operation) {
    case Operation::kPushPull:
      return "pushpull";
    case Operation::kPush:
      return "push";
    case Operation::kPull:
      return "pull";
  }
  return "";
}

const char* to_string(Memory memory) {
  switch (memory) {
    case Memory::kStore:
      return "store";
    case Memory::kPrivate:
      return "private";
  }
  return "";
}

const char* to_string(kv::Transport transport) {
  switch (transport) {
    case kv::Transport::kAuto:
      return "auto";
    case kv::Transport::kTcp:
      return "tcp";
    case kv::Transport::kSharedMemory:
      return "shm";
  }
  return "";
}

Result<Parsed> parse_kv(const std::vector<std::string>& words, bool in_job) {
  Parsed parsed;
  std::string local;  // an option that does not apply to a job
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") {
      parsed.options.launch_words.assign(words.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                         words.end());
      break;
    }
    std::string name = words[i];
    std::string value;
    const auto equals = name.find('=');
    const bool joined = name.starts_with("--") && equals != std::string::npos;
    if (joined) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    const bool attached = name.size() > 2 && name[0] == '-' && name[1] != '-';
    if (attached) {  // -w2
      value = name.substr(2);
      name.resize(2);
    }
    const Option* option = find(name);
    if (!option) return fail(ErrorKind::kInvalid, "unknown option {}", words[i]);
    const bool takes_value = *option->shown != '\0';
    if (!takes_value && (joined || attached))
      return fail(ErrorKind::kInvalid, "{} takes no value", name);
    if (takes_value && !joined && !attached) {
      if (++i == words.size()) return fail(ErrorKind::kInvalid, "{} needs a value", name);
      value = words[i];
    }
    if (auto taken = option->take(parsed, value); !taken)
      return tl::unexpected(taken.error().at(name));
    if (option->where == For::kMachine || (in_job && option->where == For::kStart)) local = name;
    if (option->where == For::kAll)
      parsed.options.job_words.push_back(
          fmt::format("--{}{}", option->name, takes_value ? "=" + value : ""));
  }
  if (!local.empty() && (in_job || !parsed.options.hosts.empty()))
    return fail(ErrorKind::kInvalid, "{} is for processes of this machine, not for a job's", local);
  if (parsed.options.hosts.empty() && !parsed.options.launch_words.empty())
    return fail(ErrorKind::kInvalid, "--: options of dtlaunch need -H");
  if (auto good = complete(parsed.options); !good) return tl::unexpected(good.error());
  return parsed;
}

std::string kv_help() {
  std::string text =
      R"(usage: dtbench kv [OPTION]...

Measures the kvstore: worker and server processes on this machine, or with -H on others, one
operation over a whole list of tensors at a time, the way a training step exchanges its gradients.
The results are checked.

)";
  for (const auto& option : kOptions) {
    const std::string letter = option.letter ? fmt::format("-{}, ", option.letter) : "    ";
    const std::string name = fmt::format("{}--{} {}", letter, option.name, option.shown);
    text += fmt::format("  {:<28} {}\n", name, option.help);
  }
  text += "\nPeers:\n";
  for (const auto& peer : known_peers()) text += fmt::format("  {:<12} {}\n", peer.name, peer.help);
  text += R"(
What is printed, per contender:
  ms          time of one operation, of the slowest worker; median, least and most over repetitions
  GB/s        bytes of the list / median time, per worker and direction (GB = 10^9): higher is better
  CPU s/GB    processor seconds of all processes per GB of payload per worker: lower is better
  p50 ...     percentiles of the time of single operations, of all workers
  bad         wrong elements found: anything but 0 is an error
  ops/s       operations of one worker in a second
  ratio       kvstore / peer, median over pairs that ran one after the other: below 1 is better

Examples:
  dtbench kv                                         ResNet-50, 2 workers, 1 server
  dtbench kv --transport tcp --peer raw --pairs 9    how far from what the kernel allows
  dtbench kv -s 2 --peer raw-shm,mpi-shm             inside a machine
  dtbench kv --colocated --peer raw-colocated,gloo,mpi
  dtbench kv --sizes 1K,64K,4M,64M -w 4 -s 2 --json
  dtbench kv --sizes 1000x1K --check --reps 20       every result of every round checked
  dtbench kv --deterministic --peer plain            what an option costs: the ratio
  dtbench kv --type dist_async --peer plain --straggle 50 --seconds 2
  dtbench kv --device cuda:0 --server-device cuda:0 --peer copies,cpu
  dtbench kv --scaling --transport tcp               CPU per gigabyte is to stay level
  dtbench kv --sizes 1K --soak 10000000              does anything leak?
  dtbench kv -H hosts -w 8 -s 4 --list bert-base     on a cluster

Exit codes: 0 done, 1 a wrong element or a failure, 2 wrong usage, 77 there is no such CUDA device.
)";
  return text;
}

}  // namespace dt::bench
