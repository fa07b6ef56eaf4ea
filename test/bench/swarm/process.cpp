#include "test/bench/swarm/process.h"

#include <csignal>
#include <utility>

#include "io/clock.h"
#include "kvstore/server/report_pace.h"

namespace dt::swarm {

using io::awaitable;
using namespace std::chrono_literals;

namespace {

/// dtserver's interval of its looks at the workers, and a worker's of its signs of life.
constexpr Duration kLook = 250ms;
constexpr Duration kSign = 1s;
constexpr std::uint16_t kPort = 9000;

/// Processes that start together do not speak in step.
Duration phase(std::uint32_t id, Duration interval) { return interval / 97 * (id * 31 % 97); }

class Server final : public Process {
 public:
  Server(io::asio::any_io_executor executor, World& world, ProcessId id, std::string address,
         Say say)
      : Process(std::move(executor), world, id, std::move(say)), address_(std::move(address)) {}

  awaitable<ExitStatus> live() override {
    const ServerId self(id().id);
    world_.servers.insert(self);
    ServerReady ready;
    ready.address = address_;
    ready.port = kPort;
    ready.device = "cpu";
    say(ready);
    Time next = io::steady_now() + phase(id().id, kLook);
    while (!is_ending()) {
      co_await pause_until(next);
      const Time now = io::steady_now();
      if (now < next) continue;
      if (const auto report = pace_.take(world_.traffic(now))) say(*report);
      next = std::max(next + kLook, now);
    }
    world_.servers.erase(self);
    co_return ExitStatus{.signal = SIGTERM};
  }

  void take(const ToProcess& message) override {
    if (message.type != ServerCommit::kType) return;
    const auto commit = wire::parse<ServerCommit>(message.body);
    if (!commit) return;
    CommitTimes& times = world_.tally.commits[commit->generation];
    times.contributors = commit->contributors.size();
    times.received.add(io::steady_now());
    CommitAck ack;
    ack.generation = commit->generation;
    say(ack);
  }

 private:
  std::string address_;
  kv::ReportPace pace_;
};

class Worker final : public Process {
 public:
  using Process::Process;

  awaitable<ExitStatus> live() override {
    const WorkerId self(id().id);
    co_await pause_until_whole(io::steady_now() + world_.course.load);
    ++world_.tally.waiting;
    while (!world_.course.may_open && !is_ending()) co_await pause_until(io::steady_now() + 20ms);
    --world_.tally.waiting;
    OpenedKvStore opened;
    opened.type = "dist_sync";
    say(opened);
    next_sign_ = io::steady_now() + phase(id().id, kSign);
    while (!servers_ && !is_ending()) co_await live_until(Time::max());
    if (!is_ending()) world_.connected.insert(self);
    co_await train();
    world_.connected.erase(self);
    world_.training.erase(self);
    co_return is_ending() ? ExitStatus{.signal = SIGTERM} : ExitStatus{};
  }

  void take(const ToProcess& message) override {
    if (message.type == Servers::kType) {
      if (auto servers = wire::parse<Servers>(message.body)) servers_ = std::move(*servers);
    } else if (message.type == Release::kType) {
      if (auto release = wire::parse<Release>(message.body)) take(*release);
    }
    wake();
  }

 private:
  /// Epoch by epoch, until it must leave or has done all.
  awaitable<void> train() {
    const WorkerId self(id().id);
    while (!is_ending() && !must_leave_ && !has_done_all()) {
      arrive();
      while (is_arriving_ && !must_leave_ && !is_ending()) co_await live_until(Time::max());
      if (must_leave_ || is_ending()) break;
      world_.training.insert(self);
      const Time end = world_.end_of(epoch_, self);
      while (io::steady_now() < end && !is_ending()) co_await live_until(end);
      world_.training.erase(self);
      epoch_ = epoch_.next();
    }
  }

  [[nodiscard]] bool has_done_all() const {
    return world_.course.epochs != 0 && epoch_.value >= world_.course.epochs;
  }

  void arrive() {
    Arrive arrival;
    arrival.epoch = epoch_;
    arrival.join = !is_member_;
    arrival.servers = servers_->since;
    is_arriving_ = true;
    const Time now = io::steady_now();
    Tally& tally = world_.tally;
    if (is_member_ || tally.boundaries[Epoch(0)].releases.count == 0) {
      tally.boundaries[epoch_].arrivals.add(now);
    } else {
      ++tally.warm;
      is_newcomer_ = true;
      tally.last_warm = now;
    }
    say(arrival);
  }

  void take(const Release& release) {
    must_leave_ = must_leave_ || release.verdict == Verdict::kLeave;
    if (!is_arriving_ || must_leave_) return;
    is_arriving_ = false;
    is_member_ = true;
    epoch_ = release.epoch;
    step_ = 0;
    if (std::exchange(is_newcomer_, false)) --world_.tally.warm;
    const Time now = io::steady_now();
    world_.began.try_emplace(epoch_, now);
    BoundaryTimes& times = world_.tally.boundaries[epoch_];
    times.releases.add(now);
    times.world_size = release.world_size;
  }

  /// Until then, or until a message has come; with its signs of life meanwhile.
  awaitable<void> live_until(Time until) {
    co_await pause_until(std::min(until, next_sign_));
    const Time now = io::steady_now();
    if (now < next_sign_) co_return;
    next_sign_ = std::max(next_sign_ + kSign, now);
    if (!servers_) co_return;
    ServersHeard heard;
    heard.servers.assign(world_.servers.begin(), world_.servers.end());
    say(heard);
    if (is_arriving_ || !is_member_) co_return;
    Progress progress;
    progress.epoch = epoch_;
    step_ += static_cast<std::uint64_t>(kSign / world_.course.step);
    progress.step = step_;
    say(progress);
  }

  awaitable<void> pause_until_whole(Time until) {
    while (io::steady_now() < until && !is_ending()) co_await pause_until(until);
  }

  std::optional<Servers> servers_;
  Epoch epoch_;
  std::uint64_t step_ = 0;
  Time next_sign_ = Time::max();
  bool is_arriving_ = false;
  bool is_member_ = false;
  bool is_newcomer_ = false;
  bool must_leave_ = false;
};

}  // namespace

awaitable<void> Process::pause_until(Time until) {
  if (is_ending_) co_return;
  const auto at = io::asio::steady_timer::time_point(until.time_since_epoch());
  wake_.expires_at(at);
  co_await wake_.async_wait(io::tok);
}

std::unique_ptr<Process> make_process(io::asio::any_io_executor executor, World& world,
                                      ProcessId id, std::string address, Process::Say say) {
  switch (id.role) {
    case Role::kServer:
      return std::make_unique<Server>(std::move(executor), world, id, std::move(address),
                                      std::move(say));
    case Role::kWorker:
      return std::make_unique<Worker>(std::move(executor), world, id, std::move(say));
    case Role::kPrepare:
      break;
  }
  return nullptr;
}

}  // namespace dt::swarm
