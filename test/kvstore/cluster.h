/// Servers, workers and a supervisor in one process, with real sockets between servers and workers.
/// Only the job link is a double: it plays the supervisor's part of the boundary.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/protocol/control_messages.h"
#include "kvstore/dtkv.h"
#include "kvstore/server/server.h"
#include "kvstore/worker/client.h"
#include "test/kvstore/eventually.h"

namespace dt::kv {
class JobListener;
}

namespace dt::test {

inline const std::string kSecret(32, 's');

/// $DT_TEST_TRANSPORT: the tests run once over TCP and once over shared memory ("shm").
kv::Transport transport_under_test();
/// $DT_TEST_BUSY_POLL, in microseconds.
Duration busy_poll_under_test();
/// $DT_TEST_DATA_AUTH: the tests run once more with "frames".
kv::DataAuth data_auth_under_test();

/// The supervisor and the servers.
class Cluster {
 public:
  kv::Transport transport = transport_under_test();
  kv::cuda::LocalGroup::Options device_group;  ///< Options of workers with several GPUs.
  /// Has the last word on each worker's options.
  std::function<void(kv::ClientOptions&)> change_worker;

  /// `servers` servers of two loops; workers 0..workers-1 are the first contributors. `change` has
  /// the last word on each server's options.
  Cluster(std::uint32_t servers, std::uint32_t workers, bool commit_now = true,
          bool deterministic = false, bool refuse_nonfinite = false,
          const std::function<void(kv::ServerOptions&)>& change = {});

  /// The start of a rollback: the servers end at once.
  void kill_servers() { servers_.clear(); }
  /// Starts new servers, which know the contributors, and a new list, which no worker has yet.
  /// Servers that were not killed continue outside the cluster.
  void replace_servers(Epoch epoch, const std::function<void(kv::ServerOptions&)>& change);
  /// Sends the list to these workers.
  void tell_servers(const std::vector<WorkerId>& workers);

  kv::Server& server(std::size_t i = 0) { return *servers_[i]; }
  [[nodiscard]] Generation generation();
  /// Workers get this address instead of the server's own.
  void redirect(std::size_t server, std::uint16_t port) { addresses_.servers[server].port = port; }

  /// The next generation, adopted by every server when this returns.
  void commit(std::vector<WorkerId> contributors);
  /// The effect of a death in mid-epoch.
  void shrink(std::vector<WorkerId> left);
  /// The contributors from the next boundary on.
  void plan(std::vector<WorkerId> contributors);
  /// The boundary before this epoch requests a checkpoint.
  void save_at(Epoch epoch) { save_at_ = epoch; }
  /// The epoch with which the workers begin, whatever epoch they arrive with.
  void begin_with(Epoch epoch) { first_epoch_ = epoch; }
  [[nodiscard]] std::size_t arrived();
  /// The worker's last figures.
  [[nodiscard]] Figures figures(WorkerId worker);

  /// A worker's store. `newcomer`: it was not there from the start.
  std::unique_ptr<kv::Store> open(std::uint32_t worker, const std::string& type = "dist_sync",
                                  bool newcomer = false, std::uint64_t chunk_bytes = 4096);

  /// Runs `body(store, worker)` for workers 0..n-1, each on its own thread, and waits for all.
  /// Rethrows an exception of a body.
  void run(std::uint32_t n, const std::function<void(kv::Store&, std::uint32_t)>& body,
           const std::string& type = "dist_sync");

 private:
  class Link;

  void start_servers(const std::function<void(kv::ServerOptions&)>& change);
  void commit_locked(std::vector<WorkerId> contributors, bool saves = false);
  [[nodiscard]] kv::JobListener* listener_of(WorkerId worker);
  void arrive(WorkerId worker, const Arrive& message);
  void release_if_complete();

  kv::ServerOptions options_;
  ServerId next_server_;
  std::vector<std::unique_ptr<kv::Server>> servers_;
  std::vector<std::unique_ptr<kv::Server>> old_servers_;
  Servers addresses_;
  std::mutex mutex_;
  Generation generation_{0};
  Epoch epoch_;  ///< The current epoch, or the one about to begin.
  std::vector<WorkerId> contributors_;
  std::optional<std::vector<WorkerId>> planned_;
  std::optional<Epoch> save_at_;
  std::optional<Epoch> first_epoch_;
  std::optional<Epoch> returns_to_;
  std::map<WorkerId, Arrive> arrived_;
  std::map<WorkerId, Figures> figures_;
  std::map<WorkerId, kv::JobListener*> listeners_;
};

// Shorthands: throw errors, so that a thread's failure reaches the test.

inline void must(const kv::Status& status) {
  if (!status) throw std::runtime_error(status.error().message);
}
template <class T>
T must(kv::StoreResult<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}
inline kv::Array array_of(std::vector<float>& values) {
  return {values.data(), values.size(), data::Dtype::kFloat32};
}
inline kv::Array array_of(std::vector<double>& values) {
  return {values.data(), values.size(), data::Dtype::kFloat64};
}
template <class T>
void init(kv::Store& store, const std::string& key, std::vector<T>& values,
          std::uint8_t flags = 0) {
  must(store.init({key}, {array_of(values)}, flags));
}
template <class T>
kv::Status pushpull(kv::Store& store, const std::string& key, std::vector<T>& gradient,
                    std::vector<T>& out, const kv::PushOptions& options) {
  auto handle = store.pushpull({key}, {array_of(gradient)}, {array_of(out)}, options);
  if (!handle) return tl::unexpected(handle.error());
  return store.wait(*handle, 30);
}
template <class T>
void pull(kv::Store& store, const std::string& key, std::vector<T>& out) {
  must(store.wait(must(store.pull({key}, {array_of(out)}, {})), 30));
}

/// A key with a chunk on every loop of every server; initialised by all workers, then used only by
/// said_to_all().
inline void init_everywhere(kv::Store& store) {
  std::vector<float> values(std::size_t{1} << 15, 0);
  init(store, "everywhere", values);
}
/// Returns when the servers have handled this worker's earlier requests: on a connection frames of
/// one priority keep their order.
inline void said_to_all(kv::Store& store) {
  std::vector<float> values(std::size_t{1} << 15);
  pull(store, "everywhere", values);
}

}  // namespace dt::test
