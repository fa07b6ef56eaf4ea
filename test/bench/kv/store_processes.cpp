// The kvstore on this machine: servers and workers as processes of their own.

#include <algorithm>
#include <future>
#include <memory>

#include "kvstore/link/agent_socket.h"
#include "kvstore/link/handshake.h"
#include "kvstore/server/server.h"
#include "kvstore/worker/client.h"
#include "test/bench/kv/contender.h"
#include "test/bench/kv/failure.h"
#include "test/bench/kv/isolation.h"
#include "test/bench/kv/store_exchange.h"

namespace dt::bench {

namespace {

std::string fresh_secret() {
  std::string secret;
  while (secret.size() < 32) secret += kv::fresh_nonce();
  secret.resize(32);
  return secret;
}

/// The supervisor's part, as far as a worker that never changes epoch needs it.
class FixedControl final : public kv::JobControl {
 public:
  FixedControl(Servers servers, Control& control, std::uint32_t rank)
      : servers_(std::move(servers)), control_(control), rank_(rank) {}
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
  void figures(const Figures& message) override {
    const auto value = [&message](const char* name) {
      const auto found = std::ranges::find_if(
          message.values, [name](const auto& one) { return one.first == name; });
      return found == message.values.end() ? 0 : found->second;
    };
    control_.keeps(rank_, {value("staged_mib"), value("pinned_mib"), value("device_mib")});
  }
  void heard(const ServersHeard& /*message*/) override {}

 private:
  Servers servers_;
  Control& control_;
  std::uint32_t rank_;
};

void serve(Control& control, std::uint32_t id, const KvOptions& options,
           const std::string& secret) {
  kv::ServerOptions server_options;
  if (options.server_network) {
    must(enter(*options.server_network));
    server_options.bind = options.server_network->address;
  }
  server_options.id = ServerId(id);
  server_options.secret = secret;
  server_options.data_auth = options.data_auth;
  server_options.loops = options.loops;
  server_options.busy_poll = options.busy_poll;
  server_options.shard.deterministic = options.is_deterministic;
  server_options.device = options.server_device;
  const auto server = must(kv::Server::start(std::move(server_options)));
  ServerCommit commit;
  commit.generation = Generation(1);
  for (std::uint32_t w = 0; w < options.workers; ++w) commit.contributors.emplace_back(w);
  std::promise<bool> applied;
  server->commit(commit, [&applied](bool yes) { applied.set_value(yes); });
  DT_CHECK(applied.get_future().get(), "a server's first commit is applied");
  control.server_ready(id, server->port());
  control.await_leavers();
  control.has_read_in_place(server->counters().in_place);
}

/// The worker needs no server any more when this ends.
struct Leaving {
  Control& control;
  ~Leaving() { control.leave(); }
};

void work(Control& control, std::uint32_t rank, const KvOptions& options, const TensorList& list,
          const std::string& secret) {
  const Leaving leaving{control};
  const auto ports = control.await_ports(options.servers);
  const std::string address =
      options.server_network ? options.server_network->address : std::string("127.0.0.1");
  Servers servers;
  for (std::uint32_t s = 0; s < options.servers; ++s)
    servers.servers.push_back({ServerId(s), address, ports[s]});
  kv::ClientOptions client;
  client.type = options.type;
  client.async = options.is_async();
  client.worker = WorkerId(rank);
  client.rank = Rank(rank);
  client.num_workers = options.workers;
  client.secret = secret;
  client.data_auth = options.data_auth;
  client.chunk_bytes = options.chunk_bytes;
  client.busy_poll = options.busy_poll;
  client.transport = options.transport;
  if (options.is_colocated)
    client.may_share = [rank](std::uint32_t server) { return server == rank; };
  client.start_limit = std::chrono::seconds(60);
  const auto store = must(kv::open_client(
      std::move(client), std::make_unique<FixedControl>(std::move(servers), control, rank)));
  StoreExchange exchange(options, list, *store, "tensor", options.device_of(rank));
  try {
    take_part(control, rank, exchange);
  } catch (...) {
    (void)store->wait_all(5);  // operations under way may still write to the exchange
    throw;
  }
}

}  // namespace

Contender start_store(const KvOptions& options, const TensorList& list) {
  Contender store("kvstore", options, list);
  const std::string secret = fresh_secret();
  store.children.fork("server", options.servers,
                      [&](std::uint32_t s) { serve(store.control, s, options, secret); });
  store.children.fork("worker", options.workers,
                      [&](std::uint32_t w) { work(store.control, w, options, list, secret); });
  return store;
}

}  // namespace dt::bench
