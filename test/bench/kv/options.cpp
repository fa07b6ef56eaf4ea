#include "test/bench/kv/options.h"

#include <algorithm>
#include <functional>
#include <thread>

#include "core/base/number.h"
#include "core/protocol/device_choice.h"
#include "kvstore/compute/compression.h"
#include "kvstore/compute/optimizer.h"
#include "test/bench/kv/control.h"
#include "test/bench/kv/peers.h"
#include "test/bench/kv/raw_copies.h"

namespace dt::bench {

namespace {

using io::FlagGroup;
using io::one_of;
using io::Reader;
using Value = const std::string&;

Result<void> number(Value text, std::uint32_t least, std::uint32_t most, std::uint32_t& into) {
  const auto value = parse_number<std::uint32_t>(text);
  if (!value || *value < least || *value > most)
    return fail(ErrorKind::kInvalid, "a number {} to {} was expected", least, most);
  into = *value;
  return {};
}

Result<void> seconds(Value text, double& into) {
  const auto value = parse_number<double>(text);
  if (!value || !(*value >= 0) || *value > 60)
    return fail(ErrorKind::kInvalid, "seconds, 0 to 60, were expected");
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

Result<void> bytes(Value text, std::uint64_t& into) {
  const auto parsed = parse_bytes(text);
  if (!parsed) return tl::unexpected(parsed.error());
  into = *parsed;
  return {};
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

Result<void> check_optimizer(Value text) {
  const auto spec = kv::parse_optimizer(text);
  if (!spec) return tl::unexpected(spec.error());
  return {};
}

Result<void> chunk(Value text, std::uint64_t& into) {
  if (auto read = bytes(text, into); !read) return read;
  constexpr std::uint64_t kMost = std::uint64_t{256} << 20;
  if (into % 64 != 0 || into > kMost)
    return fail(ErrorKind::kInvalid, "a multiple of 64 bytes up to 256M was expected");
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
    return fail(ErrorKind::kInvalid, "cuda:0, cuda:1, ... was expected");
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

template <class T>
using Words = std::vector<std::pair<const char*, T>>;
const Words<Operation> kOperations = {
    {"pushpull", Operation::kPushPull}, {"push", Operation::kPush}, {"pull", Operation::kPull}};
const Words<kv::Transport> kTransports = {{"auto", kv::Transport::kAuto},
                                          {"tcp", kv::Transport::kTcp},
                                          {"shm", kv::Transport::kSharedMemory}};
const Words<kv::DataAuth> kDataAuths = {{"auto", kv::DataAuth::kAuto},
                                        {"frames", kv::DataAuth::kFrames},
                                        {"handshake", kv::DataAuth::kHandshake}};
const Words<data::Codec> kCodecs(std::begin(kv::kCodecs), std::end(kv::kCodecs));
const Words<Memory> kMemories = {{"store", Memory::kStore}, {"private", Memory::kPrivate}};

template <class T>
const char* word_of(const Words<T>& words, T value) {
  const auto found = std::ranges::find(words, value, &std::pair<const char*, T>::second);
  DT_CHECK(found != words.end(), "a value without a word");
  return found->first;
}

/// What a job's workers get, too.
FlagGroup measured_flags(KvOptions& o) {
  // clang-format off
  return {"What is measured", {
      {.name = "list", .value = "NAME[,NAME]",
       .to = Reader([&o](Value v) { return lists(v, model_list, o.lists); }),
       .help = "a model's tensors: resnet50 (default), bert-base, embedding (1 GB)"},
      {.name = "sizes", .value = "SIZE[,SIZE]",
       .to = Reader([&o](Value v) { return lists(v, list_of_sizes, o.lists); }),
       .help = "tensors of given sizes instead: 1K, 64M, 1000x1K, 64M+100x4K; a comma separates "
           "measurements"},
      {.name = "op", .value = "pushpull|push|pull", .to = one_of(o.operation, kOperations),
       .help = "pushpull (default), push or pull, of the whole list at once"},
      {.name = "type", .value = "dist_sync|dist_async",
       .to = one_of(o.type, {"dist_sync", "dist_async"}),
       .help = "dist_sync (default) or dist_async"},
      {.name = "optimizer", .value = "SPEC", .to = &o.optimizer, .check = check_optimizer,
       .help = "the servers update weights, e.g. \"sgd momentum=0.9\"; default: sums"},
      {.name = "chunk", .value = "BYTES",
       .to = Reader([&o](Value v) { return chunk(v, o.chunk_bytes); }),
       .help = "slice of a tensor that travels on its own (1M)"},
      {.name = "transport", .value = "auto|tcp|shm", .to = one_of(o.transport, kTransports),
       .help = "auto (default: shared memory, all being on this machine), tcp or shm"},
      {.name = "data-auth", .value = "auto|frames|handshake",
       .to = one_of(o.data_auth, kDataAuths),
       .help = "what is authenticated: auto (default: the handshake inside one machine, else "
           "frames), every frame, or the handshake alone"},
      {.name = "codec", .value = "none|2bit|fp16|bf16", .to = one_of(o.codec, kCodecs),
       .help = "gradients are compressed: none (default), 2bit, fp16 or bf16; with "
           "--transport tcp"},
      {.name = "memory", .value = "store|private", .to = one_of(o.memory, kMemories),
       .help = "gradients and results lie in memory of the store's (default) or are private, and "
           "then copied where it is shared"},
      {.name = "in-place", .to = &o.is_in_place, .help = "the result overwrites the gradient"},
      {.name = "stream", .to = &o.is_streamed,
       .help = "the tensors go one after the other, as layers of a model that is larger than "
           "memory"},
      {.name = "deterministic", .to = &o.is_deterministic,
       .help = "servers add in the workers' order, not as contributions come"},
      {.name = "busy-poll", .value = "US",
       .to = Reader([&o](Value v) { return microseconds(v, o.busy_poll); }),
       .help = "who waits polls for so many microseconds before it sleeps (0)"},
      {.name = "reps", .value = "N", .to = &o.repetitions, .least = 1, .most = 1000,
       .help = "repetitions (7)"},
      {.name = "seconds", .value = "S",
       .to = Reader([&o](Value v) { return seconds(v, o.seconds); }),
       .help = "how long a repetition takes, one operation at least (0.3)"},
      {.name = "check", .to = &o.verify_all,
       .help = "new values for every operation, and every element of each result checked; CPU is "
           "not measured then"},
      {.name = "straggle", .value = "MS",
       .to = Reader([&o](Value v) { return milliseconds(v, o.straggle); }),
       .help = "before every operation one worker, each in its turn, is so many ms late"},
      {.name = "json", .to = &o.json, .help = "one JSON object instead of a table"},
  }};
  // clang-format on
}

/// A job gets these, and not its workers.
FlagGroup process_flags(KvOptions& o) {
  // clang-format off
  return {"By which processes", {
      {.name = "workers", .letter = 'w', .value = "N", .to = &o.workers, .least = 1,
       .most = kMostWorkers, .help = "worker processes ({})"},
      {.name = "servers", .letter = 's', .value = "N", .to = &o.servers, .least = 1,
       .most = kMostServers, .help = "server processes ({})"},
      {.name = "hosts", .letter = 'H', .value = "FILE", .to = &o.hosts,
       .help = "workers and servers on these hosts instead, started by dtlaunch; words after -- "
           "are more of its options"},
      {.name = "help", .letter = 'h', .help = "this"},
  }};
  // clang-format on
}

FlagGroup machine_flags(KvOptions& o) {
  // clang-format off
  return {"On this machine, not with -H", {
      {.name = "loops", .value = "N", .to = &o.loops, .least = 1, .most = 64,
       .help = "event loops of a server (one per core, at most 8)"},
      {.name = "device", .value = "cuda:N[,cuda:N]",
       .to = Reader([&o](Value v) { return devices(v, o.devices); }),
       .help = "workers' gradients and results are in the memory of these CUDA devices, in turn, "
           "and the type is dist_device_sync"},
      {.name = "server-device", .value = "cuda:N",
       .to = Reader([&o](Value v) { return server_device(v, o.server_device); }),
       .help = "servers keep their values on this CUDA device and compute there"},
      {.name = "colocated", .to = &o.is_colocated,
       .help = "as many servers as workers, and each worker as if alone on a machine with one"},
      {.name = "apart", .to = &o.is_apart,
       .help = "workers in one network namespace, servers in another, a link (veth) between "
           "them; needs root"},
      {.name = "peer", .value = "PEER[,PEER]",
       .to = Reader([&o](Value v) { return peers(v, o.peers); }),
       .help = "measure these in turn with the kvstore, and print the ratio (below)"},
      {.name = "pairs", .value = "N", .to = &o.repetitions, .least = 1, .most = 1000,
       .help = "with --peer: repetitions of each, interleaved (7)"},
  }};
  // clang-format on
}

constexpr const char* kUsage =
    R"(usage: dtbench kv [OPTION]...

Measures the kvstore: worker and server processes on this machine, or with -H on
others, one operation over a whole list of tensors at a time, the way a training
step exchanges its gradients. The results are checked.
)";

/// Behind the options: peers, what is printed, examples.
std::string explanations() {
  std::string text = "\nPeers:\n";
  for (const auto& peer : known_peers()) text += fmt::format("  {:<13} {}\n", peer.name, peer.help);
  return text + R"(
What is printed, per contender:
  ms        time of one operation, of the slowest worker; median, least and most
            over repetitions
  GB/s      bytes of the list / median time, per worker and direction
            (GB = 10^9): higher is better
  CPU s/GB  processor seconds of all processes per GB of payload per worker:
            lower is better
  p50 ...   percentiles of the time of single operations, of all workers
  bad       wrong elements found: anything but 0 is an error
  ops/s     operations of one worker in a second
  ratio     kvstore / peer, median over pairs that ran one after the other:
            below 1 is better

Examples:
  dtbench kv                                       ResNet-50, 2 workers
  dtbench kv --transport tcp --peer raw --pairs 9  how far from the floor
  dtbench kv -s 2 --peer raw-shm,mpi-shm           inside a machine
  dtbench kv --colocated --peer raw-colocated,gloo,mpi
  dtbench kv --sizes 1K,64K,4M,64M -w 4 -s 2 --json
  dtbench kv --sizes 1000x1K --check --reps 20     every result is checked
  dtbench kv --deterministic --peer plain          what an option costs
  dtbench kv --transport tcp --data-auth frames --peer plain
  dtbench kv --type dist_async --peer plain --straggle 50 --seconds 2
  dtbench kv --device cuda:0 --server-device cuda:0 --peer copies,cpu
  dtbench kv -H hosts -w 8 -s 4 --list bert-base   on a cluster

Exit codes: 0 done, 1 a wrong element or a failure, 2 wrong usage, 77 there is
no such CUDA device.
)";
}

/// The options that a job's workers are to have.
io::Words words_for_job(const FlagGroup& group, const io::Given& given) {
  io::Words all;
  for (const io::Flag& flag : group.flags) {
    const auto found = given.values.find(flag.name);
    if (found == given.values.end()) continue;
    for (const std::string& value : found->second)
      all.push_back(*flag.value ? fmt::format("--{}={}", flag.name, value)
                                : fmt::format("--{}", flag.name));
  }
  return all;
}

/// One of the group's that was given; null: none was.
const char* given_of(const FlagGroup& group, const io::Given& given) {
  for (const io::Flag& flag : group.flags)
    if (given.has(flag.name)) return flag.name;
  return nullptr;
}

tl::unexpected<Error> not_of_a_job(const char* name) {
  return fail(ErrorKind::kInvalid, "--{} is for processes of this machine, not for a job's", name);
}

/// Checks of several options together.
Result<void> complete(KvOptions& options) {
  if (options.lists.empty()) options.lists.push_back(*model_list("resnet50"));
  if (options.repetitions == 0) options.repetitions = 7;
  if (options.loops == 0)
    options.loops = std::clamp(std::thread::hardware_concurrency(), 1U, 8U);  // as dtserver
  const bool has_other_peer =
      std::ranges::any_of(options.peers, [](const auto& peer) { return peer != kPlainPeer; });
  if (options.is_apart &&
      (has_other_peer || options.is_colocated || options.transport == kv::Transport::kSharedMemory))
    return fail(ErrorKind::kInvalid,
                "--apart: no peer but plain, no --colocated and no --transport shm");
  if (options.is_apart) options.transport = kv::Transport::kTcp;
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
  if (options.is_streamed && !std::ranges::all_of(options.peers, is_ours))
    return fail(ErrorKind::kInvalid, "--stream: no peer but plain and cpu sends its tensors so");
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

const char* to_string(Operation operation) { return word_of(kOperations, operation); }
const char* to_string(Memory memory) { return word_of(kMemories, memory); }
const char* to_string(kv::Transport transport) { return word_of(kTransports, transport); }
const char* to_string(kv::DataAuth auth) { return word_of(kDataAuths, auth); }

Result<Parsed> parse_kv(const io::Words& words, bool in_job) {
  Parsed parsed;
  KvOptions& options = parsed.options;
  const io::Flags flags = {measured_flags(options), process_flags(options), machine_flags(options)};
  const io::Program program{.name = "dtbench kv",
                            .version = "",
                            .usage = kUsage,
                            .more = explanations(),
                            .free = io::Free::kAfterDashes};
  const auto given = io::parse(program, flags, words);
  if (!given) return tl::unexpected(given.error());
  parsed.answer = io::answer(program, flags, *given);
  if (parsed.answer) return parsed;
  options.launch_words = given->words;
  options.job_words = words_for_job(flags[0], *given);
  if (in_job || !options.hosts.empty())
    if (const char* local = given_of(flags[2], *given)) return not_of_a_job(local);
  if (in_job)
    if (const char* local = given_of(flags[1], *given)) return not_of_a_job(local);
  if (options.hosts.empty() && !options.launch_words.empty())
    return fail(ErrorKind::kInvalid, "--: options of dtlaunch need -H");
  if (auto good = complete(options); !good) return tl::unexpected(good.error());
  return parsed;
}

}  // namespace dt::bench
