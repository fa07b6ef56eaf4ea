#include "kvstore/client.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "core/layout.h"
#include "io/log.h"
#include "kvstore/client_memory.h"
#include "kvstore/driver.h"
#include "kvstore/dtkv.h"
#include "kvstore/environment.h"
#include "kvstore/reduce.h"
#include "kvstore/server_link.h"

namespace dt::kv {

/// A chunk's place and rounds.
struct ChunkState {
  std::shared_ptr<const std::string> name;  ///< Of the key.
  KeyId key;
  std::uint32_t index = 0;
  ChunkPlace place;
  ServerLink* owner = nullptr;
  Round next{1};
  bool busy = false;
  std::deque<Request> waiting;
  StagingPlace staging;     ///< The caller's thread.
  GradientEncoder encoder;  ///< The loop's.
};

namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;
using Deadline = std::optional<SteadyClock::time_point>;

constexpr Duration kBeatEvery = 500ms;

tl::unexpected<StoreError> store_error(int code, std::string message) {
  return tl::unexpected(StoreError{code, std::move(message)});
}

double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

/// `limit` from now; none: as long as it takes.
Deadline after(Duration limit) {
  if (limit <= Duration::zero()) return std::nullopt;
  return SteadyClock::now() + limit;
}

struct Pending {
  std::size_t left = 0;
  std::optional<StoreError> error;
  std::vector<std::uint32_t> memories;  ///< What allocate() gave and it reads or writes.
};

bool contributes(data::Type type) {
  return type == data::Type::kPush || type == data::Type::kPushPull;
}

/// One of them at a time is on its way for a chunk.
bool is_queued(data::Type type) { return contributes(type) || type == data::Type::kPull; }

/// The chunk's bytes are read and written where they lie in shared memory; those that lie
/// elsewhere, or askew for the server's arithmetic, are copied to and from the chunk's staging. The
/// memories are those that the whole arrays lie in.
void use_shared_memory(Request& request, const ClientMemory* from, const ClientMemory* into) {
  const ChunkState& chunk = *request.chunk;
  data::SharedPlaces places;
  const auto locate = [&](const void* data, const ClientMemory* memory, std::uint32_t& number,
                          std::uint64_t& offset) {
    const bool is_there = memory && memory->shared_with.contains(chunk.place.owner) &&
                          memory->offset_of(data) % data::element_bytes(request.header.dtype) == 0;
    number = is_there ? memory->number : chunk.staging.memory;
    offset = is_there ? memory->offset_of(data) : chunk.staging.offset;
    return !is_there;
  };
  bool copies_in = false;
  bool copies_out = false;
  if (request.from) copies_in = locate(request.from, from, places.in, places.in_offset);
  if (request.into) copies_out = locate(request.into, into, places.out, places.out_offset);
  if (!copies_in) request.from = nullptr;
  if (!copies_out) request.into = nullptr;
  if (copies_in || copies_out) request.staging = chunk.staging.at;
  request.header.flags |= data::kShared;
  request.header.payload = data::kSharedPlacesBytes;
  request.places = data::encode(places);
}

/// Says that a memory is to be forgotten.
Request unshare(const ClientMemory& memory) {
  Request request;
  request.header.type = data::Type::kUnshare;
  request.header.chunk = memory.number;
  return request;
}

class Client final : public Store, private JobListener, private ServerLink::Owner {
 public:
  Client(ClientOptions options, std::unique_ptr<JobLink> job)
      : options_(std::move(options)),
        group_(context_.get_executor()),
        driver_(context_),
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
                           const PullOptions& how) override {
    PushOptions options;
    options.priority = how.priority;
    options.is_awaited = how.is_awaited;
    return submit(data::Type::kPull, keys, nullptr, &out, options);
  }
  StoreResult<Handle> pushpull(const std::vector<std::string>& keys,
                               const std::vector<Array>& values, const std::vector<Array>& out,
                               const PushOptions& options) override {
    return submit(data::Type::kPushPull, keys, &values, &out, options);
  }
  StoreResult<void*> allocate(std::size_t bytes) override;
  Status release(void* memory) override;
  Status wait(Handle handle, double timeout_s) override;
  Status wait_all(double timeout_s) override;
  Status set_optimizer(const std::string& spec) override;
  Status set_gradient_compression(const std::string& spec) override {
    const auto parsed = parse_compression(spec);
    if (!parsed) return store_error(DTKV_INVALID, parsed.error().message);
    compression_ = *parsed;
    return {};
  }
  Status barrier() override;
  Status finish_epoch() override;
  StoreResult<View> epoch_boundary(Epoch epoch) override;
  Status progress(Epoch epoch, std::uint64_t step) override;

 private:
  struct Key {
    KeyId id;
    data::KeySpec spec;
  };
  using Questions = std::vector<std::shared_ptr<Question>>;
  // The job link's thread or any other.
  void on_servers(Servers servers) override;
  void on_release(Release release) override;
  void on_shrunk(Shrunk shrunk) override;
  void on_lost(Error error) override;

  // On the loop.
  void on_answer(ServerLink& link, Request request, Outcome outcome) override;
  void on_idle() override;
  void on_loops(ServerLink& link, std::uint32_t loops) override { add_loops(link.server(), loops); }
  void on_trouble(ServerLink& link, const std::string& trouble) override;
  void on_lost(ServerLink& link, const std::string& why) override;
  Generation generation() const override { return Generation(generation_); }
  io::awaitable<void> serve_job();
  io::awaitable<void> serve(ServerLink* link);
  io::awaitable<void> beat();
  void learn_servers(const Servers& servers);
  void add_loops(std::uint32_t server, std::uint32_t loops);
  void submit_chunk(Request request);
  void start_chunk(Request request);
  void chunk_answered(Request& request, const Outcome& outcome);
  void send(ServerLink& link, Request request);
  void finish_part(Handle handle, std::optional<StoreError> error);
  void break_store(StoreError error);
  void shut_down();

  // The caller's thread.
  StoreResult<Handle> submit(data::Type type, const std::vector<std::string>& keys,
                             const std::vector<Array>* values, const std::vector<Array>* out,
                             const PushOptions& options);
  StoreResult<Handle> hand_over(std::vector<Request> requests,
                                std::vector<std::uint32_t> memories = {});
  template <class Done>
  bool wait_for(Done done, Deadline deadline);
  std::vector<ServerLink*> all_links();
  StoreResult<Questions> tell(const std::vector<ServerLink*>& links, const Request& request);
  /// Asks each of the links. kTimeout: not everything came within the limit.
  StoreResult<Questions> ask(const std::vector<ServerLink*>& links, const Request& request,
                             Duration limit);
  /// The same; an error among the answers is the result.
  StoreResult<Questions> ask_all(const Request& request, Duration limit);
  StoreResult<Questions> ask_first(const Request& request, Duration limit);
  Status share(ClientMemory& memory);
  Status prepare_staging(std::size_t first_key);
  [[nodiscard]] std::size_t bytes_of(const ChunkState& chunk) const;
  void compress(Request& request, const data::KeySpec& key) const;
  Status init_chunks(const std::vector<std::string>& keys, const std::vector<Array>& values);
  Status learn_keys(const data::KeyTable& table);
  Status sync_rounds();

  ClientOptions options_;
  io::asio::io_context context_{1};
  io::TaskGroup group_;
  Driver driver_;
  std::unique_ptr<JobLink> job_;

  // On the loop.
  std::vector<std::vector<std::unique_ptr<ServerLink>>> links_;  ///< [server][loop]
  std::vector<ServerLink*> to_push_out_;  ///< Have requests that were not sent.
  bool closing_ = false;

  // The caller's thread; links_ and chunks_ are complete before it hands anything over.
  std::optional<Layout> layout_;
  std::vector<data::KeySpec> table_;  ///< By KeyId.
  std::unordered_map<std::string, Key> keys_;
  std::vector<std::vector<std::unique_ptr<ChunkState>>> chunks_;  ///< [key][chunk]
  ClientMemories memories_;                                       ///< allocate()'s.
  Staging staging_;
  std::uint32_t next_memory_ = 0;
  /// Whom to tell of memory; none: everybody. A server that saw none sees no later one either.
  std::optional<std::vector<ServerLink*>> sharers_;
  Handle next_handle_ = 1;
  Compression compression_;
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
  // Under mutex_:
  std::unordered_map<Handle, Pending> pending_;
  std::optional<Servers> servers_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> missing_;  ///< Not connected: why.
  std::optional<StoreError> broken_;
  std::optional<Error> job_lost_;
  bool leave_ = false;
  std::optional<Arrive> arriving_;
  std::optional<Release> release_;
  std::optional<Epoch> last_release_;
};

// ---------------------------------------------------------------- opening and closing

template <class Done>
bool Client::wait_for(Done done, Deadline deadline) {
  return driver_.run_until(std::move(done), deadline, options_.busy_poll);
}

Status Client::open() {
  group_.spawn(serve_job());
  group_.spawn(beat());
  driver_.start();
  const auto deadline = SteadyClock::now() + options_.start_limit;
  for (;;) {
    const auto report = SteadyClock::now() + options_.report_every;
    auto settled = [this] {
      std::lock_guard lock(mutex_);
      return broken_ || job_lost_ || (servers_ && servers_->servers.empty()) ||
             (servers_ && missing_.empty());
    };
    const bool is_settled = wait_for(settled, std::min(deadline, report));
    std::lock_guard lock(mutex_);
    if (broken_) return tl::unexpected(*broken_);
    if (job_lost_) return store_error(DTKV_UNAVAILABLE, job_lost_->message);
    if (servers_ && servers_->servers.empty())
      return store_error(
          DTKV_INVALID,
          fmt::format("kvstore {} needs servers, and this job has none (-s 0)", options_.type));
    if (is_settled) return {};
    std::string waits = "the supervisor to say where the servers are";
    if (servers_ && !missing_.empty()) waits = missing_.begin()->second;
    if (SteadyClock::now() >= deadline)
      return store_error(DTKV_TIMEOUT,
                         fmt::format("worker {}: after {:.0f} s still waiting for {}",
                                     options_.worker, seconds(options_.start_limit), waits));
    io::FdLog(2).info("worker {} waits for {}", options_.worker, waits);
  }
}

Client::~Client() {
  if (!driver_.is_started()) return;
  (void)wait_all(seconds(options_.close_limit));
  io::asio::post(context_, [this] { shut_down(); });
  driver_.finish();
}

void Client::shut_down() {
  closing_ = true;
  break_store({DTKV_UNAVAILABLE, "the kvstore was closed"});
  group_.cancel();
}

io::awaitable<void> Client::serve_job() {
  OpenedKvStore opened;
  opened.type = options_.type;
  job_->opened(opened);
  co_await job_->run(group_, *this);
}

void Client::break_store(StoreError error) {
  {
    std::lock_guard lock(mutex_);
    if (!broken_) broken_ = error;
  }
  std::vector<Request> all;
  for (auto& server : links_)
    for (auto& link : server)
      for (auto& request : link->close()) all.push_back(std::move(request));
  for (auto& request : all) {
    if (request.question) {
      request.question->outcome.error = error;
      request.question->is_answered = true;
      continue;
    }
    finish_part(request.handle, error);
    for (const auto& waiting : std::exchange(request.chunk->waiting, {}))
      finish_part(waiting.handle, error);
  }
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
    for (std::uint32_t s = 0; s < servers.servers.size(); ++s)
      missing_[{s, 0}] = "the servers";  // until their links say more
  }
  if (closing_) return;
  links_.resize(servers.servers.size());
  for (std::uint32_t s = 0; s < servers.servers.size(); ++s) add_loops(s, 1);
}

void Client::add_loops(std::uint32_t server, std::uint32_t loops) {
  auto& have = links_[server];
  while (have.size() < loops) {
    ServerLink::Options options;
    options.address = servers_->servers[server];
    options.server = server;
    options.loop = static_cast<std::uint32_t>(have.size());
    options.worker = options_.worker;
    options.secret = options_.secret;
    options.lost_limit = options_.lost_limit;
    ServerLink::Owner& owner = *this;
    have.push_back(std::make_unique<ServerLink>(std::move(options), owner, group_));
    on_trouble(*have.back(), "connecting");
    group_.spawn(serve(have.back().get()));
  }
}

io::awaitable<void> Client::serve(ServerLink* link) { co_await link->run(); }

void Client::on_trouble(ServerLink& link, const std::string& trouble) {
  std::lock_guard lock(mutex_);
  const std::pair at(link.server(), link.loop());
  if (trouble.empty())
    missing_.erase(at);
  else
    missing_[at] = fmt::format("server {} at {} port {}: {}", link.address().server,
                               link.address().address, link.address().port, trouble);
}

void Client::on_lost(ServerLink& link, const std::string& why) {
  break_store({DTKV_UNAVAILABLE, fmt::format("server {} at {} port {} {}", link.address().server,
                                             link.address().address, link.address().port, why)});
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
  io::asio::post(context_, [] {});  // whoever waits looks again
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
  io::asio::post(context_, [] {});
}

// ---------------------------------------------------------------- requests and answers

io::awaitable<void> Client::beat() {
  for (;;) {
    co_await io::sleep_for(kBeatEvery);
    for (auto& server : links_)
      if (!server.empty()) server.front()->beat();
  }
}

/// Queues a request; on_idle() sends what was queued.
void Client::send(ServerLink& link, Request request) {
  link.enqueue(std::move(request));
  if (to_push_out_.empty() || to_push_out_.back() != &link) to_push_out_.push_back(&link);
}

void Client::on_idle() {
  for (ServerLink* link : to_push_out_) link->push_out();
  to_push_out_.clear();
}

void Client::on_answer(ServerLink& link, Request request, Outcome outcome) {
  if (request.question) {
    request.question->outcome = std::move(outcome);
    request.question->is_answered = true;
    return;
  }
  if (outcome.header.type == data::Type::kNeedValues) {
    // Whoever was to give the values is gone, and we are the first contributor now.
    request.header.payload = static_cast<std::uint32_t>(request.header.samples *
                                                        data::element_bytes(request.header.dtype));
    return send(link, std::move(request));
  }
  if (outcome.error)
    outcome.error->message =
        fmt::format("key '{}': {}", *request.chunk->name, outcome.error->message);
  if (is_queued(request.header.type)) chunk_answered(request, outcome);
  finish_part(request.handle, std::move(outcome.error));
}

void Client::submit_chunk(Request request) {
  ChunkState& chunk = *request.chunk;
  if (contributes(request.header.type)) chunk.owner->announce_contribution();
  if (chunk.busy)
    chunk.waiting.push_back(std::move(request));
  else
    start_chunk(std::move(request));
}

void Client::start_chunk(Request request) {
  ChunkState& chunk = *request.chunk;
  chunk.busy = true;
  request.header.round = chunk.next;
  send(*chunk.owner, std::move(request));
}

void Client::chunk_answered(Request& request, const Outcome& outcome) {
  ChunkState& chunk = *request.chunk;
  // A round that failed because its contributors disagree is over as well.
  const bool is_over = !outcome.error || outcome.error->code == DTKV_MISMATCH;
  if (contributes(request.header.type) && is_over) chunk.next = outcome.header.round.next();
  chunk.busy = false;
  if (chunk.waiting.empty()) return;
  Request next = std::move(chunk.waiting.front());
  chunk.waiting.pop_front();
  start_chunk(std::move(next));
}

void Client::finish_part(Handle handle, std::optional<StoreError> error) {
  std::lock_guard lock(mutex_);
  auto& pending = pending_[handle];
  if (error && !pending.error) pending.error = std::move(error);
  --pending.left;
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
  std::vector<Request> requests;
  std::vector<std::uint32_t> memories;
  requests.reserve(keys.size());
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
    const ClientMemory* from_memory = nullptr;
    const ClientMemory* into_memory = nullptr;
    if (values) from_memory = memories_.holding((*values)[i].data, spec.count * width);
    if (out) into_memory = memories_.holding((*out)[i].data, spec.count * width);
    for (const ClientMemory* memory : {from_memory, into_memory})
      if (memory && (memories.empty() || memories.back() != memory->number))
        memories.push_back(memory->number);
    for (auto& chunk : chunks_[known->second.id.value]) {
      const std::size_t offset = chunk->place.first * width;
      const std::size_t bytes = chunk->place.count * width;
      Request& request = requests.emplace_back();
      request.chunk = chunk.get();
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
      request.into_bytes = bytes;
      if (out) request.into = static_cast<std::byte*>((*out)[i].data) + offset;
      if (contributes(type)) compress(request, spec);
      if (chunk->staging.at) use_shared_memory(request, from_memory, into_memory);
    }
  }
  auto handle = hand_over(std::move(requests), std::move(memories));
  if (handle && !options.is_awaited) driver_.nudge();
  return handle;
}

/// Over shared memory compressing would only cost; the server is told of the setting all the same.
void Client::compress(Request& request, const data::KeySpec& key) const {
  const bool auxiliary = (key.flags & data::kAuxiliary) != 0;
  if (compression_.codec == data::Codec::kNone || !is_compressible(key.dtype, auxiliary)) return;
  data::set_codec(request.header, compression_.codec);
  if (request.chunk->staging.at) return;
  request.encoder = &request.chunk->encoder;
  request.compression = compression_;
  request.header.payload =
      static_cast<std::uint32_t>(compressed_bytes(compression_.codec, request.chunk->place.count));
}

StoreResult<Handle> Client::hand_over(std::vector<Request> requests,
                                      std::vector<std::uint32_t> memories) {
  const Handle handle = next_handle_++;
  {
    std::lock_guard lock(mutex_);
    if (broken_) return tl::unexpected(*broken_);
    auto& pending = pending_[handle];
    pending.left = requests.size();
    pending.memories = std::move(memories);
  }
  auto start = [this, handle, requests = std::move(requests)]() mutable {
    std::optional<StoreError> broken;
    {
      std::lock_guard lock(mutex_);
      broken = broken_;
    }
    for (auto& request : requests) {
      request.handle = handle;
      if (broken)
        finish_part(handle, broken);
      else if (is_queued(request.header.type))
        submit_chunk(std::move(request));
      else
        send(*request.chunk->owner, std::move(request));
    }
    on_idle();
  };
  io::asio::post(context_, std::move(start));
  return handle;
}

Status Client::wait(Handle handle, double timeout_s) {
  {
    std::lock_guard lock(mutex_);
    if (!pending_.contains(handle)) return {};  // waited for before
  }
  const auto is_done = [&] {
    std::lock_guard lock(mutex_);
    return pending_[handle].left == 0;
  };
  const auto limit = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(timeout_s));
  if (!is_done() && !wait_for(is_done, after(limit)))
    return store_error(DTKV_TIMEOUT,
                       fmt::format("not done within {:.1f} s: other workers' contributions or a "
                                   "server's answer are missing",
                                   timeout_s));
  std::unique_lock lock(mutex_);
  auto node = pending_.extract(handle);
  const bool is_last = pending_.empty();
  lock.unlock();
  if (!is_last) driver_.nudge();
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

std::vector<ServerLink*> Client::all_links() {
  std::vector<ServerLink*> all;
  for (auto& server : links_)
    for (auto& link : server) all.push_back(link.get());
  return all;
}

StoreResult<Client::Questions> Client::tell(const std::vector<ServerLink*>& links,
                                            const Request& request) {
  Questions questions;
  for (ServerLink* to : links) {
    questions.push_back(std::make_shared<Question>());
    questions.back()->link = to;
  }
  {
    std::lock_guard lock(mutex_);
    if (broken_) return tl::unexpected(*broken_);
  }
  auto start = [this, questions, request] {
    std::optional<StoreError> broken;
    {
      std::lock_guard lock(mutex_);
      broken = broken_;
    }
    for (const auto& question : questions) {
      Request copy = request;
      copy.question = question;
      if (copy.header.type == data::Type::kFinish) copy.header.round = Round(question->link->phase);
      question->outcome.error = broken;
      question->is_answered = broken.has_value();
      if (!broken) send(*question->link, std::move(copy));
    }
    on_idle();
  };
  io::asio::post(context_, std::move(start));
  return questions;
}

StoreResult<Client::Questions> Client::ask(const std::vector<ServerLink*>& links,
                                           const Request& request, Duration limit) {
  auto told = tell(links, request);
  if (!told) return told;
  const Questions& questions = *told;
  std::size_t answered = 0;
  const auto is_done = [&] {
    while (answered < questions.size() && questions[answered]->is_answered) ++answered;
    return answered == questions.size();
  };
  if (!wait_for(is_done, after(limit)))
    return store_error(DTKV_TIMEOUT,
                       fmt::format("server {} gave no answer within {:.0f} s",
                                   questions[answered]->link->address().server, seconds(limit)));
  return told;
}

StoreResult<Client::Questions> Client::ask_all(const Request& request, Duration limit) {
  auto questions = ask(all_links(), request, limit);
  if (!questions) return questions;
  for (const auto& question : *questions)
    if (question->outcome.error) return tl::unexpected(*question->outcome.error);
  return questions;
}

StoreResult<Client::Questions> Client::ask_first(const Request& request, Duration limit) {
  auto questions = ask({links_[0][0].get()}, request, limit);
  if (questions && questions->front()->outcome.error)
    return tl::unexpected(*questions->front()->outcome.error);
  return questions;
}

// ---------------------------------------------------------------- shared memory

StoreResult<void*> Client::allocate(std::size_t bytes) {
  auto made = SharedMemory::create(bytes, true);
  if (!made) return store_error(DTKV_INTERNAL, made.error().message);
  ClientMemory memory;
  memory.memory = std::move(*made);
  auto shared = share(memory);
  if (!shared) return tl::unexpected(shared.error());
  void* at = memory.begin();
  memories_.add(std::move(memory));
  return at;
}

Status Client::release(void* data) {
  const ClientMemory* found = memories_.beginning_at(data);
  if (!found) return store_error(DTKV_INVALID, "this memory was not allocated by the store");
  {
    std::lock_guard lock(mutex_);
    for (const auto& [handle, pending] : pending_) {
      const auto& used = pending.memories;
      const bool uses = std::find(used.begin(), used.end(), found->number) != used.end();
      if (uses && pending.left > 0)
        return store_error(DTKV_INVALID,
                           fmt::format("operation {} is under way in this memory: wait for it "
                                       "before the memory is freed",
                                       handle));
    }
  }
  const ClientMemory memory = memories_.take(data);
  std::vector<ServerLink*> links;
  for (const LoopId loop : memory.shared_with)
    links.push_back(links_[loop.server][loop.loop].get());
  auto answers = ask(links, unshare(memory), options_.lost_limit);
  if (!answers) return tl::unexpected(answers.error());
  return {};
}

/// Tells the servers of `memory`; those on this host map it.
Status Client::share(ClientMemory& memory) {
  memory.number = next_memory_++;
  if (options_.transport == Transport::kTcp) return {};
  std::vector<ServerLink*> whom = sharers_ ? *sharers_ : all_links();
  if (options_.may_share)
    std::erase_if(whom, [this](ServerLink* link) { return !options_.may_share(link->server()); });
  Request request;
  request.header.type = data::Type::kShare;
  request.header.chunk = memory.number;
  request.keep =
      std::make_shared<const std::string>(wire::body_of(memory.memory->describe(memory.number)));
  request.from = request.keep->data();
  request.header.payload = static_cast<std::uint32_t>(request.keep->size());
  const auto answers = ask(whom, request, options_.start_limit);
  if (!answers) {
    (void)tell(whom, unshare(memory));  // or it would be shared again after a reconnection
    return tl::unexpected(answers.error());
  }
  std::vector<ServerLink*> agreed;
  for (const auto& answer : *answers) {
    if (!answer->outcome.error) {
      agreed.push_back(answer->link);
      memory.shared_with.insert({answer->link->server(), answer->link->loop()});
    } else if (options_.transport == Transport::kSharedMemory) {
      (void)tell(whom, unshare(memory));
      return store_error(
          DTKV_UNAVAILABLE,
          fmt::format("server {} at {} does not share memory with worker {} ({}): are they on one "
                      "host? --transport auto uses TCP where they are not",
                      answer->link->address().server, answer->link->address().address,
                      options_.worker, answer->outcome.error->message));
    }
  }
  if (!sharers_) sharers_ = std::move(agreed);
  return {};
}

/// Places in shared memory for the large chunks of the keys from `first_key` on. Nothing of it is
/// taken from the machine before it is used.
Status Client::prepare_staging(std::size_t first_key) {
  const bool shares = options_.transport != Transport::kTcp && (!sharers_ || !sharers_->empty());
  if (!shares) return {};
  std::size_t total = 0;
  std::vector<ChunkState*> large;
  for (std::size_t key = first_key; key < chunks_.size(); ++key) {
    for (auto& chunk : chunks_[key]) {
      if (bytes_of(*chunk) < options_.share_from) continue;
      large.push_back(chunk.get());
      total += Staging::rounded(bytes_of(*chunk));
    }
  }
  if (const std::size_t size = staging_.to_add(total); size > 0) {
    auto made = SharedMemory::create(size, false);
    if (!made && options_.transport == Transport::kAuto) return {};  // out of descriptors, say
    if (!made) return store_error(DTKV_INTERNAL, made.error().message);
    ClientMemory memory;
    memory.memory = std::move(*made);
    auto shared = share(memory);
    if (!shared || memory.shared_with.empty()) return shared;
    staging_.add(std::move(memory));
  }
  for (ChunkState* chunk : large)
    if (staging_.latest()->shared_with.contains(chunk->place.owner))
      chunk->staging = staging_.take(bytes_of(*chunk));
  return {};
}

std::size_t Client::bytes_of(const ChunkState& chunk) const {
  return chunk.place.count * data::element_bytes(table_[chunk.key.value].dtype);
}

// ---------------------------------------------------------------- keys

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
  const auto answer = ask_first(request, options_.start_limit);
  if (!answer && answer.error().code == DTKV_TIMEOUT)
    return store_error(
        DTKV_TIMEOUT,
        fmt::format("worker {}: the worker with rank 0 has not initialised '{}' "
                    "within {:.0f} s",
                    options_.worker, keys.empty() ? "" : keys[0], seconds(options_.start_limit)));
  if (!answer) return tl::unexpected(answer.error());
  const auto table = wire::parse<data::KeyTable>(answer->front()->outcome.text);
  if (!table) return store_error(DTKV_INTERNAL, table.error().message);
  const std::size_t first_new = chunks_.size();
  auto learnt = learn_keys(*table);
  if (learnt) learnt = prepare_staging(first_new);
  if (!learnt) return learnt;
  return init_chunks(keys, values);
}

Status Client::learn_keys(const data::KeyTable& table) {
  if (!layout_) {
    std::vector<std::uint32_t> loops;
    for (const auto& server : links_) loops.push_back(static_cast<std::uint32_t>(server.size()));
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
    const auto name = std::make_shared<const std::string>(spec.name);
    for (const auto& place : layout_->chunks(id)) {
      auto chunk = std::make_unique<ChunkState>();
      chunk->name = name;
      chunk->key = id;
      chunk->index = static_cast<std::uint32_t>(chunks.size());
      chunk->place = place;
      chunk->owner = links_[place.owner.server][place.owner.loop].get();
      chunks.push_back(std::move(chunk));
    }
  }
  return {};
}

Status Client::init_chunks(const std::vector<std::string>& keys, const std::vector<Array>& values) {
  std::vector<Request> requests;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto& key = keys_.at(keys[i]);
    const std::size_t width = data::element_bytes(key.spec.dtype);
    for (auto& chunk : chunks_[key.id.value]) {
      Request& request = requests.emplace_back();
      request.chunk = chunk.get();
      request.header.type = data::Type::kInit;
      request.header.dtype = key.spec.dtype;
      request.header.flags = key.spec.flags;
      request.header.key = chunk->key;
      request.header.chunk = chunk->index;
      request.header.samples = chunk->place.count;
      request.from = static_cast<const std::byte*>(values[i].data) + chunk->place.first * width;
      // The others send theirs only when they are asked to.
      if (lead_) request.header.payload = static_cast<std::uint32_t>(chunk->place.count * width);
    }
  }
  auto handle = hand_over(std::move(requests));
  if (!handle) return tl::unexpected(handle.error());
  auto done = wait(*handle, seconds(options_.start_limit));
  if (!done && done.error().code == DTKV_TIMEOUT) {  // the requests still point into `values`
    io::asio::post(context_, [this, error = done.error()] { break_store(error); });
    (void)wait(*handle, 0);
  }
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
  auto answers = ask_all(request, options_.start_limit);
  request.header.flags = 0;
  if (answers) answers = ask_all(request, options_.start_limit);
  if (!answers) return tl::unexpected(answers.error());
  return {};
}

// ---------------------------------------------------------------- epochs

Status Client::barrier() {
  if (!released_) return {};
  Request request;
  request.header.type = data::Type::kBarrier;
  request.header.round = barrier_;
  auto answer = ask_first(request, Duration::zero());
  if (!answer) return tl::unexpected(answer.error());
  barrier_ = barrier_.next();
  return {};
}

Status Client::finish_epoch() {
  if (!released_ || epoch_finished_) return {};
  epoch_finished_ = true;
  Request request;
  request.header.type = data::Type::kFinish;
  auto answers = ask_all(request, Duration::zero());
  if (!answers) return tl::unexpected(answers.error());
  return {};
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
    lock.unlock();
    io::asio::post(context_, [this, arrive] { job_->arrive(arrive); });
    const auto is_answered = [this] {
      std::lock_guard inner(mutex_);
      return release_ || leave_ || broken_ || job_lost_;
    };
    (void)wait_for(is_answered, std::nullopt);
    lock.lock();
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
  auto answers = ask_all(request, Duration::zero());
  if (!answers) return tl::unexpected(answers.error());
  struct Adopted {
    ServerLink* link;
    std::uint64_t phase;
    std::vector<std::pair<ChunkState*, Round>> rounds;
  };
  std::vector<Adopted> all;
  for (const auto& answer : *answers) {
    const auto state = wire::parse<data::SyncState>(answer->outcome.text);
    if (!state) return store_error(DTKV_INTERNAL, state.error().message);
    if (answer->link == links_[0][0].get()) barrier_ = state->barrier;
    Adopted& adopted = all.emplace_back(Adopted{answer->link, state->phase, {}});
    for (const auto& round : state->chunks) {
      if (options_.async) break;  // there a round is this worker's own count of pushes
      const bool known =
          round.key.value < chunks_.size() && round.chunk < chunks_[round.key.value].size();
      if (known)
        adopted.rounds.emplace_back(chunks_[round.key.value][round.chunk].get(), round.open);
    }
  }
  auto take = [all = std::move(all)] {
    for (const auto& adopted : all) {
      adopted.link->phase = adopted.phase;
      for (const auto& [chunk, open] : adopted.rounds) chunk->next = open;
    }
  };
  io::asio::post(context_, std::move(take));
  return {};
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
  options.transport = env->transport;
  options.busy_poll = env->busy_poll;
  return open_client(std::move(options), make_agent_link(std::move(env->agent)));
}

}  // namespace dt::kv
