// The kvstore as dtbench measures it: servers and workers as processes of their own, used through
// the interface everybody uses.

#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "io/log.h"
#include "kvstore/bench/contender.h"
#include "kvstore/bench/worker.h"
#include "kvstore/client.h"
#include "kvstore/handshake.h"
#include "kvstore/optimizer.h"
#include "kvstore/server.h"

namespace dt::bench {

namespace {

constexpr float kLearningRate = 0.01F;
/// Of the weights an optimizer makes, so many are computed again and compared.
constexpr std::size_t kTracked = 4096;
constexpr double kWaitLimit = 300;  ///< Seconds, for one operation.

Error error_of(const kv::StoreError& error) { return {ErrorKind::kUnavailable, error.message}; }
Result<void> result_of(const kv::Status& status) {
  if (!status) return tl::unexpected(error_of(status.error()));
  return {};
}

std::string fresh_secret() {
  std::string secret;
  while (secret.size() < 32) secret += kv::fresh_nonce();
  secret.resize(32);
  return secret;
}

/// The supervisor's part, as far as a worker that never changes epoch needs it.
class FixedLink final : public kv::JobLink {
 public:
  explicit FixedLink(Servers servers) : servers_(std::move(servers)) {}
  io::awaitable<void> run(io::TaskGroup& /*group*/, kv::JobListener& listener) override {
    listener.on_servers(servers_);
    io::asio::steady_timer forever(co_await io::asio::this_coro::executor,
                                   io::asio::steady_timer::time_point::max());
    co_await forever.async_wait(io::tok);
  }
  void opened(const OpenedKvStore& /*message*/) override {}
  void arrive(const Arrive& /*message*/) override {}
  void released() override {}
  void progress(const Progress& /*message*/) override {}

 private:
  Servers servers_;
};

Result<void> serve(Control& control, std::uint32_t id, const KvOptions& options,
                   const std::string& secret) {
  io::FdLog log(2, io::Level::kWarning);
  kv::ServerOptions server_options;
  server_options.id = ServerId(id);
  server_options.secret = secret;
  server_options.loops = options.loops;
  auto server = kv::Server::start(std::move(server_options), log);
  if (!server) return tl::unexpected(server.error());
  ServerCommit commit;
  commit.generation = Generation(1);
  commit.boundary = true;
  for (std::uint32_t w = 0; w < options.workers; ++w) commit.contributors.emplace_back(w);
  std::promise<bool> adopted;
  (*server)->commit(commit, [&adopted](bool yes) { adopted.set_value(yes); });
  DT_CHECK(adopted.get_future().get(), "a server's first commit is adopted");
  control.server_ready(id, (*server)->port());
  control.await_quit();
  return {};
}

/// A worker of the kvstore.
class StoreExchange final : public Exchange {
 public:
  StoreExchange(const KvOptions& options, const TensorList& list, std::unique_ptr<kv::Store> store)
      : options_(options),
        store_(std::move(store)),
        gradient_(list.total_elements()),
        result_(list.total_elements()) {
    std::size_t first = 0;
    for (const std::uint64_t count : list.elements) {
      keys_.push_back(fmt::format("tensor{}", keys_.size()));
      gradients_.push_back(array(gradient_.values().subspan(first, count)));
      results_.push_back(array(result_.values().subspan(first, count)));
      first += count;
    }
    push_.learning_rate = kLearningRate;
    push_.is_awaited = awaited_.is_awaited = true;
  }

  /// Before the first operation.
  Result<void> prepare() {
    if (auto made = store_->init(keys_, results_, 0); !made) return result_of(made);
    if (options_.optimizer.empty()) {
      if (options_.type == "dist_async") total_.emplace(result_.values().size());
      return {};
    }
    spec_ = *kv::parse_optimizer(options_.optimizer);
    const std::size_t size = result_.values().size();
    const std::size_t stride = std::max<std::size_t>(1, size / kTracked);
    for (std::size_t i = 0; i < size; i += stride) tracked_.push_back(i);
    weights_.assign(tracked_.size(), 0.0F);
    return result_of(store_->set_optimizer(options_.optimizer));
  }

  std::span<float> gradient() override { return gradient_.values(); }
  std::span<const float> result() override { return result_.values(); }

  Result<void> run() override {
    switch (options_.operation) {
      case Operation::kPushPull:
        return finish(store_->pushpull(keys_, gradients_, results_, push_));
      case Operation::kPush:
        return finish(store_->push(keys_, gradients_, push_));
      case Operation::kPull:
        return finish(store_->pull(keys_, results_, awaited_));
    }
    return {};
  }

  Result<void> run_to_check() override {
    const bool is_whole =
        options_.operation == Operation::kPushPull && options_.type == "dist_sync";
    if (is_whole) return run();
    if (options_.operation == Operation::kPull) {
      if (auto pushed = finish(store_->push(keys_, gradients_, push_)); !pushed) return pushed;
    } else if (auto ran = run(); !ran) {
      return ran;
    }
    // What others pushed is there when all have been answered.
    if (auto met = store_->barrier(); !met) return result_of(met);
    if (auto pulled = finish(store_->pull(keys_, results_, awaited_)); !pulled) return pulled;
    return result_of(store_->barrier());
  }

  std::uint64_t count_bad(std::uint32_t workers, std::uint32_t round) override {
    if (total_) return count_wrong_total(workers, round);
    if (!spec_) return count_wrong(result_.values(), workers, round);
    if (options_.type == "dist_async") return 0;  // depends on the order of arrival
    repeat_update(workers, round, 1);
    round_ = round;
    workers_ = workers;
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < tracked_.size(); ++i) {
      const float want = weights_[i];
      const float have = result_.values()[tracked_[i]];
      wrong += std::abs(have - want) <= 1e-4F * std::max(1.0F, std::abs(want)) ? 0 : 1;
    }
    return wrong;
  }

  void was_repeated(std::uint32_t operations) override {
    if (spec_ && options_.type == "dist_sync") repeat_update(workers_, round_, operations);
  }

  bool grows() override { return total_.has_value(); }

 private:
  static kv::Array array(std::span<float> values) {
    return {values.data(), values.size(), data::Dtype::kFloat32};
  }
  Result<void> finish(const kv::StoreResult<kv::Handle>& handle) {
    if (!handle) return tl::unexpected(error_of(handle.error()));
    return result_of(store_->wait(*handle, kWaitLimit));
  }

  /// dist_async without an optimizer: what is pushed adds up, and nothing may be lost.
  std::uint64_t count_wrong_total(std::uint32_t workers, std::uint32_t round) {
    const auto total = total_->values();
    const float weight = sum_of_ranks(workers);
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < total.size(); ++i) {
      total[i] += weight * value_at(i, round);
      wrong += result_.values()[i] == total[i] ? 0 : 1;
    }
    return wrong;
  }

  /// What the servers do with everybody's gradient of `round`, on the tracked weights.
  void repeat_update(std::uint32_t workers, std::uint32_t round, std::uint32_t operations) {
    std::vector<float> mean;
    for (const std::size_t i : tracked_)
      mean.push_back(sum_of_ranks(workers) * value_at(i, round) / static_cast<float>(workers));
    const kv::Addend whole{reinterpret_cast<const std::byte*>(mean.data()), 1};
    kv::Reduction gradient;
    gradient.addends = std::span(&whole, 1);
    for (std::uint32_t n = 0; n < operations; ++n)
      kv::update(*spec_, state_, data::Dtype::kFloat32, static_cast<double>(kLearningRate),
                 reinterpret_cast<std::byte*>(weights_.data()), gradient, mean.size());
  }

  const KvOptions& options_;
  std::unique_ptr<kv::Store> store_;
  Buffer gradient_;
  Buffer result_;
  std::vector<std::string> keys_;
  std::vector<kv::Array> gradients_;
  std::vector<kv::Array> results_;
  kv::PushOptions push_;  ///< wait() follows at once, as in a blocking call.
  kv::PullOptions awaited_;
  std::optional<Buffer> total_;  ///< Of all pushes, where they add up.

  // With an optimizer:
  std::optional<kv::OptimizerSpec> spec_;
  std::vector<std::size_t> tracked_;
  std::vector<float> weights_;
  kv::OptimizerState state_;
  std::uint32_t round_ = 0;
  std::uint32_t workers_ = 1;
};

Result<void> work(Control& control, std::uint32_t rank, const KvOptions& options,
                  const TensorList& list, const std::string& secret) {
  const auto ports = control.await_ports(options.servers);
  Servers servers;
  for (std::uint32_t s = 0; s < options.servers; ++s)
    servers.servers.push_back({ServerId(s), "127.0.0.1", ports[s]});
  kv::ClientOptions client;
  client.type = options.type;
  client.async = options.type == "dist_async";
  client.worker = WorkerId(rank);
  client.rank = Rank(rank);
  client.num_workers = options.workers;
  client.secret = secret;
  client.chunk_bytes = options.chunk_bytes;
  client.start_limit = std::chrono::seconds(60);
  auto store = kv::open_client(std::move(client), std::make_unique<FixedLink>(std::move(servers)));
  if (!store) return tl::unexpected(error_of(store.error()));
  StoreExchange exchange(options, list, std::move(*store));
  if (auto prepared = exchange.prepare(); !prepared) return prepared;
  return take_part(control, rank, exchange);
}

}  // namespace

Result<Contender> start_store(const KvOptions& options, const TensorList& list) {
  auto control = Control::create(options.workers, list.elements);
  if (!control) return tl::unexpected(control.error());
  Contender store{"kvstore", std::move(*control), {}, {}};
  const std::string secret = fresh_secret();
  for (std::uint32_t s = 0; s < options.servers; ++s) {
    auto body = [&] { return serve(store.control, s, options, secret); };
    if (auto started = store.children.fork(fmt::format("server {}", s), body); !started)
      return tl::unexpected(started.error());
  }
  for (std::uint32_t w = 0; w < options.workers; ++w) {
    auto body = [&] { return work(store.control, w, options, list, secret); };
    if (auto started = store.children.fork(fmt::format("worker {}", w), body); !started)
      return tl::unexpected(started.error());
  }
  return store;
}

}  // namespace dt::bench
