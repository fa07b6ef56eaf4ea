#include "kvstore/worker/client.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "io/log.h"
#include "kvstore/link/agent_socket.h"
#include "kvstore/link/descriptors.h"
#include "kvstore/link/event_loop.h"
#include "kvstore/link/link_environment.h"
#include "kvstore/worker/calls.h"
#include "kvstore/worker/chunk.h"
#include "kvstore/worker/device/arrays.h"
#include "kvstore/worker/dispatch.h"
#include "kvstore/worker/failover.h"
#include "kvstore/worker/figure_board.h"
#include "kvstore/worker/key_init.h"
#include "kvstore/worker/key_table.h"
#include "kvstore/worker/links/server_links.h"
#include "kvstore/worker/member_state.h"
#include "kvstore/worker/memory_sharing.h"
#include "kvstore/worker/threshold_warnings.h"

namespace dt::kv {

namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;
using Deadline = std::optional<SteadyClock::time_point>;

constexpr Duration kBeatEvery = 500ms;
constexpr unsigned kBeatsPerReport = 2;

void end_process(const std::string& why) {
  io::FdLog(2).error("{}", why);
  std::_Exit(1);
}

class Client final : public Store, private JobListener, private ServerLink::Owner {
 public:
  Client(ClientOptions options, std::unique_ptr<JobControl> job)
      : options_(std::move(options)),
        loop_(options_.busy_poll),
        job_(std::move(job)),
        member_(options_),
        links_({options_.worker, options_.secret, options_.lost_limit,
                static_cast<unsigned>(options_.answer_limit / kBeatEvery), options_.data_auth,
                options_.shows_connections ? &stderr_ : nullptr},
               *this, loop_),
        dispatch_(
            options_.worker, links_, loop_, options_.device_group, [this] { failover_.on_ended(); },
            [this](const std::vector<MemoryPlace>& staged) { memory_.give_back(staged); }),
        memory_(options_, links_),
        keys_(options_.chunk_bytes),
        key_init_(options_, keys_, links_, dispatch_, memory_, member_,
                  [this] { return await_servers(deadline_after(options_.start_limit)); }),
        failover_(options_, links_, dispatch_, keys_, memory_, key_init_, loop_,
                  [this] { return await_servers(std::nullopt); }) {
    if (!options_.end_process) options_.end_process = end_process;
  }

  ~Client() override {
    if (!loop_.is_started()) return;
    (void)wait_all(seconds(options_.close_limit));
    if (memory_.has_device_places()) close_device_places();
    loop_.post([this] { shut_down(); });
    loop_.finish();
  }

  Status open() {
    loop_.spawn(serve_job());
    loop_.spawn(beat());
    loop_.start();
    auto connected = await_servers(SteadyClock::now() + options_.start_limit);
    if (!connected && connected.error().code == Code::kRollback) return failover_.reconnect();
    return connected;
  }

  const std::string& type() const override { return options_.type; }
  View view() const override { return member_.view(); }
  WorkerId worker() const override { return options_.worker; }
  bool is_newcomer() const override { return options_.newcomer; }
  bool is_lead() const override { return member_.is_lead(); }
  bool takes_groups() const override {
    return options_.chunk_bytes.value_or(0) % DeviceGroup::kItem == 0;
  }

  Status init(const Keys& keys, const Arrays& values, std::uint8_t flags) override {
    HostArrays on_host(values);
    if (auto made = on_host.make(devices_, true); !made) return made;
    return with_failover([&] { return key_init_.init(keys, on_host.get(), flags); });
  }
  StoreResult<Handle> begin(const Keys& keys, const Arrays* values, const Arrays* out,
                            const PushOptions& options) override {
    const auto call = [&] { return submit(keys, values, out, options); };
    return values ? call() : with_failover(call);
  }
  StoreResult<void*> allocate(std::size_t bytes) override { return memory_.allocate(bytes); }
  std::shared_ptr<const void> owner_of(const void* memory) const override {
    const ClientMemory* found = memory_.allocated_at(memory);
    return found ? found->memory : nullptr;
  }
  Status release(void* data) override {
    const ClientMemory* memory = memory_.allocated_at(data);
    if (!memory) return store_error(Code::kInvalid, "this memory was not allocated by the store");
    if (const auto user = dispatch_.user_of(memory->number))
      return store_error(Code::kInvalid,
                         fmt::format("operation {} is under way in this memory: wait for it before "
                                     "the memory is freed",
                                     *user));
    return memory_.release(*memory);
  }
  Status wait(Handle handle, double timeout_s) override {
    return dispatch_.wait(handle, timeout_s);
  }
  Status wait_all(double timeout_s) override { return dispatch_.wait_all(timeout_s); }
  Status wait_in_stream(Handle handle, double timeout_s) override {
    return dispatch_.wait_in_stream(handle, timeout_s);
  }
  Status set_optimizer(const std::string& spec) override {
    return with_failover([&] { return send_optimizer(spec); });
  }
  StoreResult<std::string> optimizer() override {
    return with_failover([&]() -> StoreResult<std::string> {
      Request request = request_with(data::Type::kSetOptimizer, "");
      request.header.flags = data::kCheckOnly;
      auto answer = links_.ask_first(request, options_.start_limit);
      if (!answer) return tl::unexpected(answer.error());
      return std::move(answer->text);
    });
  }
  Status pull_state(const Keys& keys, State which, const Arrays& out,
                    std::span<std::uint64_t> updates) override {
    HostArrays into(out);
    if (auto made = into.make(devices_, false); !made) return made;
    std::fill(updates.begin(), updates.end(), 0);
    const auto make = [&](Request& request, std::size_t k, std::byte* at, std::size_t bytes) {
      request.into = at;
      request.into_bytes = bytes;
      request.step = &updates[k];
    };
    auto done = with_failover(
        [&] { return ask_for_state(data::Type::kPullState, keys, which, into.get(), make); });
    return done ? into.write() : done;
  }
  Status init_state(const Keys& keys, State which, const Arrays& values,
                    std::span<const std::uint64_t> updates) override {
    HostArrays from(values);
    if (auto made = from.make(devices_, true); !made) return made;
    const auto make = [&](Request& request, std::size_t k, std::byte* at, std::size_t bytes) {
      request.from = at;
      request.header.payload = static_cast<std::uint32_t>(bytes);
      request.header.step = updates[k];
    };
    return with_failover(
        [&] { return ask_for_state(data::Type::kInitState, keys, which, from.get(), make); });
  }
  Status set_gradient_compression(const std::string& spec) override {
    const auto parsed = parse_compression(spec);
    if (!parsed) return store_error(parsed.error());
    compression_ = *parsed;
    return {};
  }
  Status barrier() override {
    if (!member_.is_member()) return {};
    const Request request{.header = {.type = data::Type::kBarrier, .round = barrier_}};
    auto answer = links_.ask_first(request, Duration::zero());
    if (!answer) return tl::unexpected(answer.error());
    barrier_ = barrier_.next();
    return {};
  }
  Status finish_steps() override { return finish(Finished::kSteps); }
  Status finish_epoch() override { return finish(Finished::kEpoch); }
  StoreResult<View> epoch_boundary(Epoch epoch) override {
    if (!links_.error())  // else the servers may have been replaced: then any epoch will do
      if (auto right = check_epoch(member_.epoch(), epoch); !right)
        return tl::unexpected(right.error());
    for (bool is_replaced = false;; is_replaced = true) {
      auto view = cross_boundary(epoch);
      const bool again = !view && view.error().code == Code::kRollback;
      if (view && is_replaced) view->rolled_back = true;
      if (!again) return view;
      if (auto renewed = failover_.reconnect(); !renewed) return tl::unexpected(renewed.error());
      finished_ = Finished::kEpoch;     // nothing was pushed to these servers
      epoch = links_.servers()->epoch;  // known since open()
    }
  }
  Status progress(Epoch epoch, std::uint64_t step) override {
    const auto now = SteadyClock::now();
    if (now - last_progress_ < 1s) return {};
    last_progress_ = now;
    loop_.post([this, epoch, step] { job_->progress({epoch, step}); });
    return {};
  }
  Status report(const std::string& name, const Figure& value) override {
    loop_.post([this, name, value] {
      if (!figures_.report(name, value))
        stderr_.warn("worker {}: '{}' is not reported: a worker has at most 32 figures",
                     options_.worker, name);
    });
    return {};
  }

 private:
  // ---- the supervisor's messages: the job link's thread or any other
  void on_servers(Servers servers) override {
    loop_.post([this, servers = std::move(servers)] { failover_.on_servers(servers); });
  }
  void on_release(Release release) override {
    member_.on_release(release);
    loop_.post([] {});  // a waiting caller checks its condition again
  }
  void on_shrunk(Shrunk shrunk) override { member_.on_shrunk(shrunk); }
  void on_lost(Error error) override {
    member_.on_lost(std::move(error));
    loop_.post([] {});
  }

  // ---- the loop
  void on_answer(ServerLink& /*link*/, Request request, Outcome outcome) override {
    dispatch_.on_answer(std::move(request), std::move(outcome));
  }
  void on_lost(ServerLink& link, const std::string& why) override {
    const StoreError lost{Code::kUnavailable, fmt::format("{} {}", link.name(), why)};
    dispatch_.give_up(links_.close(lost), lost);
  }
  void on_ended(ServerLink& /*link*/) override { failover_.on_ended(); }
  Generation generation() const override { return member_.generation(); }
  void on_encoded(const ChunkState& chunk, GradientEncoder& encoder,
                  const Compression& how) override {
    warnings_.look_at(encoder, how, *chunk.name);
  }
  io::awaitable<void> serve_job() {
    job_->opened({options_.type});
    co_await job_->run(loop_.tasks(), *this);
  }
  void report_memory() {
    const MemorySharing::Bytes now = memory_.bytes();
    if (now == std::exchange(told_bytes_, now)) return;
    const auto report = [this](const char* name, std::uint64_t bytes) {
      figures_.own(name, static_cast<double>(bytes >> 20));
    };
    report("staged_mib", now.staged);
    report("pinned_mib", now.pinned);
    report("device_mib", now.on_devices);
  }
  io::awaitable<void> beat() {
    ServersHeard told;
    for (unsigned beats = 1;; ++beats) {
      co_await io::sleep_for(kBeatEvery);
      links_.beat();
      if (beats % kBeatsPerReport != 0) continue;
      report_memory();
      figures_.waits(links_.lowest_unanswered());
      if (const auto figures = figures_.take(loop_.waited())) job_->figures(*figures);
      ServersHeard heard{links_.take_heard()};
      if (heard.servers.empty() && told.servers.empty()) continue;
      job_->heard(heard);
      told = std::move(heard);
    }
  }
  void shut_down() {
    const StoreError closed{Code::kUnavailable, "the kvstore was closed"};
    dispatch_.give_up(links_.close(closed), closed);
    loop_.tasks().cancel();
  }

  // ---- the caller's thread: opening and closing
  Status await_servers(Deadline deadline) {
    for (;;) {
      const auto report = SteadyClock::now() + options_.report_every;
      const auto settled = [this] {
        return links_.error() || member_.lost() || member_.must_leave() || links_.is_connected();
      };
      const bool is_settled =
          loop_.run_until(settled, deadline ? std::min(*deadline, report) : report);
      if (member_.must_leave()) return leaving();
      if (auto broken = links_.error()) return tl::unexpected(std::move(*broken));
      if (const auto lost = member_.lost()) return store_error(*lost);
      if (const auto servers = links_.servers(); servers && servers->servers.empty())
        return store_error(
            Code::kInvalid,
            fmt::format("kvstore {} needs servers, and this job has none (-s 0)", options_.type));
      if (is_settled) return {};
      const std::string missing = links_.missing();
      if (deadline && SteadyClock::now() >= *deadline)
        return store_error(Code::kTimeout,
                           fmt::format("worker {}: after {:.0f} s still waiting for {}",
                                       options_.worker, seconds(options_.start_limit), missing));
      io::FdLog(2).info("worker {} waits for {}", options_.worker, missing);
    }
  }
  /// Memory on devices is not freed before every server that had it open has closed it.
  void close_device_places() {
    const StoreError closed{Code::kUnavailable, "the kvstore was closed"};
    bool has_begun = false;
    loop_.post([&] {
      dispatch_.give_up(links_.leave(closed), closed);
      has_begun = true;
    });
    (void)loop_.run_until([&has_begun] { return has_begun; }, std::nullopt);
    const auto have_ended = [this] { return links_.have_ended(); };
    (void)loop_.run_until(have_ended, deadline_after(options_.close_limit));
    if (!links_.have_let_go()) memory_.abandon_device_places();
  }
  /// A newcomer is in no epoch from which it could roll back: its calls go to the present servers.
  template <class Call>
  auto with_failover(Call call) -> decltype(call()) {
    for (;;) {
      auto done = call();
      if (done || done.error().code != Code::kRollback || member_.is_member()) return done;
      if (auto renewed = failover_.reconnect(); !renewed) return tl::unexpected(renewed.error());
    }
  }

  // ---- operations
  /// Success: the worker may contribute now.
  Status may_contribute() const {
    if (!member_.is_member())
      return store_error(Code::kInvalid,
                         fmt::format("worker {} is a newcomer: it contributes after its first "
                                     "epoch_boundary, not before",
                                     options_.worker));
    if (finished_ == Finished::kEpoch)
      return store_error(Code::kInvalid,
                         "the epoch was finished: call epoch_boundary before the next push");
    return {};
  }
  /// The keys of these names, if the call may be made on them with these arrays.
  StoreResult<std::vector<const KeyTable::Key*>> find(data::Type type, const Keys& names,
                                                      const Arrays* values,
                                                      const Arrays* out) const {
    std::vector<const KeyTable::Key*> found;
    found.reserve(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      const KeyTable::Key* key = keys_.find(names[i]);
      if (!key)
        return store_error(Code::kInvalid, fmt::format("worker {}: key '{}' was not initialised",
                                                       options_.worker, names[i]));
      const bool is_step = contributes(type) && (key->spec.flags & data::kAuxiliary) == 0;
      if (is_step && finished_ == Finished::kSteps)
        return store_error(Code::kInvalid,
                           fmt::format("worker {}: the epoch's steps were finished: until "
                                       "epoch_boundary auxiliary keys alone are pushed, not '{}'",
                                       options_.worker, names[i]));
      for (const auto* arrays : {values, out}) {
        if (!arrays) continue;
        const std::string wrong = array_mismatch(options_.worker, key->spec, (*arrays)[i]);
        if (!wrong.empty()) return store_error(Code::kMismatch, wrong);
      }
      found.push_back(key);
    }
    return found;
  }
  StoreResult<Handle> submit(const Keys& names, const Arrays* values, const Arrays* out,
                             const PushOptions& options) {
    if (auto broken = links_.error()) return tl::unexpected(std::move(*broken));
    const auto type = !values ? data::Type::kPull : out ? data::Type::kPushPull : data::Type::kPush;
    if (contributes(type))
      if (auto may = may_contribute(); !may) return tl::unexpected(may.error());
    const auto keys = find(type, names, values, out);
    if (!keys) return tl::unexpected(keys.error());
    if (contributes(type) && !names.empty() && (keys->front()->spec.flags & data::kAuxiliary) == 0)
      figures_.pushed(names.front(), options.samples);
    const KeyedCall call{type, *keys, values, out, options, compression_, options_.async};
    Operations::Uses uses;
    auto requests = make_requests(call, devices_, dispatch_, memory_, uses);
    if (!requests) {
      memory_.give_back(uses.staged);
      return tl::unexpected(requests.error());
    }
    auto handle = dispatch_.hand_over(std::move(*requests), std::move(uses));
    if (handle && !options.is_awaited) loop_.nudge();
    return handle;
  }
  Status send_optimizer(const std::string& spec) {
    Request request = request_with(data::Type::kSetOptimizer, spec);
    request.header.flags = data::kCheckOnly;
    // First ask everywhere, so that a refusal leaves every server as it was.
    auto answers = links_.ask_all(request, options_.start_limit);
    request.header.flags = 0;
    if (answers) answers = links_.ask_all(request, options_.start_limit);
    return answers.map([](const Queries&) {});
  }
  /// Sends one request for each chunk and waits for all answers. `make` completes it: it gets the
  /// request, the key's number in the call, and the chunk's bytes in its array.
  template <class Make>
  Status ask_for_state(data::Type type, const Keys& names, State which, const Arrays& arrays,
                       Make make) {
    if (auto broken = links_.error()) return tl::unexpected(std::move(*broken));
    const auto keys = find(type, names, &arrays, nullptr);
    if (!keys) return tl::unexpected(keys.error());
    std::vector<Request> requests;
    for (std::size_t k = 0; k < names.size(); ++k) {
      for (const auto& chunk : (*keys)[k]->chunks) {
        Request& request = requests.emplace_back(request_for(*chunk, type, arrays[k].dtype));
        request.header.flags = which == State::kSecond ? data::kSecondState : 0;
        auto* at = static_cast<std::byte*>(arrays[k].data) +
                   chunk->place.first * data::element_bytes(arrays[k].dtype);
        make(request, k, at, chunk->bytes);
      }
    }
    auto handle = dispatch_.hand_over(std::move(requests));
    if (!handle) return tl::unexpected(handle.error());
    return dispatch_.wait(*handle, 0);
  }

  // ---- epochs
  /// What the caller has finished of the epoch.
  enum class Finished : std::uint8_t { kNothing, kSteps, kEpoch };
  /// `is_arriving`: at a boundary.
  Status finish(Finished part, bool is_arriving = false) {
    if (!member_.is_member() || finished_ >= part) return {};
    finished_ = part;
    Request request{.header = {.type = data::Type::kFinish}};
    request.header.step = member_.view().epoch.next().value;
    request.header.flags = part == Finished::kSteps ? data::kStepsOnly
                           : is_arriving            ? data::kAtBoundary
                                                    : 0;
    return links_.ask_all(request, Duration::zero()).map([](const Queries&) {});
  }
  tl::unexpected<StoreError> leaving() const {
    return store_error(Code::kLeave,
                       fmt::format("worker {} was removed from the job: stop training and exit 0",
                                   options_.worker));
  }
  /// Arrives, and waits for the release; DTKV_ROLLBACK: the servers were replaced before its end.
  StoreResult<View> cross_boundary(Epoch epoch) {
    auto finished = finish(Finished::kEpoch, true);
    if (!finished) return tl::unexpected(finished.error());
    if (member_.must_leave()) return leaving();
    const Arrive arrive = member_.arrive(epoch, links_.servers()->since);  // known since open()
    loop_.post([this, arrive] { job_->arrive(arrive); });
    const auto is_over = [this] {
      return member_.is_answered() || links_.error() || member_.lost();
    };
    (void)loop_.run_until(is_over, std::nullopt);
    loop_.post([this] { job_->released(); });
    const auto view = member_.leave_boundary();
    if (member_.must_leave()) return leaving();
    if (auto broken = links_.error()) return tl::unexpected(std::move(*broken));
    if (!view) return store_error(Code::kUnavailable, member_.lost().value_or(Error{}).message);
    auto synced = sync_rounds();
    if (!synced) return tl::unexpected(synced.error());
    finished_ = Finished::kNothing;
    memory_.trim();
    return *view;
  }
  Status sync_rounds() {
    const Request request{.header = {.type = data::Type::kSync}};
    auto answers = links_.ask_all(request, Duration::zero());
    if (!answers) return tl::unexpected(answers.error());
    std::vector<std::pair<ServerLink*, std::uint64_t>> phases;
    std::vector<std::pair<ChunkState*, Round>> rounds;
    for (const auto& answer : *answers) {
      const auto state = wire::parse<data::SyncState>(answer->outcome.text);
      if (!state) return store_error(state.error());
      if (answer->link == &links_.first()) barrier_ = state->barrier;
      phases.emplace_back(answer->link, state->phase);
      for (const auto& round : state->chunks) {
        ChunkState* chunk = keys_.chunk(round.key, round.chunk);
        // The round of an asynchronous key is the worker's own count of pushes, which goes on.
        if (chunk && !is_async(options_.async, keys_.at(round.key).spec))
          rounds.emplace_back(chunk, round.open);
      }
    }
    loop_.post([phases = std::move(phases), rounds = std::move(rounds)] {
      for (const auto& [link, phase] : phases) link->phase = phase;
      for (const auto& [chunk, open] : rounds) chunk->turns.advance_to(open);
    });
    return {};
  }

  ClientOptions options_;
  EventLoop loop_;
  std::unique_ptr<JobControl> job_;  ///< The loop's.
  io::FdLog stderr_{2};
  ThresholdWarnings warnings_{stderr_};  ///< The loop's.
  FigureBoard figures_;
  MemorySharing::Bytes told_bytes_;  ///< The loop's.
  MemberState member_;
  ServerLinks links_;
  Dispatch dispatch_;

  // The caller's thread.
  KnownDevices devices_;
  MemorySharing memory_;
  KeyTable keys_;
  KeyInit key_init_;
  Failover failover_;
  Compression compression_;
  Round barrier_{1};
  Finished finished_ = Finished::kNothing;
  SteadyClock::time_point last_progress_{};
};

}  // namespace

StoreResult<std::unique_ptr<Store>> open_client(ClientOptions options,
                                                std::unique_ptr<JobControl> job) {
  auto client = std::make_unique<Client>(std::move(options), std::move(job));
  auto opened = client->open();
  if (!opened) return tl::unexpected(opened.error());
  return client;
}

StoreResult<std::unique_ptr<Store>> open_client_from_environment(
    const std::string& type, std::optional<std::uint64_t> chunk_bytes) {
  (void)raise_descriptor_limit();
  auto env = read_environment(Role::kWorker);
  if (!env) return store_error(env.error().at("kvstore " + type));
  // Under --on-change restart the supervisor has to learn that a store is opened: it ends the job.
  const bool is_group = std::getenv("DT_ON_CHANGE") != nullptr;
  if (env->num_servers == 0 && !is_group)
    return store_error(Code::kInvalid,
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
  options.answer_limit = env->server_dead_after;
  options.transport = env->transport;
  options.data_auth = env->data_auth;
  options.busy_poll = env->busy_poll();
  options.shows_connections = env->verbose > 0;
  options.chunk_bytes = chunk_bytes;
  auto opened = open_client(std::move(options), make_job_control(std::move(env->agent)));
  if (opened || !is_group) return opened;
  return store_error(Code::kInvalid,
                     fmt::format("kvstore {} cannot be opened under --on-change restart, which is "
                                 "for commands that open none",
                                 type));
}

}  // namespace dt::kv
