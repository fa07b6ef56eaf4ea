#include "test/bench/kv/peers.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "io/subprocess.h"
#include "test/bench/kv/failure.h"
#include "test/bench/kv/raw_copies.h"
#include "test/bench/kv/raw_exchange.h"

namespace dt::bench {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBucketBytes = 25'000'000;  ///< DistributedDataParallel's size.

Contender start_gloo(const Peer& peer, const KvOptions& options, const TensorList& list) {
  Contender gloo(peer.name, options, list);
  std::string folder = (fs::temp_directory_path() / "dtbench-XXXXXX").string();
  if (!::mkdtemp(folder.data())) throw Failure(errno_error(errno, "make " + folder));
  gloo.folder.path = folder;
  const bool per_tensor = std::string(peer.name) == "gloo-tensor";
  for (std::uint32_t r = 0; r < options.workers; ++r)
    gloo.children.run(fmt::format("rank {}", r),
                      {(io::program_folder() / peer.program).string(), gloo.control.path(),
                       std::to_string(r), folder, std::to_string(per_tensor ? 0 : kBucketBytes)});
  return gloo;
}

Contender start_mpi(const Peer& peer, const KvOptions& options, const TensorList& list) {
  Contender mpi(peer.name, options, list);
  const bool is_shm = std::string(peer.name) == "mpi-shm";
  std::vector<std::string> argv = {
      "mpirun", "--oversubscribe", "--bind-to", "none", "-np", std::to_string(options.workers)};
  const auto set = [&argv](const char* name, const char* value) {
    argv.insert(argv.end(), {"--mca", name, value});
  };
  set("btl", is_shm ? "vader,self" : "tcp,self");
  set("pml", "ob1");
  set("plm", "isolated");  // no ssh, no rsh: this machine only
  set("btl_tcp_if_include", "lo");
  set("oob_tcp_if_include", "lo");
  set("mpi_yield_when_idle", "1");  // ranks spin; with fewer cores than ranks they would starve
  if (::geteuid() == 0) argv.emplace_back("--allow-run-as-root");
  argv.insert(argv.end(), {(io::program_folder() / peer.program).string(), mpi.control.path()});
  mpi.children.run("mpirun", argv);
  return mpi;
}

/// The kvstore with other options.
Contender start_store_as(const Peer& peer, const KvOptions& options, const TensorList& list) {
  Contender store = start_store(options, list);
  store.name = peer.name;
  return store;
}

Contender start_plain(const Peer& peer, const KvOptions& options, const TensorList& list) {
  const KvOptions usual;
  KvOptions plain = options;
  plain.type = options.devices.empty() ? usual.type : "dist_device_sync";
  plain.busy_poll = usual.busy_poll;
  plain.is_deterministic = usual.is_deterministic;
  plain.data_auth = kv::DataAuth::kHandshake;
  plain.codec = usual.codec;
  plain.memory = usual.memory;
  plain.is_in_place = usual.is_in_place;
  return start_store_as(peer, plain, list);
}

Contender start_cpu(const Peer& peer, const KvOptions& options, const TensorList& list) {
  return start_store_as(peer, without_devices(options), list);
}

template <Contender (*Start)(const KvOptions&, const TensorList&)>
Contender start_ours(const Peer& /*peer*/, const KvOptions& options, const TensorList& list) {
  return Start(options, list);
}

}  // namespace

const std::vector<Peer>& known_peers() {
  static const std::vector<Peer> all = {
      {kPlainPeer, "the kvstore without --type, --codec and the like: what they cost", start_plain},
      {kCpuPeer, "the kvstore with arrays and values in host memory: dist_sync", start_cpu},
      {kCopiesPeer, "only the copies from and to devices, in a process per worker",
       start_ours<start_copies>},
      {"raw", "poll loops over TCP, the same servers, no protocol: the floor",
       start_ours<start_raw>},
      {"raw-colocated", "the same, every process being a worker and a server",
       start_ours<start_raw_colocated>},
      {"raw-shm", "the floor inside the machine: shared memory, nothing copied",
       start_ours<start_raw_shm>},
      {"gloo", "Gloo's ring all-reduce over TCP, copied into buckets of 25 MB", start_gloo,
       "dtbench-gloo", "libgloo-dev"},
      {"gloo-tensor", "the same, tensor by tensor", start_gloo, "dtbench-gloo", "libgloo-dev"},
      {"mpi", "Open MPI's all-reduce in place, tensor by tensor, over TCP", start_mpi,
       "dtbench-mpi", "openmpi-bin libopenmpi-dev"},
      {"mpi-shm", "the same inside the machine (shared memory, CMA)", start_mpi, "dtbench-mpi",
       "openmpi-bin libopenmpi-dev"},
  };
  return all;
}

KvOptions without_devices(KvOptions options) {
  options.devices.clear();
  options.server_device.reset();
  if (!options.is_async()) options.type = "dist_sync";
  return options;
}

Result<void> check_peer(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& peer : known_peers()) {
    names.emplace_back(peer.name);
    if (name != peer.name) continue;
    if (!peer.program ||
        ::access((io::program_folder() / peer.program).string().c_str(), X_OK) == 0)
      return {};
    return fail(ErrorKind::kInvalid,
                "{} is not beside dtbench: it is built where its library is found (apt-get install "
                "{}, then build again)",
                peer.program, peer.package);
  }
  return fail(ErrorKind::kInvalid, "'{}': one of {} was expected", name, fmt::join(names, ", "));
}

Contender start_peer(const std::string& name, const KvOptions& options, const TensorList& list) {
  const auto same = [&](const Peer& peer) { return name == peer.name; };
  const auto peer = std::ranges::find_if(known_peers(), same);
  DT_CHECK(peer != known_peers().end(), "the options know the peers");
  return peer->start(*peer, options, list);
}

}  // namespace dt::bench
