// dtserver: a kvstore server of a job. Started by the host's agent; everything it needs is in its
// environment.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <optional>

#include "core/base/version.h"
#include "core/protocol/device_choice.h"
#include "core/protocol/exit_code.h"
#include "io/asio.h"
#include "io/flags.h"
#include "io/log.h"
#include "io/process_state.h"
#include "io/task_group.h"
#include "kvstore/compute/cuda/device.h"
#include "kvstore/link/agent_socket.h"
#include "kvstore/link/descriptors.h"
#include "kvstore/link/link_environment.h"
#include "kvstore/server/report_pace.h"
#include "kvstore/server/server.h"

namespace {

using namespace dt;
using namespace std::chrono_literals;

/// Between two looks at the workers. Twice this is the precision of the time of a lost host's last
/// sign of life; --dead-after counts from its report.
constexpr auto kReportEvery = 250ms;
/// The part of kReportEvery in which the loops publish; a late loop is in the next report.
constexpr auto kLoopsHave = 50ms;
/// How long the end may take. A loop or the checkpoints' writer may be stuck in the kernel.
constexpr auto kEndLimit = 5s;
/// The server that this one replaces keeps its port until it has ended.
constexpr auto kPortTries = 50;
constexpr auto kPortPause = 100ms;

/// The CUDA device of the server with this number on its host: they take the devices in turn.
int device_in_turn(int server) {
  int devices = 0;
  while (kv::cuda::why_no_device(devices).empty()) ++devices;
  return devices > 0 ? server % devices : 0;
}

/// The device for people: its number on the host, where a list of the GPUs that this process sees
/// has numbers, and what it is.
std::string name_device(int device) {
  const char* const list = std::getenv("DT_HOST_GPUS");
  const char* const seen = list ? list : std::getenv("CUDA_VISIBLE_DEVICES");
  const auto gpu = seen ? gpu_of_host(seen, device) : std::nullopt;
  return (gpu ? fmt::format("GPU {} of the host, ", *gpu) : "") + kv::cuda::describe_device(device);
}

/// Between the agent and the server's loops; one thread.
class ServerProcess {
 public:
  ServerProcess(kv::JobEnvironment env, std::uint32_t loops, DeviceChoice device, io::Log& log)
      : env_(std::move(env)),
        loops_(loops),
        device_(device),
        log_(log),
        group_(context_.get_executor()),
        agent_(env_.agent) {}

  int run() {
    group_.spawn(serve());
    group_.spawn(stop_on_signal());
    context_.run();
    const auto ended = std::async(std::launch::async, [this] { server_.reset(); });
    if (ended.wait_for(kEndLimit) == std::future_status::ready) return exit_code_;
    log_.warn("server {}: its threads have not ended for {} s, it ends without them", env_.id,
              std::chrono::seconds(kEndLimit).count());
    std::_Exit(exit_code_);
  }

 private:
  /// The checkpoint that the server begins with; null: none.
  [[nodiscard]] Result<std::shared_ptr<const kv::Checkpoint>> open_checkpoint() const {
    if (env_.restore.empty()) return nullptr;
    auto opened = kv::Checkpoint::open(env_.restore);
    if (!opened) return opened;
    const auto& optimizer = (*opened)->optimizer();
    if (!optimizer.empty())
      if (auto known = kv::parse_optimizer(optimizer); !known)
        return tl::unexpected(known.error().at(env_.restore));
    return opened;
  }

  /// Where the values will be. None: the required device cannot be used; the agent gets an error.
  std::optional<DeviceChoice> choose_device() {
    DeviceChoice device = device_;
    ready_.device = "cpu";
    if (device.kind == DeviceChoice::Kind::kCpu) return device;
    if (device.kind == DeviceChoice::Kind::kAuto) device.number = device_in_turn(device.number);
    const auto why = kv::cuda::why_no_device(device.number);
    if (why.empty()) {
      ready_.device = fmt::format("cuda:{}", device.number);
      ready_.device_note = name_device(device.number);
      log_.info("server {}: values are on CUDA device {}, {}", env_.id, device.number,
                ready_.device_note);
      device.kind = DeviceChoice::Kind::kCuda;
      return device;
    }
    if (device.kind == DeviceChoice::Kind::kAuto) {
      log_.info("server {}: values are on the CPU: {}", env_.id, why);
      ready_.device_note = why;
      return DeviceChoice{};
    }
    give_up(
        fmt::format("{} (--server-device cuda:{}; auto would take the CPU)", why, device.number),
        false, kExitNoServerDevice);
    return std::nullopt;
  }

  Result<void> start(std::shared_ptr<const kv::Checkpoint> checkpoint, const DeviceChoice& device) {
    if (!env_.data.interface.empty()) {
      auto address = kv::interface_address(env_.data.interface);
      if (!address) return tl::unexpected(address.error());
      env_.bind = std::move(*address);
    }
    kv::ServerOptions options;
    options.id = ServerId(env_.id);
    options.index = env_.server_index;
    options.bind = env_.bind;
    options.port = env_.data.server_port;
    options.secret = env_.secret;
    options.data_auth = env_.data_auth;
    options.loops = loops_;
    options.busy_poll = env_.busy_poll();
    options.shard.deterministic = env_.data.deterministic;
    options.shard.refuse_nonfinite = env_.data.refuse_nonfinite;
    options.servers = std::max(1U, env_.num_servers);
    options.checkpoints = env_.checkpoints;
    options.on_saved = [this](Saved saved) {
      io::asio::post(context_, [this, saved = std::move(saved)] { agent_.send(saved); });
    };
    options.shard.restore = std::move(checkpoint);
    options.shard.on_damage = [this](std::string why) {
      io::asio::post(context_, [this, why = std::move(why)] { give_up(why, true); });
    };
    if (device.kind == DeviceChoice::Kind::kCuda) options.device = device.number;
    options.shard.on_device_lost = [this](std::string why) {
      io::asio::post(context_, [this, why = std::move(why)] { give_up(why, false); });
    };
    auto started = kv::Server::start(std::move(options));
    if (!started) return tl::unexpected(started.error());
    server_ = std::move(*started);
    ready_.address = env_.bind;
    ready_.port = server_->port();
    agent_.send(ready_);
    group_.spawn(report());
    return {};
  }

  static bool is_in_use(const Result<void>& started) {
    return !started && started.error().kind == ErrorKind::kUnavailable;
  }

  io::awaitable<void> serve() {
    const auto checkpoint = open_checkpoint();
    Result<void> started;
    const auto device = choose_device();
    if (device && checkpoint)
      started = start(*checkpoint, *device);
    else if (device)
      give_up(checkpoint.error().message, true);
    const bool is_replacement = env_.id != env_.server_index && env_.data.server_port != 0;
    for (int i = 0; i < kPortTries && is_replacement && is_in_use(started); ++i) {
      co_await io::sleep_for(kPortPause);
      started = start(*checkpoint, *device);
    }
    if (!started) give_up(started.error().message, false);
    std::function<void(const wire::Frame&)> handler = [this](const wire::Frame& frame) {
      take(frame);
    };
    const Error error = co_await agent_.run(group_, std::move(handler));
    log_.error("server {}: {}; the job is over", env_.id, error.message);
    exit_code_ = 1;
    group_.cancel();
  }

  void take(const wire::Frame& frame) {
    if (frame.type != ServerCommit::kType || !server_) return;
    const auto commit = wire::parse<ServerCommit>(frame.body);
    if (!commit) return log_.warn("server {}: {}", env_.id, commit.error().message);
    server_->commit(*commit, [this, generation = commit->generation](bool applied) {
      if (!applied) return;
      io::asio::post(context_, [this, generation] { agent_.send(CommitAck{generation}); });
    });
  }

  io::awaitable<void> report() {
    for (;;) {
      co_await io::sleep_for(kReportEvery - kLoopsHave);
      server_->refresh();
      co_await io::sleep_for(kLoopsHave);  // tidy: allow (how long they have: none is waited for)
      if (const auto report = pace_.take(server_->traffic())) agent_.send(*report);
      tell_kept_out();
      tell_nonfinite();
    }
  }

  void tell_kept_out() {
    const kv::ServerCounters counters = server_->counters();
    const KeptOut now{counters.refused_strangers, counters.dropped_connections, counters.fenced};
    if (now == kept_out_told_) return;
    agent_.send(now);
    kept_out_told_ = now;
  }

  /// Once a minute at most: a training that has diverged makes them in every step.
  void tell_nonfinite() {
    const auto now = std::chrono::steady_clock::now();
    const auto count = server_->counters().nonfinite;
    if (count == nonfinite_told_ || now < tell_nonfinite_at_) return;
    log_.warn("server {}: {} elements of gradients were infinite or NaN{}", env_.id,
              count - nonfinite_told_, nonfinite_told_ > 0 ? " since this was last said" : "");
    nonfinite_told_ = count;
    tell_nonfinite_at_ = now + 60s;
  }

  void give_up(const std::string& why, bool is_checkpoint, int exit_code = 1) {
    if (exit_code_ != 0) return;
    log_.error("{}", why);
    agent_.send(GivingUp{why, is_checkpoint});
    exit_code_ = exit_code;
    group_.spawn(say_and_stop());
  }

  /// Gives the last message time to reach the agent.
  io::awaitable<void> say_and_stop() {
    co_await io::sleep_for(200ms);
    co_await agent_.flush();
    group_.cancel();
  }

  io::awaitable<void> stop_on_signal() {
    io::asio::signal_set signals(context_, SIGTERM, SIGINT);
    co_await signals.async_wait(io::tok);
    group_.cancel();
  }

  kv::JobEnvironment env_;
  std::uint32_t loops_;
  DeviceChoice device_;
  io::Log& log_;
  io::asio::io_context context_{1};
  io::TaskGroup group_;
  kv::AgentSocket agent_;
  kv::ReportPace pace_;
  std::unique_ptr<kv::Server> server_;
  ServerReady ready_;  ///< The fields that are known so far.
  KeptOut kept_out_told_;
  std::uint64_t nonfinite_told_ = 0;
  std::chrono::steady_clock::time_point tell_nonfinite_at_{};
  int exit_code_ = 0;
};

struct CommandLine {
  std::uint32_t loops = 0;  ///< 0: as many as suit the machine and the job.
  std::string device;       ///< Empty: taken from the environment.
};

io::Flags flags_of(CommandLine& line) {
  // clang-format off
  return {{"Options", {
      {.name = "loops", .value = "N", .to = &line.loops, .least = 1, .most = 1024,
       .help = "event loops; default: one per usable core, at most 8 and so few that workers "
           "have at most 4096 connections",
       .manual = "Event loops, each with its own chunks: one per usable core, at most 8, and so "
           "few that the connections of all workers that may come (--max-workers, else -n) to "
           "all loops are at most 4096."},
      {.name = "device", .value = "cpu|auto|cuda:N", .to = &line.device, .check = io::check_device,
       .help = "where values are; default: the variable DT_SERVER_DEVICE, else cpu",
       .manual = "Where values, optimizer states and sums are kept and computed, as "
           "--server-device of `dtlaunch`(1) has it; default: the variable DT_SERVER_DEVICE, "
           "else cpu."},
      {.name = "version"},
      {.name = "help"},
  }}};
  // clang-format on
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line;
  const io::Flags flags = flags_of(line);
  const io::Program program{.name = "dtserver",
                            .version = version_text("dtserver"),
                            .usage =
                                "Usage: dtserver [OPTIONS]\n"
                                "A kvstore server of a job. The host's agent starts it; "
                                "everything else it needs\nis in its environment.\n"};
  const auto given = io::parse(program, flags, {argv + 1, argv + argc});
  if (!given) return io::refuse(program, given.error());
  if (const auto text = io::answer(program, flags, *given))
    return std::fputs(text->c_str(), stdout) < 0;
  ::umask(::umask(077) | 022);  // checkpoints are the user's, also where files are a group's
  io::FdLog log(STDERR_FILENO);
  auto env = kv::read_environment(Role::kServer);
  if (!env) {
    log.error("dtserver: {}", env.error().message);
    return kExitUsage;
  }
  const std::uint32_t workers = std::max(env->num_workers, env->max_workers);
  const std::uint32_t loops =
      line.loops > 0 ? line.loops : kv::loops_for(workers, io::usable_cores());
  const auto lack = kv::lacking_descriptors(kv::raise_descriptor_limit(), workers, loops);
  if (!lack.empty()) log.warn("server {}: {}", env->id, lack);
  const auto device = parse_device(line.device.empty() ? env->data.server_device : line.device);
  return ServerProcess(std::move(*env), loops, *device, log).run();
}
