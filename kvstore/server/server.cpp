#include "kvstore/server/server.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "io/clock.h"
#include "kvstore/link/event_loop.h"
#include "kvstore/link/tcp.h"
#include "kvstore/server/checkpoint/writer.h"
#include "kvstore/server/listener.h"
#include "kvstore/server/loop_report.h"
#include "kvstore/server/worker_memories.h"

namespace dt::kv {

/// One of the server's event loops. Everything except posting runs on its thread.
class Server::Loop final : public Answers {
 public:
  using All = std::vector<std::unique_ptr<Loop>>;

  /// `all`: the server's loops, this one among them.
  Loop(std::uint32_t index, const All& all, ShardOptions options, Duration busy_poll)
      : index_(index),
        all_(all),
        events_(busy_poll),
        device_(options.device),
        shard_(options, *this) {
    events_.spawn(tick());
  }

  [[nodiscard]] EventLoop& events() { return events_; }
  void start(std::atomic<bool>& stopping) {
    thread_ = std::jthread([this, &stopping] {
      report_.begin_thread(index_);
      if (device_) device_->begin_thread();
      events_.run();
      DT_CHECK(stopping, "a server loop ended by itself");
    });
  }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  void close() {
    for (auto& [worker, connection] : connections_) end(*connection);
    events_.tasks().cancel();
  }

  /// An authenticated connection; replaces the worker's earlier one.
  void add_connection(TcpSocket socket, const Listener::Admitted& admitted) {
    if (admitted.was_deceived) ++dropped_connections_;
    auto connection = std::make_shared<Connection>(*this, std::move(socket), admitted.worker);
    if (admitted.keys)
      connection->link.add_tags(admitted.keys->to_worker, admitted.keys->to_server);
    auto& present = connections_[admitted.worker];
    if (present) end(*present);
    present = connection;
    events_.spawn(write(connection));
    events_.spawn(serve(connection));
  }

  void commit(const ServerCommit& commit, std::atomic<bool>& applied, SavedLoop* saved) {
    if (shard_.commit(commit, io::steady_now(), saved) == Members::Applied::kStale) applied = false;
    write_answers();
  }

  void answer(WorkerId to, const data::Header& header,
              std::shared_ptr<const Payload> payload) override {
    if (header.key == data::kForLoop && index_ != 0) return answer_by_first(to, header, payload);
    const auto it = connections_.find(to);
    if (it == connections_.end()) return;
    if (header.key == data::kForLoop && it->second->handed_over > 0) --it->second->handed_over;
    const void* bytes = payload ? payload->data() : nullptr;
    const std::size_t size = payload ? payload->size() : 0;
    TcpConnection& link = it->second->link;
    if (!it->second->has_answers) {
      it->second->has_answers = true;
      to_write_.push_back(it->second);
    }
    link.send(header, bytes, size, std::move(payload));
    if (size >= kSendAtOnce) link.write_now();
  }

  /// A request for the loop that it names, from a worker that may not be connected to that loop.
  void hand_over(const data::Header& header, Payload payload) {
    Loop* to = all_[header.chunk].get();
    to->events_.post([to, header, payload = std::move(payload)]() mutable {
      to->shard_.handle_unchecked(header, std::move(payload), io::steady_now());
      to->write_answers();
    });
  }

  /// Sends the answers that were queued since the last call.
  void write_answers() {
    nonfinite_.store(shard_.nonfinite(), std::memory_order_relaxed);
    fenced_.store(shard_.fenced(), std::memory_order_relaxed);
    in_place_.store(shard_.in_place(), std::memory_order_relaxed);
    for (auto& connection : to_write_) {
      connection->has_answers = false;
      connection->link.write_now();
    }
    to_write_.clear();
  }

  /// Any thread.
  void add_counts(ServerCounters& to) const {
    to.dropped_connections += dropped_connections_;
    to.nonfinite += nonfinite_;
    to.fenced += fenced_;
    to.in_place += in_place_;
  }
  [[nodiscard]] LoopReport& report() { return report_; }
  /// Publishes the report that is_to_ask() requested.
  void publish() {
    LoopReport::Seen out;
    for (auto it = bytes_told_.begin(); it != bytes_told_.end();) {
      const WorkerId worker = it->first;
      const auto found = connections_.find(worker);
      const bool connected = found != connections_.end();
      if (!connected && !shard_.members().contains(worker)) {
        it = bytes_told_.erase(it);
        continue;
      }
      const std::uint64_t now = connected ? found->second->link.bytes_moved() : 0;
      out.workers[worker] = {connected, connected && now != it->second,
                             connected && std::exchange(found->second->is_busy, false)};
      it->second = now;
      ++it;
    }
    shard_.add_debts(out.owing, out.waiting);
    out.late = shard_.take_late();
    const bool is_busy =
        std::ranges::any_of(out.workers, [](const auto& one) { return one.second.busy; });
    const Time now = io::steady_now();
    if (is_busy) busy_at_ = now;
    if (now - busy_at_ >= kStill) out.waits = shard_.waits();
    report_.publish(std::move(out));
  }

 private:
  /// A worker's connection: checks its frames and hands them to the shard.
  struct Connection final : FrameSink {
    Connection(Loop& l, TcpSocket socket, WorkerId w)
        : loop(l), worker(w), link(std::move(socket)), memories(w, l.device_) {
      link.limit_queue(kMaxQueued);
    }

    Result<std::byte*> begin(const data::Header& next) override {
      if (next.worker != worker) return fail(ErrorKind::kProtocol, "another worker's frame");
      header = next;
      const bool is_to_first = loop.index_ == 0 && data::may_be_for_loop(next.type);
      if (is_for_loop() && (!is_to_first || next.chunk >= loop.all_.size()))
        return fail(ErrorKind::kProtocol, "a frame for loop {} that cannot be handed over",
                    next.chunk);
      if (is_for_loop() && handed_over >= kMostHandedOver * loop.all_.size())
        return fail(ErrorKind::kProtocol, "{} requests for other loops at once", handed_over);
      if (is_about_memory()) {
        if (next.payload > data::kMaxShareMemory)
          return fail(ErrorKind::kProtocol, "a frame about memory of {} bytes", next.payload);
        payload = Payload(next.payload);
        return payload.data();
      }
      auto checked = loop.shard_.check(next);
      if (!checked) return tl::unexpected(checked.error());
      if (is_shared()) return reinterpret_cast<std::byte*>(&places);
      payload = next.payload > 0 ? loop.shard_.take(next) : Payload();
      return payload.data();
    }
    Result<void> end() override {
      if (header.type == data::Type::kBeat) {
        loop.answer(worker, header, nullptr);
        return {};
      }
      is_busy = true;
      if (is_for_loop()) {
        ++handed_over;
        loop.hand_over(header, std::move(payload));
        return {};
      }
      if (is_about_memory()) {
        change_memories();
        return {};
      }
      SharedBuffers shared;
      if (is_shared()) {
        auto found = find_shared();
        if (!found) return tl::unexpected(found.error());
        shared = std::move(*found);
        payload = Payload();
      }
      loop.shard_.handle(header, std::move(payload), io::steady_now(), std::move(shared));
      return {};
    }
    void idle() override { loop.write_answers(); }

    [[nodiscard]] bool is_for_loop() const { return header.key == data::kForLoop; }
    [[nodiscard]] bool is_about_memory() const {
      return header.type == data::Type::kShare || header.type == data::Type::kUnshare;
    }
    [[nodiscard]] bool is_shared() const {
      return takes_turns(header.type) && (header.flags & data::kShared) != 0;
    }
    void change_memories() {
      if (header.type == data::Type::kUnshare) {
        memories.forget(header.chunk);
        return loop.reply(header, data::Type::kDone);
      }
      const auto told = wire::parse<data::ShareMemory>(payload.text());
      const auto opened = told ? memories.open(*told) : tl::unexpected(told.error());
      if (!opened) return loop.refuse(header, {data::Code::kInvalid, opened.error().message});
      if (loop.device_) header.flags |= data::kOnDevice;
      loop.reply(header, data::Type::kDone);
    }
    Result<SharedBuffers> find_shared() {
      const ChunkValue* value = loop.shard_.value_of(header);
      return memories.find(places, value ? value->bytes() : 0, value && value->is_on_device(),
                           header.type != data::Type::kPull);
    }

    Loop& loop;
    WorkerId worker;
    TcpConnection link;
    bool has_answers = false;     ///< Is in to_write_.
    std::size_t handed_over = 0;  ///< Requests passed to other loops that are not answered.
    bool is_busy = false;         ///< Since the last publish(): frames other than beats came.
    data::Header header;
    Payload payload;  ///< Payload of the arriving frame; an incomplete frame has no effect.
    data::SharedPlaces places;  ///< Payload of an arriving kShared frame.
    WorkerMemories memories;
  };

  /// Bytes of unread answers from which on the server reads no more from the worker.
  static constexpr std::size_t kMaxQueued = std::size_t{256} << 20;
  /// Answers of this size are sent at once; smaller ones together when there is no more to read.
  static constexpr std::size_t kSendAtOnce = std::size_t{64} << 10;
  /// A loop reports its waits (Traffic::waits) after so long without a request.
  static constexpr Duration kStill = std::chrono::seconds(1);
  /// Requests for each loop that a worker may have unanswered; it has one or two.
  static constexpr std::size_t kMostHandedOver = 64;

  void answer_by_first(WorkerId to, const data::Header& header,
                       std::shared_ptr<const Payload> payload) {
    Loop* first = all_.front().get();
    first->events_.post([first, to, header, payload = std::move(payload)]() mutable {
      first->answer(to, header, std::move(payload));
      first->write_answers();
    });
  }

  io::awaitable<void> tick() {
    for (;;) {
      co_await io::sleep_for(std::chrono::seconds(1));
      shard_.expire(io::steady_now());
      write_answers();
    }
  }

  io::awaitable<void> write(std::shared_ptr<Connection> connection) {
    co_await connection->link.write_loop();
  }

  io::awaitable<void> serve(std::shared_ptr<Connection> connection) {
    bytes_told_.try_emplace(connection->worker, 0);
    const Error why = co_await events_.receive(connection->link, *connection);
    if (why.kind == ErrorKind::kProtocol) ++dropped_connections_;
    const auto it = connections_.find(connection->worker);
    const bool is_present = it != connections_.end() && it->second == connection;
    if (!is_present) co_return;  // a newer connection replaced it
    connections_.erase(it);
    end(*connection);
  }

  /// Closes the worker's memory before the connection: when the worker sees the end, the server
  /// does not use its memory any more.
  void end(Connection& connection) {
    shard_.disconnect(connection.worker);
    connection.memories.clear();
    connection.link.close();
  }

  std::uint32_t index_;
  const All& all_;
  LoopReport report_;
  EventLoop events_;
  std::shared_ptr<DeviceEngine> device_;  ///< Null: there is none.
  Shard shard_;
  std::map<WorkerId, std::shared_ptr<Connection>> connections_;
  std::vector<std::shared_ptr<Connection>> to_write_;  ///< Have answers that were not written.
  std::atomic<std::uint64_t> dropped_connections_ = 0;
  // The shard's counts at the last write_answers():
  std::atomic<std::uint64_t> nonfinite_ = 0;
  std::atomic<std::uint64_t> fenced_ = 0;
  std::atomic<std::uint64_t> in_place_ = 0;
  Time busy_at_{};                                ///< The last publish() that saw a request.
  std::map<WorkerId, std::uint64_t> bytes_told_;  ///< Bytes moved up to the last publish().
  std::jthread thread_;
};

struct Server::Impl {
  /// `devices`: one for each loop, or none.
  Impl(ServerOptions o, const std::vector<std::shared_ptr<DeviceEngine>>& devices)
      : options(std::move(o)) {
    if (options.shard.restore) loader.emplace(1);
    for (std::uint32_t i = 0; i < options.loops; ++i) {
      ShardOptions shard = options.shard;
      if (loader) shard.offload = [this, i](auto work) { offload(i, std::move(work)); };
      shard.is_registrar = index() == 0 && i == 0;
      if (!devices.empty()) shard.device = devices[i];
      loops.push_back(std::make_unique<Loop>(i, loops, shard, options.busy_poll));
    }
    listener.emplace(options, loops[0]->events(),
                     [this](const Listener::Admitted& admitted) { add_connection(admitted); });
    if (!options.checkpoints.empty())
      writer.emplace([this](SavedWriter::Task task, Result<WrittenFile> written) {
        finish_saving(std::move(task), written);
      });
  }

  /// ShardOptions::offload of a loop: runs the work on the loader's thread.
  void offload(std::uint32_t loop, std::function<std::function<void()>()> work) {
    io::asio::post(*loader, [this, loop, work = std::move(work)] {
      ::pthread_setname_np(::pthread_self(), "kv-restore");
      loops[loop]->events().post([loop = loops[loop].get(), then = work()] {
        then();
        loop->write_answers();
      });
    });
  }

  [[nodiscard]] std::uint32_t index() const { return options.index.value_or(options.id.value); }

  /// Whether the commit asks for a checkpoint, for the first time, and it can begin. Any thread.
  bool begins_saving(const ServerCommit& commit) {
    if (!commit.checkpoint) return false;
    auto before = asked_to_save.load();
    do {
      if (commit.checkpoint->value <= before) return false;
    } while (!asked_to_save.compare_exchange_weak(before, commit.checkpoint->value));
    if (writer && writer->try_begin()) return true;
    Saved saved{commit.epoch, *commit.checkpoint, {}};
    saved.why = writer ? "an earlier one is still being written" : "it has no folder for them";
    options.on_saved(std::move(saved));
    return false;
  }

  /// On a loop's thread. `is_current`: no loop has applied a later commit.
  void save(const ServerCommit& commit, std::vector<SavedLoop> saved, bool is_current) {
    SavedWriter::Task task;
    task.by = {commit.epoch, *commit.checkpoint, index(), options.servers};
    task.loops = std::move(saved);
    task.folder = options.checkpoints + "/" + io::partial_name(commit.epoch, *commit.checkpoint);
    if (is_current) return writer->submit(std::move(task));
    writer->cancel();
    for (std::size_t i = 0; i < task.loops.size(); ++i)
      loops[i]->events().post([kept = std::move(task.loops[i])] {});
  }

  /// On the writer's thread. Each loop releases its references on its own thread, which alone
  /// counts them.
  void finish_saving(SavedWriter::Task task, const Result<WrittenFile>& written) {
    Saved saved{task.by.epoch, task.by.generation, {}};
    for (std::size_t i = 0; i < task.loops.size(); ++i) {
      saved.step = std::max(saved.step, task.loops[i].step);
      loops[i]->events().post([kept = std::move(task.loops[i])] {});
    }
    if (written) {
      saved.bytes = written->bytes;
      saved.header_crc = written->header_crc;
    } else {
      saved.why = written.error().message;
    }
    options.on_saved(std::move(saved));
  }

  /// On the first loop's thread: an authenticated connection for one of the loops.
  void add_connection(const Listener::Admitted& admitted) {
    Loop* loop = loops[admitted.loop].get();
    loop->events().post([loop, admitted] {
      boost::system::error_code ec;
      TcpSocket socket(loop->events().context());
      socket.assign(admitted.protocol, admitted.descriptor, ec);
      if (ec) return;
      tune(socket);
      loop->add_connection(std::move(socket), admitted);
    });
  }

  ServerOptions options;
  std::atomic<bool> stopping = false;
  std::vector<std::unique_ptr<Loop>> loops;
  std::optional<Listener> listener;              ///< The first loop's thread, once started.
  std::atomic<std::uint64_t> asked_to_save = 0;  ///< The last generation that asked for one.
  std::optional<SavedWriter> writer;             ///< None without a folder for checkpoints.
  /// Reads the checkpoint to begin with, if there is one: a loop must not wait for a slow volume.
  std::optional<io::asio::thread_pool> loader;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Server>> Server::start(ServerOptions options) {
  DT_CHECK(options.loops > 0, "a server needs a loop");
  std::vector<std::shared_ptr<DeviceEngine>> devices;  // each loop has a stream of its own
  for (std::uint32_t i = 0; options.device && i < options.loops; ++i) {
    auto opened = DeviceEngine::open(*options.device);
    if (!opened) return tl::unexpected(opened.error());
    devices.push_back(std::move(*opened));
  }
  auto impl = std::make_unique<Impl>(std::move(options), devices);
  const auto listening = impl->listener->start();
  auto* raw = impl.get();
  std::unique_ptr<Server> server(new Server(std::move(impl)));
  for (auto& loop : raw->loops) loop->start(raw->stopping);
  if (!listening) return tl::unexpected(listening.error());
  return server;
}

Server::~Server() {
  impl_->stopping = true;
  if (impl_->writer) impl_->writer->stop();  // it posts to the loops, which may still ask it
  if (impl_->loader) {
    impl_->loader->stop();  // what has not begun is dropped
    impl_->loader->join();
  }
  for (auto& loop : impl_->loops) {
    const bool accepts = &loop == &impl_->loops.front();
    loop->events().post([this, &loop, accepts] {
      if (accepts) impl_->listener->close();
      loop->close();
    });
  }
  for (auto& loop : impl_->loops) loop->join();
  impl_->listener.reset();
}

std::uint16_t Server::port() const { return impl_->listener->port(); }

void Server::commit(const ServerCommit& commit, std::function<void(bool)> done) {
  struct Shared {
    std::function<void(bool)> done;
    std::atomic<std::size_t> left;
    std::atomic<bool> applied = true;
    std::vector<SavedLoop> saved;  ///< Empty: no checkpoint is written.
  };
  auto shared = std::make_shared<Shared>();
  shared->done = std::move(done);
  shared->left = impl_->loops.size();
  if (impl_->begins_saving(commit)) shared->saved.resize(impl_->loops.size());
  for (std::size_t i = 0; i < impl_->loops.size(); ++i) {
    Loop* loop = impl_->loops[i].get();
    loop->events().post([this, loop, i, commit, shared] {
      loop->commit(commit, shared->applied, shared->saved.empty() ? nullptr : &shared->saved[i]);
      if (--shared->left > 0) return;
      if (!shared->saved.empty()) impl_->save(commit, std::move(shared->saved), shared->applied);
      if (shared->done) shared->done(shared->applied);
    });
  }
}

void Server::refresh() {
  for (auto& loop : impl_->loops)
    if (loop->report().is_to_ask(io::steady_now()))
      loop->events().post([l = loop.get()] { l->publish(); });
}

Traffic Server::traffic() {
  LoopReport::Seen all;
  Traffic traffic;
  const Time now = io::steady_now();
  for (std::uint32_t i = 0; i < impl_->loops.size(); ++i) {
    LoopReport& report = impl_->loops[i]->report();
    LoopReport::Seen one = report.take();
    for (const auto& [worker, seen] : one.workers) {
      auto& sum = all.workers[worker];
      sum.connected |= seen.connected;
      sum.active |= seen.active;
      sum.busy |= seen.busy;
    }
    all.waiting.merge(one.waiting);
    all.late.add(one.late);
    traffic.waits.insert(traffic.waits.end(), one.waits.begin(), one.waits.end());
    const Duration stuck = report.stuck_for(now);
    if (stuck < impl_->options.stuck_after) {
      all.owing.merge(one.owing);
      continue;
    }
    // A stuck loop's debts are out of date: its workers may have contributed since.
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(stuck).count();
    traffic.stuck.push_back({i, static_cast<std::uint32_t>(ms), report.thread_state()});
  }
  for (const auto& [worker, seen] : all.workers) {
    if (seen.active) traffic.alive.push_back(worker);
    if (!seen.connected) traffic.disconnected.push_back(worker);
    if (seen.busy) traffic.busy.push_back(worker);
  }
  traffic.rounds = all.late.rounds;
  for (const auto& [worker, rounds] : all.late.late)
    if (rounds > traffic.late_rounds) {
      traffic.late_rounds = rounds;
      traffic.latest = worker;
    }
  if (!traffic.busy.empty()) traffic.waits.clear();
  // Of each worker the lowest key.
  std::ranges::sort(traffic.waits, {},
                    [](const WaitingFor& w) { return std::pair(w.worker, w.key); });
  const auto rest = std::ranges::unique(traffic.waits, {}, &WaitingFor::worker);
  traffic.waits.erase(rest.begin(), rest.end());
  choose_waits(traffic.waits);
  traffic.owing.assign(all.owing.begin(), all.owing.end());
  traffic.waiting.assign(all.waiting.begin(), all.waiting.end());
  traffic.in_place = counters().in_place;
  refresh();
  return traffic;
}

ServerCounters Server::counters() const {
  ServerCounters counters{.refused_strangers = impl_->listener->refused()};
  for (const auto& loop : impl_->loops) loop->add_counts(counters);
  return counters;
}

}  // namespace dt::kv
