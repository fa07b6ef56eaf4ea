#include "test/kvstore/cluster.h"

#include <algorithm>
#include <cstdlib>
#include <future>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "core/base/number.h"
#include "kvstore/link/agent_socket.h"
#include "test/kvstore/device_under_test.h"

namespace dt::test {

kv::Transport transport_under_test() {
  const char* name = std::getenv("DT_TEST_TRANSPORT");
  return name && std::string_view(name) == "shm" ? kv::Transport::kSharedMemory
                                                 : kv::Transport::kTcp;
}

Duration busy_poll_under_test() {
  const char* text = std::getenv("DT_TEST_BUSY_POLL");
  return std::chrono::microseconds(text ? parse_number<unsigned>(text).value_or(0) : 0);
}

kv::DataAuth data_auth_under_test() {
  const char* name = std::getenv("DT_TEST_DATA_AUTH");
  return name && std::string_view(name) == "frames" ? kv::DataAuth::kFrames : kv::DataAuth::kAuto;
}

class Cluster::Link final : public kv::JobControl {
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
  void figures(const Figures& message) override {
    std::lock_guard lock(cluster_.mutex_);
    cluster_.figures_[worker_] = message;
  }
  void heard(const ServersHeard&) override {}

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

Cluster::Cluster(std::uint32_t servers, std::uint32_t workers, bool commit_now, bool deterministic,
                 bool refuse_nonfinite, const std::function<void(kv::ServerOptions&)>& change) {
  options_.secret = kSecret;
  options_.loops = 2;
  options_.data_auth = data_auth_under_test();
  options_.shard.hold_limit = 20s;
  options_.shard.deterministic = deterministic;
  options_.busy_poll = busy_poll_under_test();
  options_.shard.refuse_nonfinite = refuse_nonfinite;
  options_.servers = servers;
  options_.device = device_under_test();
  start_servers(change);
  for (std::uint32_t w = 0; w < workers; ++w) contributors_.push_back(WorkerId(w));
  if (commit_now) commit(contributors_);
}

void Cluster::replace_servers(Epoch epoch, const std::function<void(kv::ServerOptions&)>& change) {
  for (auto& server : servers_) old_servers_.push_back(std::move(server));
  servers_.clear();
  std::lock_guard lock(mutex_);
  arrived_.clear();
  addresses_.servers.clear();
  start_servers(change);
  epoch_ = epoch;
  commit_locked(contributors_);
  addresses_.since = generation_;
  addresses_.epoch = epoch;
  returns_to_ = epoch;
}

void Cluster::tell_servers(const std::vector<WorkerId>& workers) {
  std::lock_guard lock(mutex_);
  for (const WorkerId w : workers)
    if (auto* listener = listener_of(w)) listener->on_servers(addresses_);
}

Figures Cluster::figures(WorkerId worker) {
  std::lock_guard lock(mutex_);
  return figures_[worker];
}

Generation Cluster::generation() {
  std::lock_guard lock(mutex_);
  return generation_;
}

void Cluster::commit(std::vector<WorkerId> contributors) {
  std::lock_guard lock(mutex_);
  commit_locked(std::move(contributors));
}

void Cluster::shrink(std::vector<WorkerId> left) {
  std::lock_guard lock(mutex_);
  commit_locked(left);
  Shrunk shrunk;
  shrunk.generation = generation_;
  shrunk.lead = left.front();
  for (const auto& w : left)
    if (auto* listener = listener_of(w)) listener->on_shrunk(shrunk);
  release_if_complete();
}

void Cluster::plan(std::vector<WorkerId> contributors) {
  std::lock_guard lock(mutex_);
  planned_ = std::move(contributors);
  release_if_complete();
}

std::size_t Cluster::arrived() {
  std::lock_guard lock(mutex_);
  return arrived_.size();
}

std::unique_ptr<kv::Store> Cluster::open(std::uint32_t worker, const std::string& type,
                                         bool newcomer, std::uint64_t chunk_bytes) {
  kv::ClientOptions options;
  options.type = type;
  options.async = type == "dist_async";
  options.worker = WorkerId(worker);
  options.rank = Rank(worker);
  options.num_workers = static_cast<std::uint32_t>(contributors_.size());
  options.newcomer = newcomer;
  options.secret = kSecret;
  options.data_auth = data_auth_under_test();
  options.chunk_bytes = chunk_bytes;
  options.transport = transport;
  options.device_group = device_group;
  options.busy_poll = busy_poll_under_test();
  options.share_from = 1;
  options.start_limit = 20s;
  options.lost_limit = 3s;
  options.close_limit = 500ms;
  if (change_worker) change_worker(options);
  auto opened = kv::open_client(options, std::make_unique<Link>(*this, WorkerId(worker)));
  if (!opened) throw std::runtime_error(opened.error().message);
  return std::move(*opened);
}

void Cluster::run(std::uint32_t n, const std::function<void(kv::Store&, std::uint32_t)>& body,
                  const std::string& type) {
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

void Cluster::start_servers(const std::function<void(kv::ServerOptions&)>& change) {
  for (std::uint32_t s = 0; s < options_.servers; ++s) {
    kv::ServerOptions options = options_;
    options.index = s;
    options.id = next_server_;
    next_server_ = next_server_.next();
    if (change) change(options);
    auto started = kv::Server::start(options);
    if (!started) throw std::runtime_error(started.error().message);
    ServerAddress address;
    address.server = options.id;
    address.address = "127.0.0.1";
    address.port = (*started)->port();
    addresses_.servers.push_back(address);
    servers_.push_back(std::move(*started));
  }
}

void Cluster::commit_locked(std::vector<WorkerId> contributors, bool saves) {
  generation_ = generation_.next();
  contributors_ = std::move(contributors);
  ServerCommit commit;
  commit.generation = generation_;
  commit.epoch = epoch_;
  commit.contributors = contributors_;
  if (saves) commit.checkpoint = generation_;
  for (auto& server : servers_) {
    std::promise<bool> done;
    server->commit(commit, [&done](bool adopted) { done.set_value(adopted); });
    if (!done.get_future().get()) throw std::runtime_error("a commit was refused");
  }
}

kv::JobListener* Cluster::listener_of(WorkerId worker) {
  const auto it = listeners_.find(worker);
  return it == listeners_.end() ? nullptr : it->second;
}

void Cluster::arrive(WorkerId worker, const Arrive& message) {
  std::lock_guard lock(mutex_);
  if (message.servers != addresses_.since) return;
  arrived_[worker] = message;
  release_if_complete();
}

void Cluster::release_if_complete() {
  if (contributors_.empty()) return;
  for (const auto& w : contributors_)
    if (!arrived_.count(w)) return;
  Epoch epoch = arrived_.at(contributors_.front()).epoch;
  if (first_epoch_) epoch = *std::exchange(first_epoch_, std::nullopt);
  const bool returns = returns_to_.has_value();
  if (returns) epoch = *std::exchange(returns_to_, std::nullopt);
  epoch_ = epoch;
  if (save_at_ == epoch && !returns) commit_locked(contributors_, true);
  if (planned_) {
    // A planned newcomer that is not warm yet waits for a later boundary.
    std::vector<WorkerId> next;
    for (const auto& w : *planned_)
      if (arrived_.count(w)) next.push_back(w);
    if (next != contributors_) commit_locked(next);
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

}  // namespace dt::test
