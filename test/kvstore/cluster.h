/// Servers, workers and a supervisor in one process, with real sockets between servers and workers.
/// Only the job link is a double: it plays the supervisor's part of the boundary.
#pragma once

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "io/log.h"
#include "kvstore/client.h"
#include "kvstore/dtkv.h"
#include "kvstore/server.h"
#include "test/kvstore/eventually.h"

namespace dt::test {

inline const std::string kSecret(32, 's');

class QuietLog final : public io::Log {
 public:
  void line(io::Level, std::string_view) override {}
};

/// $DT_TEST_TRANSPORT: the tests run once over TCP and once over shared memory ("shm").
inline kv::Transport transport_under_test() {
  const char* name = std::getenv("DT_TEST_TRANSPORT");
  return name && std::string_view(name) == "shm" ? kv::Transport::kSharedMemory
                                                 : kv::Transport::kTcp;
}

/// $DT_TEST_BUSY_POLL, in microseconds.
inline Duration busy_poll_under_test() {
  const char* text = std::getenv("DT_TEST_BUSY_POLL");
  unsigned us = 0;
  if (text) (void)std::from_chars(text, text + std::string_view(text).size(), us);
  return std::chrono::microseconds(us);
}

/// The supervisor and the servers.
class Cluster {
 public:
  kv::Transport transport = transport_under_test();

  /// `servers` servers of two loops; workers 0..workers-1 are the first contributors. `change` has
  /// the last word on each server's options.
  Cluster(std::uint32_t servers, std::uint32_t workers, bool commit_now = true,
          bool deterministic = false, bool refuse_nonfinite = false,
          const std::function<void(kv::ServerOptions&)>& change = {}) {
    options_.secret = kSecret;
    options_.loops = 2;
    options_.shard.hold_limit = 20s;
    options_.shard.deterministic = deterministic;
    options_.busy_poll = busy_poll_under_test();
    options_.shard.refuse_nonfinite = refuse_nonfinite;
    options_.servers = servers;
    start_servers(change);
    for (std::uint32_t w = 0; w < workers; ++w) contributors_.push_back(WorkerId(w));
    if (commit_now) commit(true, contributors_);
  }

  /// What a rollback begins with: the servers are gone at once.
  void kill_servers() { servers_.clear(); }
  /// And goes on with: others, which know the contributors, and a new list, which nobody has heard
  /// of yet. Servers that were not killed go on apart from the cluster.
  void replace_servers(Epoch epoch, const std::function<void(kv::ServerOptions&)>& change) {
    for (auto& server : servers_) old_servers_.push_back(std::move(server));
    servers_.clear();
    std::lock_guard lock(mutex_);
    arrived_.clear();
    addresses_.servers.clear();
    start_servers(change);
    commit_locked(true, contributors_);
    addresses_.since = generation_;
    addresses_.epoch = epoch;
    returns_to_ = epoch;
  }
  /// The list reaches these workers.
  void tell_servers(const std::vector<WorkerId>& workers) {
    std::lock_guard lock(mutex_);
    for (const WorkerId w : workers)
      if (auto* listener = listener_of(w)) listener->on_servers(addresses_);
  }

  kv::Server& server(std::size_t i = 0) { return *servers_[i]; }
  [[nodiscard]] Generation generation() {
    std::lock_guard lock(mutex_);
    return generation_;
  }
  /// Workers are told this address instead of the server's own.
  void redirect(std::size_t server, std::uint16_t port) { addresses_.servers[server].port = port; }

  /// The next generation, adopted by every server when this returns.
  void commit(bool boundary, std::vector<WorkerId> contributors) {
    std::lock_guard lock(mutex_);
    commit_locked(boundary, std::move(contributors));
  }
  /// What a death in mid-epoch does.
  void shrink(std::vector<WorkerId> left) {
    std::lock_guard lock(mutex_);
    commit_locked(false, left);
    Shrunk shrunk;
    shrunk.generation = generation_;
    shrunk.lead = left.front();
    for (const auto& w : left)
      if (auto* listener = listener_of(w)) listener->on_shrunk(shrunk);
    release_if_complete();
  }
  /// Who takes part from the next boundary on.
  void plan(std::vector<WorkerId> contributors) {
    std::lock_guard lock(mutex_);
    planned_ = std::move(contributors);
    release_if_complete();
  }
  /// The boundary before this epoch asks for a checkpoint.
  void save_at(Epoch epoch) { save_at_ = epoch; }
  /// What the workers are told to begin with, whatever they say.
  void begin_with(Epoch epoch) { first_epoch_ = epoch; }
  [[nodiscard]] std::size_t arrived() {
    std::lock_guard lock(mutex_);
    return arrived_.size();
  }

  /// A worker's store. `newcomer`: it was not there from the start.
  std::unique_ptr<kv::Store> open(std::uint32_t worker, const std::string& type = "dist_sync",
                                  bool newcomer = false, std::uint64_t chunk_bytes = 4096) {
    kv::ClientOptions options;
    options.type = type;
    options.async = type == "dist_async";
    options.worker = WorkerId(worker);
    options.rank = Rank(worker);
    options.num_workers = static_cast<std::uint32_t>(contributors_.size());
    options.newcomer = newcomer;
    options.secret = kSecret;
    options.chunk_bytes = chunk_bytes;
    options.transport = transport;
    options.busy_poll = busy_poll_under_test();
    options.share_from = 1;
    options.start_limit = 20s;
    options.lost_limit = 3s;
    options.close_limit = 500ms;
    auto opened = kv::open_client(options, std::make_unique<Link>(*this, WorkerId(worker)));
    if (!opened) throw std::runtime_error(opened.error().message);
    return std::move(*opened);
  }

  /// Runs `body(store, worker)` for workers 0..n-1, each on its own thread, and waits for all. An
  /// exception that leaves one of them is thrown here.
  void run(std::uint32_t n, const std::function<void(kv::Store&, std::uint32_t)>& body,
           const std::string& type = "dist_sync") {
    std::vector<std::future<void>> all;
    for (std::uint32_t w = 0; w < n; ++w)
      all.push_back(std::async(std::launch::async, [this, w, &body, type] {
        auto store = open(w, type);
        body(*store, w);
      }));
    std::string wrong;
    for (std::uint32_t w = 0; w < n; ++w) {
      try {
        all[w].get();
      } catch (const std::exception& e) {
        wrong += "worker " + std::to_string(w) + ": " + e.what() + "\n";
      }
    }
    if (!wrong.empty()) throw std::runtime_error(wrong);
  }

 private:
  class Link final : public kv::JobLink {
   public:
    Link(Cluster& cluster, WorkerId worker) : cluster_(cluster), worker_(worker) {}
    io::awaitable<void> run(io::TaskGroup& /*group*/, kv::JobListener& listener) override {
      const Registered registered(cluster_, worker_, listener);
      cluster_.tell_servers({worker_});
      io::asio::steady_timer forever(co_await io::asio::this_coro::executor,
                                     io::asio::steady_timer::time_point::max());
      co_await forever.async_wait(io::tok);
    }
    void opened(const OpenedKvStore&) override {}
    void arrive(const Arrive& message) override { cluster_.arrive(worker_, message); }
    void released() override {}
    void progress(const Progress&) override {}

   private:
    struct Registered {
      Registered(Cluster& c, WorkerId w, kv::JobListener& listener) : cluster(c), worker(w) {
        std::lock_guard lock(cluster.mutex_);
        cluster.listeners_[worker] = &listener;
      }
      ~Registered() {
        std::lock_guard lock(cluster.mutex_);
        cluster.listeners_.erase(worker);
      }
      Cluster& cluster;
      WorkerId worker;
    };
    Cluster& cluster_;
    WorkerId worker_;
  };

  void start_servers(const std::function<void(kv::ServerOptions&)>& change) {
    for (std::uint32_t s = 0; s < options_.servers; ++s) {
      kv::ServerOptions options = options_;
      options.index = s;
      options.id = next_server_;
      next_server_ = next_server_.next();
      if (change) change(options);
      auto started = kv::Server::start(options, log_);
      if (!started) throw std::runtime_error(started.error().message);
      ServerAddress address;
      address.server = options.id;
      address.address = "127.0.0.1";
      address.port = (*started)->port();
      addresses_.servers.push_back(address);
      servers_.push_back(std::move(*started));
    }
  }

  void commit_locked(bool boundary, std::vector<WorkerId> contributors,
                     std::optional<Epoch> save = std::nullopt) {
    generation_ = generation_.next();
    contributors_ = std::move(contributors);
    ServerCommit commit;
    commit.generation = generation_;
    commit.boundary = boundary;
    commit.contributors = contributors_;
    if (save) {
      commit.epoch = *save;
      commit.checkpoint = generation_;
    }
    for (auto& server : servers_) {
      std::promise<bool> done;
      server->commit(commit, [&done](bool adopted) { done.set_value(adopted); });
      if (!done.get_future().get()) throw std::runtime_error("a commit was refused");
    }
  }

  kv::JobListener* listener_of(WorkerId worker) {
    const auto it = listeners_.find(worker);
    return it == listeners_.end() ? nullptr : it->second;
  }

  void arrive(WorkerId worker, const Arrive& message) {
    std::lock_guard lock(mutex_);
    if (message.servers != addresses_.since) return;
    arrived_[worker] = message;
    release_if_complete();
  }

  void release_if_complete() {
    if (contributors_.empty()) return;
    for (const auto& w : contributors_)
      if (!arrived_.count(w)) return;
    Epoch epoch = arrived_.at(contributors_.front()).epoch;
    if (first_epoch_) epoch = *std::exchange(first_epoch_, std::nullopt);
    const bool returns = returns_to_.has_value();
    if (returns) epoch = *std::exchange(returns_to_, std::nullopt);
    if (save_at_ == epoch && !returns) commit_locked(true, contributors_, epoch);
    if (planned_) {
      // A planned newcomer that is not warm yet waits for a later boundary.
      std::vector<WorkerId> next;
      for (const auto& w : *planned_)
        if (arrived_.count(w)) next.push_back(w);
      if (next != contributors_) commit_locked(true, next);
    }
    const auto arrived = arrived_;
    for (const auto& [worker, message] : arrived) {
      Release release;
      release.generation = generation_;
      release.epoch = epoch;
      release.world_size = static_cast<std::uint32_t>(contributors_.size());
      release.newcomer = message.join;
      if (returns) release.verdict = Verdict::kRollback;
      const auto at = std::find(contributors_.begin(), contributors_.end(), worker);
      if (at == contributors_.end()) {
        if (message.join) continue;
        release.verdict = Verdict::kLeave;
      } else {
        release.rank = Rank(static_cast<std::uint32_t>(at - contributors_.begin()));
      }
      arrived_.erase(worker);
      if (auto* listener = listener_of(worker)) listener->on_release(release);
    }
  }

  QuietLog log_;
  kv::ServerOptions options_;
  ServerId next_server_;
  std::vector<std::unique_ptr<kv::Server>> servers_;
  std::vector<std::unique_ptr<kv::Server>> old_servers_;
  Servers addresses_;
  std::mutex mutex_;
  Generation generation_{0};
  std::vector<WorkerId> contributors_;
  std::optional<std::vector<WorkerId>> planned_;
  std::optional<Epoch> save_at_;
  std::optional<Epoch> first_epoch_;
  std::optional<Epoch> returns_to_;
  std::map<WorkerId, Arrive> arrived_;
  std::map<WorkerId, kv::JobListener*> listeners_;
};

// Shorthands: throw what went wrong, so that a thread's failure reaches the test.

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

}  // namespace dt::test
