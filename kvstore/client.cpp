#include "kvstore/client.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

#include "core/layout.h"
#include "io/log.h"
#include "io/within.h"
#include "kvstore/dtkv.h"
#include "kvstore/environment.h"
#include "kvstore/handshake.h"
#include "kvstore/reduce.h"
#include "kvstore/tcp.h"

namespace dt::kv {

namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

/// Bytes queued on a connection beyond which the next request waits its turn by priority.
constexpr std::size_t kWindow = std::size_t{2} << 20;
constexpr Duration kDialLimit = 5s;
constexpr Duration kFirstRetry = 50ms;
constexpr Duration kLongestRetry = 1s;
constexpr Duration kBeatEvery = 500ms;

tl::unexpected<StoreError> store_error(int code, std::string message) {
  return tl::unexpected(StoreError{code, std::move(message)});
}

double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

/// What became of a request.
struct Outcome {
  std::optional<StoreError> error;
  data::Header header;
  std::string text;  ///< The answer's payload, unless it went to Request::into.
};

struct Request {
  data::Header header;
  const void* from = nullptr;  ///< header.payload bytes, the caller's or `keep`'s.
  std::shared_ptr<const std::string> keep;
  void* into = nullptr;  ///< Where a kValue goes.
  std::size_t into_bytes = 0;
  std::function<void(Outcome)> done;  ///< Called once, on the I/O thread.
};

/// One server loop's connection. I/O thread.
struct LoopLink {
  std::uint32_t server = 0;
  std::uint32_t loop = 0;
  ServerAddress address;
  std::shared_ptr<TcpLink> link;  ///< Null while it is not connected.
  bool was_connected = false;
  std::map<std::uint64_t, Request> sent;  ///< Unanswered, by request number = order of sending.
  std::map<std::pair<std::int64_t, std::uint64_t>, Request> ready;  ///< (-priority, order)
  std::deque<Request> last;  ///< kFinish: after every contribution submitted before.
  std::size_t contributions_unsent = 0;
  std::uint64_t phase = 0;
};

/// A chunk's place and rounds. I/O thread, but for creation.
struct ChunkState {
  KeyId key;
  std::uint32_t index = 0;
  ChunkPlace place;
  LoopLink* owner = nullptr;
  Round next{1};
  bool busy = false;
  std::deque<Request> waiting;
};

struct Pending {
  std::size_t left = 0;
  std::optional<StoreError> error;
};

bool contributes(data::Type type) {
  return type == data::Type::kPush || type == data::Type::kPushPull;
}

class Client final : public Store, private JobListener {
 public:
  Client(ClientOptions options, std::unique_ptr<JobLink> job)
      : options_(std::move(options)),
        group_(context_.get_executor()),
        job_(std::move(job)),
        generation_(options_.newcomer ? 0 : 1),
        released_(!options_.newcomer),
        rank_(options_.rank),
        num_workers_(options_.num_workers),
        lead_(!options_.newcomer && options_.rank == Rank(0)) {}

  ~Client() override;

  Status open();

  const std::string& type() const override { return options_.type; }
  View view() const override {
    View view;
    view.generation = Generation(generation_);
    view.rank = rank_;
    view.num_workers = num_workers_;
    view.epoch = epoch_;
    return view;
  }
  WorkerId worker() const override { return options_.worker; }
  bool is_newcomer() const override { return options_.newcomer; }
  bool is_lead() const override { return lead_; }

  Status init(const std::vector<std::string>& keys, const std::vector<Array>& values,
              std::uint8_t flags) override;
  StoreResult<Handle> push(const std::vector<std::string>& keys, const std::vector<Array>& values,
                           const PushOptions& options) override {
    return submit(data::Type::kPush, keys, &values, nullptr, options);
  }
  StoreResult<Handle> pull(const std::vector<std::string>& keys, const std::vector<Array>& out,
                           int priority) override {
    PushOptions options;
    options.priority = priority;
    return submit(data::Type::kPull, keys, nullptr, &out, options);
  }
  StoreResult<Handle> pushpull(const std::vector<std::string>& keys,
                               const std::vector<Array>& values, const std::vector<Array>& out,
                               const PushOptions& options) override {
    return submit(data::Type::kPushPull, keys, &values, &out, options);
  }
  Status wait(Handle handle, double timeout_s) override;
  Status wait_all(double timeout_s) override;
  Status set_optimizer(const std::string& spec) override;
  Status barrier() override;
  Status finish_epoch() override;
  StoreResult<View> epoch_boundary(Epoch epoch) override;
  Status progress(Epoch epoch, std::uint64_t step) override;

 private:
  struct Key {
    KeyId id;
    data::KeySpec spec;
  };

  // The job link's thread or any other.
  void on_servers(Servers servers) override;
  void on_release(Release release) override;
  void on_shrunk(Shrunk shrunk) override;
  void on_lost(Error error) override;

  // I/O thread.
  io::awaitable<void> serve_job();
  io::awaitable<void> run_loop(LoopLink* loop);
  io::awaitable<void> write(std::shared_ptr<TcpLink> link);
  io::awaitable<void> beat();
  io::awaitable<Result<std::shared_ptr<TcpLink>>> dial(LoopLink* loop);
  io::awaitable<Result<TcpSocket>> connect(ServerAddress address);
  io::awaitable<Result<std::shared_ptr<TcpLink>>> prove(std::shared_ptr<TcpLink> link,
                                                        LoopLink* loop);
  io::awaitable<Error> receive(LoopLink* loop, std::shared_ptr<TcpLink> link);
  void learn_servers(const Servers& servers);
  void add_loops(std::uint32_t server, std::uint32_t loops);
  void note(LoopLink* loop, std::string trouble);
  void pump(LoopLink* loop);
  void send(LoopLink* loop, const Request& request);
  void enqueue(LoopLink* loop, Request request);
  void submit_chunk(ChunkState* chunk, Request request);
  void start_chunk(ChunkState* chunk, Request request);
  void break_store(StoreError error);
  void shut_down();

  // The caller's thread.
  StoreResult<Handle> submit(data::Type type, const std::vector<std::string>& keys,
                             const std::vector<Array>* values, const std::vector<Array>* out,
                             const PushOptions& options);
  StoreResult<Outcome> ask(LoopLink* loop, Request request, Duration limit);
  Status ask_all(const Request& request, Duration limit,
                 const std::function<void(LoopLink*, const Outcome&)>& each);
  Status init_chunks(const std::vector<std::string>& keys, const std::vector<Array>& values);
  Status learn_keys(const data::KeyTable& table);
  Status sync_rounds();
  void finish_part(Handle handle, std::optional<StoreError> error);
  StoreError closed_error();

  ClientOptions options_;
  io::asio::io_context context_{1};
  io::TaskGroup group_;
  std::unique_ptr<JobLink> job_;
  std::thread thread_;

  // I/O thread.
  std::vector<std::vector<std::unique_ptr<LoopLink>>> loops_;  ///< [server][loop]
  std::uint64_t next_request_ = 1;
  std::uint64_t next_order_ = 1;
  bool closing_ = false;

  // The caller's thread; loops_ and chunks_ are complete before it hands anything over.
  std::optional<Layout> layout_;
  std::vector<data::KeySpec> table_;  ///< By KeyId.
  std::unordered_map<std::string, Key> keys_;
  std::vector<std::vector<std::unique_ptr<ChunkState>>> chunks_;  ///< [key][chunk]
  Handle next_handle_ = 1;
  Round barrier_{1};
  bool epoch_finished_ = false;
  Epoch epoch_;
  SteadyClock::time_point last_progress_{};

  std::atomic<std::uint64_t> generation_;
  bool released_;  ///< A member of some view.
  Rank rank_;
  std::uint32_t num_workers_;
  std::atomic<bool> lead_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_:
  std::unordered_map<Handle, Pending> pending_;
  std::optional<Servers> servers_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> missing_;  ///< Not connected: why.
  bool all_known_ = false;                                                  ///< Every loop exists.
  std::optional<StoreError> broken_;
  std::optional<Error> job_lost_;
  bool leave_ = false;
  std::optional<Arrive> arriving_;
  std::optional<Release> release_;
  std::optional<Epoch> last_release_;
};

// ---------------------------------------------------------------- opening and closing

Status Client::open() {
  group_.spawn(serve_job());
  group_.spawn(beat());
  thread_ = std::thread([this] {
    context_.run();
    DT_CHECK(closing_, "the kvstore's I/O thread ended by itself");
  });
  const auto deadline = SteadyClock::now() + options_.start_limit;
  auto report = SteadyClock::now() + options_.report_every;
  std::unique_lock lock(mutex_);
  for (;;) {
    if (broken_) return tl::unexpected(*broken_);
    if (job_lost_) return store_error(DTKV_UNAVAILABLE, job_lost_->message);
    if (all_known_ && missing_.empty()) return {};
    const auto now = SteadyClock::now();
    std::string waits = "the supervisor to say where the servers are";
    if (servers_ && servers_->servers.empty())
      return store_error(
          DTKV_INVALID,
          fmt::format("kvstore {} needs servers, and this job has none (-s 0)", options_.type));
    if (servers_ && !missing_.empty()) waits = missing_.begin()->second;
    if (now >= deadline)
      return store_error(DTKV_TIMEOUT,
                         fmt::format("worker {}: after {:.0f} s still waiting for {}",
                                     options_.worker, seconds(options_.start_limit), waits));
    if (now >= report) {
      report = now + options_.report_every;
      io::FdLog(2).info("worker {} waits for {}", options_.worker, waits);
    }
    changed_.wait_until(lock, std::min(deadline, report));
  }
}

Client::~Client() {
  if (!thread_.joinable()) return;
  (void)wait_all(seconds(options_.close_limit));
  io::asio::post(context_, [this] { shut_down(); });
  thread_.join();
}

void Client::shut_down() {
  closing_ = true;
  break_store({DTKV_UNAVAILABLE, "the kvstore was closed"});
  for (auto& server : loops_)
    for (auto& loop : server)
      if (loop->link) loop->link->close();
  group_.cancel();
}

io::awaitable<void> Client::serve_job() {
  OpenedKvStore opened;
  opened.type = options_.type;
  job_->opened(opened);
  co_await job_->run(group_, *this);
}

StoreError Client::closed_error() { return {DTKV_UNAVAILABLE, "the kvstore was closed"}; }

void Client::break_store(StoreError error) {
  {
    std::lock_guard lock(mutex_);
    if (!broken_) broken_ = error;
  }
  changed_.notify_all();
  auto fail_all = [&error](std::vector<Request> requests) {
    for (auto& request : requests) {
      Outcome outcome;
      outcome.error = error;
      request.done(std::move(outcome));
    }
  };
  std::vector<Request> all;
  for (auto& server : loops_) {
    for (auto& loop : server) {
      for (auto& [order, request] : loop->sent) all.push_back(std::move(request));
      for (auto& [order, request] : loop->ready) all.push_back(std::move(request));
      for (auto& request : loop->last) all.push_back(std::move(request));
      loop->sent.clear();
      loop->ready.clear();
      loop->last.clear();
    }
  }
  fail_all(std::move(all));
}

// ---------------------------------------------------------------- what the supervisor says

void Client::on_servers(Servers servers) {
  io::asio::post(context_, [this, servers = std::move(servers)] { learn_servers(servers); });
}

void Client::learn_servers(const Servers& servers) {
  {
    std::lock_guard lock(mutex_);
    if (servers_) return;
    servers_ = servers;
    for (std::uint32_t s = 0; s < servers.servers.size(); ++s) missing_[{s, 0}] = "";
  }
  if (closing_) return;
  loops_.resize(servers.servers.size());
  for (std::uint32_t s = 0; s < servers.servers.size(); ++s) add_loops(s, 1);
  changed_.notify_all();
}

void Client::add_loops(std::uint32_t server, std::uint32_t loops) {
  auto& have = loops_[server];
  while (have.size() < loops) {
    auto loop = std::make_unique<LoopLink>();
    loop->server = server;
    loop->loop = static_cast<std::uint32_t>(have.size());
    loop->address = servers_->servers[server];
    note(loop.get(), "connecting");
    group_.spawn(run_loop(loop.get()));
    have.push_back(std::move(loop));
  }
}

/// What is wrong with a connection; empty: nothing.
void Client::note(LoopLink* loop, std::string trouble) {
  std::lock_guard lock(mutex_);
  const std::pair at(loop->server, loop->loop);
  if (trouble.empty())
    missing_.erase(at);
  else
    missing_[at] = fmt::format("server {} at {} port {}: {}", loop->address.server,
                               loop->address.address, loop->address.port, trouble);
  all_known_ = std::all_of(loops_.begin(), loops_.end(), [](const auto& server) {
    return !server.empty() && server.front()->was_connected;
  });
  changed_.notify_all();
}

void Client::on_release(Release release) {
  {
    std::lock_guard lock(mutex_);
    if (release.verdict == Verdict::kLeave) {
      leave_ = true;
    } else if (!arriving_ || release_) {
      return;  // a repetition of an answer already taken
    } else if (!arriving_->join && last_release_ && release.epoch <= *last_release_ &&
               release.epoch < arriving_->epoch) {
      return;
    } else {
      release_ = release;
    }
  }
  changed_.notify_all();
}

void Client::on_shrunk(Shrunk shrunk) {
  auto present = generation_.load();
  while (present < shrunk.generation.value &&
         !generation_.compare_exchange_weak(present, shrunk.generation.value)) {
  }
  if (present <= shrunk.generation.value) lead_ = shrunk.lead == options_.worker;
}

void Client::on_lost(Error error) {
  {
    std::lock_guard lock(mutex_);
    job_lost_ = std::move(error);
  }
  changed_.notify_all();
}

// ---------------------------------------------------------------- connections

io::awaitable<Result<TcpSocket>> Client::connect(ServerAddress address) {
  boost::system::error_code bad;
  const auto literal = io::asio::ip::make_address(address.address, bad);
  if (bad) co_return fail(ErrorKind::kInvalid, "'{}' is not a literal address", address.address);
  TcpSocket socket(context_);
  const io::asio::ip::tcp::endpoint at(literal, address.port);
  auto [ec] = co_await socket.async_connect(at, io::tok);
  if (ec) co_return tl::unexpected(io::asio_error(ec, "connect"));
  co_return std::move(socket);
}

io::awaitable<Result<std::shared_ptr<TcpLink>>> Client::prove(std::shared_ptr<TcpLink> link,
                                                              LoopLink* loop) {
  auto frame = co_await link->read_frame(data::kMaxHandshakeFrame);
  if (!frame) co_return tl::unexpected(frame.error());
  auto challenge = wire::parse<data::Challenge>(frame->body);
  if (frame->type != data::Challenge::kType || !challenge)
    co_return fail(ErrorKind::kProtocol, "something that is not a kvstore server answers there");
  if (challenge->version != data::kVersion)
    co_return fail(ErrorKind::kProtocol, "the server speaks version {} of the protocol, not {}",
                   challenge->version, data::kVersion);
  Transcript transcript;
  transcript.server_nonce = challenge->nonce;
  transcript.client_nonce = fresh_nonce();
  transcript.server = loop->address.server;
  transcript.worker = options_.worker;
  transcript.loop = loop->loop;
  data::ClientProof proof;
  proof.server = transcript.server;
  proof.worker = transcript.worker;
  proof.loop = transcript.loop;
  proof.nonce = transcript.client_nonce;
  proof.mac = client_mac(options_.secret, transcript);
  link->send(wire::frame(proof));
  auto sent = co_await link->flush();
  if (!sent) co_return tl::unexpected(sent.error());
  frame = co_await link->read_frame(data::kMaxHandshakeFrame);
  if (!frame)
    co_return fail(ErrorKind::kDenied, "it refused us (another job's secret?): {}",
                   frame.error().message);
  const auto answer = wire::parse<data::ServerProof>(frame->body);
  const bool good = frame->type == data::ServerProof::kType && answer &&
                    same_mac(answer->mac, server_mac(options_.secret, transcript, answer->loops));
  if (!good || answer->loops == 0 || answer->loops > 4096)
    co_return fail(ErrorKind::kDenied, "it does not know this job's secret");
  if (!loop->was_connected && loop->loop == 0) {
    loop->was_connected = true;
    add_loops(loop->server, answer->loops);
  }
  co_return std::move(link);
}

io::awaitable<Result<std::shared_ptr<TcpLink>>> Client::dial(LoopLink* loop) {
  auto connecting = connect(loop->address);
  auto socket = co_await io::within(kDialLimit, std::move(connecting), "connect");
  if (!socket) co_return tl::unexpected(socket.error());
  tune(*socket);
  auto link = std::make_shared<TcpLink>(std::move(*socket));
  auto proving = prove(link, loop);
  co_return co_await io::within(kDialLimit, std::move(proving), "handshake");
}

io::awaitable<void> Client::write(std::shared_ptr<TcpLink> link) { co_await link->write_loop(); }

io::awaitable<void> Client::run_loop(LoopLink* loop) {
  auto alive = SteadyClock::now();
  Duration pause = kFirstRetry;
  bool connected_once = false;
  for (;;) {
    auto dialled = co_await dial(loop);
    std::string trouble;
    if (dialled) {
      connected_once = true;
      pause = kFirstRetry;
      auto link = *dialled;
      loop->link = link;
      link->on_written([this, loop] { pump(loop); });
      group_.spawn(write(link));
      for (const auto& [number, request] : loop->sent) send(loop, request);
      note(loop, "");
      pump(loop);
      const Error error = co_await receive(loop, link);
      loop->link.reset();
      link->on_written({});
      link->close();
      if (closing_) co_return;
      alive = SteadyClock::now();
      trouble = error.message;
    } else {
      if (closing_) co_return;
      trouble = dialled.error().message;
    }
    note(loop, trouble);
    const auto gone = SteadyClock::now() - alive;
    if (connected_once && gone > options_.lost_limit) {
      break_store({DTKV_UNAVAILABLE,
                   fmt::format("server {} at {} port {} cannot be reached for {:.0f} s: {}",
                               loop->address.server, loop->address.address, loop->address.port,
                               seconds(gone), trouble)});
      co_return;
    }
    co_await io::sleep_for(pause);
    pause = std::min(pause * 2, kLongestRetry);
  }
}

io::awaitable<Error> Client::receive(LoopLink* loop, std::shared_ptr<TcpLink> link) {
  for (;;) {
    std::array<char, data::kHeaderBytes> head{};
    auto got = co_await link->read(head.data(), head.size());
    if (!got) co_return got.error();
    const auto header = data::decode(std::string_view(head.data(), head.size()));
    if (!header) co_return header.error();
    // A second answer to a request that was sent twice finds nobody: its payload is skipped.
    auto node = loop->sent.extract(header->request);
    Outcome outcome;
    outcome.header = *header;
    const bool direct = node && header->type == data::Type::kValue && node.mapped().into;
    if (direct && header->payload != node.mapped().into_bytes) {
      loop->sent.insert(std::move(node));
      co_return Error{ErrorKind::kProtocol, "an answer of the wrong size"};
    }
    if (!direct) outcome.text.resize(header->payload);
    void* into = direct ? node.mapped().into : outcome.text.data();
    got = co_await link->read(into, header->payload);
    if (!got) {
      if (node && closing_) {
        outcome.error = closed_error();
        node.mapped().done(std::move(outcome));
      } else if (node) {
        loop->sent.insert(std::move(node));
      }
      co_return got.error();
    }
    if (!node) continue;
    if (header->type == data::Type::kFailed) {
      const auto failure = wire::parse<data::Failure>(outcome.text);
      outcome.error = failure ? StoreError{static_cast<int>(failure->code), failure->message}
                              : StoreError{DTKV_INTERNAL, "the server's error is malformed"};
    }
    node.mapped().done(std::move(outcome));
  }
}

io::awaitable<void> Client::beat() {
  for (;;) {
    co_await io::sleep_for(kBeatEvery);
    for (auto& server : loops_) {
      if (server.empty()) continue;
      auto& first = *server.front();
      if (!first.link || first.link->queued_bytes() > 0) continue;
      data::Header header;
      header.type = data::Type::kBeat;
      header.worker = options_.worker;
      first.link->send(data::encode(header));
    }
  }
}

void Client::send(LoopLink* loop, const Request& request) {
  loop->link->send(data::encode(request.header), request.from, request.header.payload,
                   request.keep);
}

void Client::pump(LoopLink* loop) {
  while (loop->link && loop->link->is_open() && loop->link->queued_bytes() < kWindow) {
    Request request;
    if (!loop->ready.empty()) {
      request = std::move(loop->ready.extract(loop->ready.begin()).mapped());
    } else if (!loop->last.empty() && loop->contributions_unsent == 0) {
      request = std::move(loop->last.front());
      loop->last.pop_front();
    } else {
      return;
    }
    if (contributes(request.header.type)) --loop->contributions_unsent;
    request.header.request = next_request_++;
    request.header.generation = Generation(generation_);
    send(loop, request);
    loop->sent.emplace(request.header.request, std::move(request));
  }
}

void Client::enqueue(LoopLink* loop, Request request) {
  request.header.worker = options_.worker;
  {
    std::unique_lock lock(mutex_);
    if (broken_) {
      Outcome outcome;
      outcome.error = *broken_;
      lock.unlock();
      return request.done(std::move(outcome));
    }
  }
  if (request.header.type == data::Type::kFinish)
    loop->last.push_back(std::move(request));
  else
    loop->ready.emplace(
        std::pair(-static_cast<std::int64_t>(request.header.priority), next_order_++),
        std::move(request));
  pump(loop);
}

// ---------------------------------------------------------------- chunks

void Client::submit_chunk(ChunkState* chunk, Request request) {
  if (contributes(request.header.type)) ++chunk->owner->contributions_unsent;
  if (chunk->busy)
    chunk->waiting.push_back(std::move(request));
  else
    start_chunk(chunk, std::move(request));
}

void Client::start_chunk(ChunkState* chunk, Request request) {
  chunk->busy = true;
  const bool push = contributes(request.header.type);
  request.header.round = chunk->next;
  auto done = [this, chunk, push, finished = std::move(request.done)](Outcome outcome) {
    // A round that failed because its contributors disagree is over as well.
    if (push && (!outcome.error || outcome.error->code == DTKV_MISMATCH))
      chunk->next = outcome.header.round.next();
    finished(std::move(outcome));
    chunk->busy = false;
    if (chunk->waiting.empty()) return;
    Request next = std::move(chunk->waiting.front());
    chunk->waiting.pop_front();
    start_chunk(chunk, std::move(next));
  };
  request.done = std::move(done);
  enqueue(chunk->owner, std::move(request));
}

StoreResult<Handle> Client::submit(data::Type type, const std::vector<std::string>& keys,
                                   const std::vector<Array>* values, const std::vector<Array>* out,
                                   const PushOptions& options) {
  if (contributes(type) && !released_)
    return store_error(DTKV_INVALID,
                       fmt::format("worker {} is a newcomer: it contributes after its first "
                                   "epoch_boundary, not before",
                                   options_.worker));
  if (contributes(type) && epoch_finished_)
    return store_error(DTKV_INVALID,
                       "the epoch was finished: call epoch_boundary before the next push");
  std::vector<std::pair<ChunkState*, Request>> requests;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto known = keys_.find(keys[i]);
    if (known == keys_.end())
      return store_error(DTKV_INVALID, fmt::format("key '{}' was not initialised", keys[i]));
    const auto& spec = known->second.spec;
    for (const auto* arrays : {values, out}) {
      if (!arrays) continue;
      const std::string wrong = array_mismatch(spec, (*arrays)[i]);
      if (!wrong.empty()) return store_error(DTKV_MISMATCH, wrong);
    }
    const std::size_t width = data::element_bytes(spec.dtype);
    for (auto& chunk : chunks_[known->second.id.value]) {
      const std::size_t offset = chunk->place.first * width;
      const std::size_t bytes = chunk->place.count * width;
      Request request;
      request.header.type = type;
      request.header.dtype = spec.dtype;
      request.header.reduce = options.reduce;
      request.header.flags = options_.async ? data::kAsync : 0;
      request.header.priority = options.priority;
      request.header.key = chunk->key;
      request.header.chunk = chunk->index;
      request.header.step = options.step;
      request.header.samples = options.samples;
      request.header.learning_rate = options.learning_rate;
      if (values) {
        request.from = static_cast<const std::byte*>((*values)[i].data) + offset;
        request.header.payload = static_cast<std::uint32_t>(bytes);
      }
      if (out) {
        request.into = static_cast<std::byte*>((*out)[i].data) + offset;
        request.into_bytes = bytes;
      }
      requests.emplace_back(chunk.get(), std::move(request));
    }
  }
  const Handle handle = next_handle_++;
  {
    std::lock_guard lock(mutex_);
    pending_[handle].left = requests.size() + 1;
  }
  for (auto& [chunk, request] : requests) {
    // The table's strings may move when keys are added; the map's do not.
    const auto& name = keys_.at(table_[chunk->key.value].name).spec.name;
    request.done = [this, handle, &name](Outcome outcome) {
      if (outcome.error)
        outcome.error->message = fmt::format("key '{}': {}", name, outcome.error->message);
      finish_part(handle, std::move(outcome.error));
    };
  }
  auto hand_over = [this, requests = std::move(requests)]() mutable {
    for (auto& [chunk, request] : requests) submit_chunk(chunk, std::move(request));
  };
  io::asio::post(context_, std::move(hand_over));
  finish_part(handle, std::nullopt);
  return handle;
}

void Client::finish_part(Handle handle, std::optional<StoreError> error) {
  {
    std::lock_guard lock(mutex_);
    auto& pending = pending_[handle];
    if (error && !pending.error) pending.error = std::move(error);
    if (--pending.left > 0) return;
  }
  changed_.notify_all();
}

Status Client::wait(Handle handle, double timeout_s) {
  std::unique_lock lock(mutex_);
  const auto it = pending_.find(handle);
  if (it == pending_.end()) return {};  // waited for before
  const auto is_done = [&] { return pending_[handle].left == 0; };
  if (timeout_s <= 0) {
    changed_.wait(lock, is_done);
  } else if (!changed_.wait_for(lock, std::chrono::duration<double>(timeout_s), is_done)) {
    return store_error(DTKV_TIMEOUT,
                       fmt::format("not done within {:.1f} s: other workers' contributions or a "
                                   "server's answer are missing",
                                   timeout_s));
  }
  auto node = pending_.extract(handle);
  if (node.mapped().error) return tl::unexpected(*node.mapped().error);
  return {};
}

Status Client::wait_all(double timeout_s) {
  const auto deadline = SteadyClock::now() + std::chrono::duration<double>(timeout_s);
  std::vector<Handle> all;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [handle, pending] : pending_) all.push_back(handle);
  }
  std::sort(all.begin(), all.end());
  Status result;
  for (const Handle handle : all) {
    double left = 0;
    if (timeout_s > 0)
      left = std::max(1e-3, std::chrono::duration<double>(deadline - SteadyClock::now()).count());
    Status done = wait(handle, left);
    if (!done && result) result = std::move(done);
  }
  return result;
}

// ---------------------------------------------------------------- keys

StoreResult<Outcome> Client::ask(LoopLink* loop, Request request, Duration limit) {
  auto promise = std::make_shared<std::promise<Outcome>>();
  auto future = promise->get_future();
  request.done = [promise](Outcome outcome) { promise->set_value(std::move(outcome)); };
  auto hand_over = [this, loop, request = std::move(request)]() mutable {
    enqueue(loop, std::move(request));
  };
  io::asio::post(context_, std::move(hand_over));
  if (limit > Duration::zero() && future.wait_for(limit) != std::future_status::ready)
    return store_error(DTKV_TIMEOUT, fmt::format("nothing within {:.0f} s", seconds(limit)));
  Outcome outcome = future.get();
  if (outcome.error) return tl::unexpected(*outcome.error);
  return outcome;
}

Status Client::ask_all(const Request& request, Duration limit,
                       const std::function<void(LoopLink*, const Outcome&)>& each) {
  struct Waiting {
    LoopLink* loop;
    std::future<Outcome> future;
  };
  std::vector<Waiting> all;
  const auto deadline = SteadyClock::now() + limit;
  for (auto& server : loops_) {
    for (auto& loop : server) {
      Request copy = request;
      auto promise = std::make_shared<std::promise<Outcome>>();
      all.push_back({loop.get(), promise->get_future()});
      copy.done = [promise](Outcome outcome) { promise->set_value(std::move(outcome)); };
      auto hand_over = [this, to = loop.get(), copy = std::move(copy)]() mutable {
        if (copy.header.type == data::Type::kFinish) copy.header.round = Round(to->phase);
        enqueue(to, std::move(copy));
      };
      io::asio::post(context_, std::move(hand_over));
    }
  }
  Status result;
  for (auto& waiting : all) {
    if (limit > Duration::zero() &&
        waiting.future.wait_until(deadline) != std::future_status::ready)
      return store_error(DTKV_TIMEOUT, fmt::format("server {} gave no answer within {:.0f} s",
                                                   waiting.loop->address.server, seconds(limit)));
    const Outcome outcome = waiting.future.get();
    if (outcome.error && result)
      result = tl::unexpected(*outcome.error);
    else if (!outcome.error && each)
      each(waiting.loop, outcome);
  }
  return result;
}

Status Client::init(const std::vector<std::string>& keys, const std::vector<Array>& values,
                    std::uint8_t flags) {
  data::RegisterKeys wanted;
  wanted.known = static_cast<std::uint32_t>(table_.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!is_supported(values[i].dtype))
      return store_error(DTKV_INVALID,
                         fmt::format("key '{}': float32, float64 and int64 values are supported, "
                                     "not dtype {}",
                                     keys[i], static_cast<int>(values[i].dtype)));
    wanted.keys.push_back({keys[i], values[i].count, values[i].dtype, flags});
  }
  auto text = std::make_shared<const std::string>(wire::body_of(wanted));
  if (text->size() > (std::size_t{16} << 20))
    return store_error(DTKV_INVALID, "too many keys in one init: split the list");
  Request request;
  request.header.type = data::Type::kRegister;
  request.header.payload = static_cast<std::uint32_t>(text->size());
  request.from = text->data();
  request.keep = text;
  const auto answer = ask(loops_[0][0].get(), std::move(request), options_.start_limit);
  if (!answer && answer.error().code == DTKV_TIMEOUT)
    return store_error(
        DTKV_TIMEOUT,
        fmt::format("worker {}: the worker with rank 0 has not initialised '{}' "
                    "within {:.0f} s",
                    options_.worker, keys.empty() ? "" : keys[0], seconds(options_.start_limit)));
  if (!answer) return tl::unexpected(answer.error());
  const auto table = wire::parse<data::KeyTable>(answer->text);
  if (!table) return store_error(DTKV_INTERNAL, table.error().message);
  auto learnt = learn_keys(*table);
  if (!learnt) return learnt;
  return init_chunks(keys, values);
}

Status Client::learn_keys(const data::KeyTable& table) {
  if (!layout_) {
    std::vector<std::uint32_t> loops;
    for (const auto& server : loops_) loops.push_back(static_cast<std::uint32_t>(server.size()));
    layout_.emplace(std::move(loops), options_.chunk_bytes);
  }
  if (table.from > table_.size())
    return store_error(DTKV_INTERNAL, "the server's key table has a gap");
  for (std::size_t i = table_.size() - table.from; i < table.keys.size(); ++i) {
    const auto& spec = table.keys[i];
    const KeyId id = layout_->add_key(spec.count, data::element_bytes(spec.dtype));
    table_.push_back(spec);
    keys_[spec.name] = Key{id, spec};
    auto& chunks = chunks_.emplace_back();
    for (const auto& place : layout_->chunks(id)) {
      auto chunk = std::make_unique<ChunkState>();
      chunk->key = id;
      chunk->index = static_cast<std::uint32_t>(chunks.size());
      chunk->place = place;
      chunk->owner = loops_[place.owner.server][place.owner.loop].get();
      chunks.push_back(std::move(chunk));
    }
  }
  return {};
}

Status Client::init_chunks(const std::vector<std::string>& keys, const std::vector<Array>& values) {
  std::vector<std::pair<ChunkState*, Request>> requests;
  const bool gives = lead_;
  std::vector<Request> with_values;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto& key = keys_.at(keys[i]);
    const std::size_t width = data::element_bytes(key.spec.dtype);
    for (auto& chunk : chunks_[key.id.value]) {
      Request request;
      request.header.type = data::Type::kInit;
      request.header.dtype = key.spec.dtype;
      request.header.flags = key.spec.flags;
      request.header.key = chunk->key;
      request.header.chunk = chunk->index;
      request.header.samples = chunk->place.count;
      request.from = static_cast<const std::byte*>(values[i].data) + chunk->place.first * width;
      request.header.payload = static_cast<std::uint32_t>(chunk->place.count * width);
      with_values.push_back(request);
      if (!gives) {
        request.header.payload = 0;
        request.from = nullptr;
      }
      requests.emplace_back(chunk.get(), std::move(request));
    }
  }
  const Handle handle = next_handle_++;
  {
    std::lock_guard lock(mutex_);
    pending_[handle].left = requests.size() + 1;
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    LoopLink* owner = requests[i].first->owner;
    auto finish = [this, handle](Outcome outcome) {
      finish_part(handle, std::move(outcome.error));
    };
    auto done = [this, owner, finish, again = with_values[i]](Outcome outcome) {
      if (outcome.error || outcome.header.type != data::Type::kNeedValues)
        return finish(std::move(outcome));
      // Whoever was to give the values is gone, and we are the first contributor now.
      Request request = again;
      request.done = finish;
      enqueue(owner, std::move(request));
    };
    requests[i].second.done = std::move(done);
  }
  auto hand_over = [this, requests = std::move(requests)]() mutable {
    for (auto& [chunk, request] : requests) enqueue(chunk->owner, std::move(request));
  };
  io::asio::post(context_, std::move(hand_over));
  finish_part(handle, std::nullopt);
  auto done = wait(handle, seconds(options_.start_limit));
  if (!done && done.error().code == DTKV_TIMEOUT)  // the requests still point into `values`
    break_store(done.error());
  return done;
}

Status Client::set_optimizer(const std::string& spec) {
  Request request;
  request.header.type = data::Type::kSetOptimizer;
  request.header.flags = data::kCheckOnly;
  request.header.payload = static_cast<std::uint32_t>(spec.size());
  auto text = std::make_shared<const std::string>(spec);
  request.from = text->data();
  request.keep = text;
  // First ask everywhere, so that a refusal leaves every server as it was.
  auto checked = ask_all(request, options_.start_limit, {});
  if (!checked) return checked;
  request.header.flags = 0;
  return ask_all(request, options_.start_limit, {});
}

// ---------------------------------------------------------------- epochs

Status Client::barrier() {
  if (!released_) return {};
  Request request;
  request.header.type = data::Type::kBarrier;
  request.header.round = barrier_;
  auto answer = ask(loops_[0][0].get(), std::move(request), Duration::zero());
  if (!answer) return tl::unexpected(answer.error());
  barrier_ = barrier_.next();
  return {};
}

Status Client::finish_epoch() {
  if (!released_ || epoch_finished_) return {};
  epoch_finished_ = true;
  Request request;
  request.header.type = data::Type::kFinish;
  return ask_all(request, Duration::zero(), {});
}

StoreResult<View> Client::epoch_boundary(Epoch epoch) {
  const auto leaving = [this] {
    return store_error(DTKV_LEAVE,
                       fmt::format("worker {} was removed from the job: stop training and exit 0",
                                   options_.worker));
  };
  auto finished = finish_epoch();
  if (!finished) return tl::unexpected(finished.error());
  Arrive arrive;
  arrive.epoch = epoch;
  arrive.join = !released_;
  Release release;
  {
    std::unique_lock lock(mutex_);
    if (leave_) return leaving();
    arriving_ = arrive;
    release_.reset();
    io::asio::post(context_, [this, arrive] { job_->arrive(arrive); });
    changed_.wait(lock, [this] { return release_ || leave_ || broken_ || job_lost_; });
    arriving_.reset();
    io::asio::post(context_, [this] { job_->released(); });
    if (leave_) return leaving();
    if (broken_) return tl::unexpected(*broken_);
    if (!release_) return store_error(DTKV_UNAVAILABLE, job_lost_->message);
    release = *std::exchange(release_, std::nullopt);
    last_release_ = release.epoch;
  }
  View view;
  view.generation = release.generation;
  view.rank = release.rank;
  view.num_workers = release.world_size;
  view.epoch = release.epoch;
  view.changed = !released_ || rank_ != release.rank || num_workers_ != release.world_size;
  generation_ = release.generation.value;
  rank_ = release.rank;
  num_workers_ = release.world_size;
  epoch_ = release.epoch;
  lead_ = release.rank == Rank(0);
  released_ = true;
  auto synced = sync_rounds();
  if (!synced) return tl::unexpected(synced.error());
  epoch_finished_ = false;
  return view;
}

Status Client::sync_rounds() {
  Request request;
  request.header.type = data::Type::kSync;
  std::optional<StoreError> malformed;
  auto adopt = [&](LoopLink* loop, const Outcome& outcome) {
    const auto state = wire::parse<data::SyncState>(outcome.text);
    if (!state) {
      malformed = StoreError{DTKV_INTERNAL, state.error().message};
      return;
    }
    if (loop->server == 0 && loop->loop == 0) barrier_ = state->barrier;
    std::vector<std::pair<ChunkState*, Round>> rounds;
    for (const auto& round : state->chunks) {
      if (options_.async) break;  // there a round is this worker's own count of pushes
      const bool known =
          round.key.value < chunks_.size() && round.chunk < chunks_[round.key.value].size();
      if (known) rounds.emplace_back(chunks_[round.key.value][round.chunk].get(), round.open);
    }
    auto take = [loop, phase = state->phase, rounds = std::move(rounds)] {
      loop->phase = phase;
      for (const auto& [chunk, open] : rounds) chunk->next = open;
    };
    io::asio::post(context_, std::move(take));
  };
  auto done = ask_all(request, Duration::zero(), adopt);
  if (done && malformed) return tl::unexpected(*malformed);
  return done;
}

Status Client::progress(Epoch epoch, std::uint64_t step) {
  const auto now = SteadyClock::now();
  if (now - last_progress_ < 1s) return {};
  last_progress_ = now;
  Progress progress;
  progress.epoch = epoch;
  progress.step = step;
  io::asio::post(context_, [this, progress] { job_->progress(progress); });
  return {};
}

}  // namespace

StoreResult<std::unique_ptr<Store>> open_client(ClientOptions options,
                                                std::unique_ptr<JobLink> job) {
  auto client = std::make_unique<Client>(std::move(options), std::move(job));
  auto opened = client->open();
  if (!opened) return tl::unexpected(opened.error());
  return client;
}

StoreResult<std::unique_ptr<Store>> open_client_from_environment(const std::string& type) {
  auto env = read_environment(Role::kWorker);
  if (!env)
    return store_error(DTKV_INVALID, fmt::format("kvstore {}: {}", type, env.error().message));
  if (env->num_servers == 0)
    return store_error(DTKV_INVALID,
                       fmt::format("kvstore {} needs servers, and this job has none (-s 0): start "
                                   "it with -s 1 or more, or use kvstore local",
                                   type));
  ClientOptions options;
  options.type = type;
  options.async = type == "dist_async";
  options.worker = WorkerId(env->id);
  options.rank = Rank(env->rank);
  options.num_workers = env->num_workers;
  options.newcomer = env->newcomer;
  options.secret = env->secret;
  options.start_limit = env->start_timeout;
  return open_client(std::move(options), make_agent_link(std::move(env->agent)));
}

}  // namespace dt::kv
