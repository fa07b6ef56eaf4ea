#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "core/protocol/gpu_health.h"
#include "io/nvml.h"
#include "io/process_tree.h"
#include "io/within.h"
#include "launcher/agent/child.h"
#include "launcher/agent/internal.h"

namespace dt::launcher {
namespace {

using io::tok;
using namespace std::chrono_literals;

/// Whatever a supervisor asks for: the beat also paces the watch over its silence.
constexpr Duration kFastestBeat = 10ms;
constexpr Duration kSlowestBeat = 10s;
/// Often enough for people who look at status.
constexpr auto kUsageInterval = 5s;
/// Output waiting in the link's queue; small, so that a Beat behind it is not late.
constexpr std::size_t kLinkWindow = std::size_t{256} << 10;

std::uint32_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    return static_cast<std::uint32_t>(CPU_COUNT(&set));
  const long n = ::sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? static_cast<std::uint32_t>(n) : 1;
}

std::string machine_name(const std::string& boot_id) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return fmt::format("{}/{}/{}", first_line("/etc/machine-id"), boot_id, host);
}

}  // namespace

std::string Agent::objection(const AgentHello& hello) const {
  if (hello.version != kProtocolVersion)
    return fmt::format("the agent speaks version {} of the protocol, the supervisor {}",
                       kProtocolVersion, hello.version);
  if (hello.job != options_.job || hello.host != options_.host)
    return fmt::format("this agent belongs to job {} on host {}, not to job {} on host {}",
                       options_.job, options_.host, hello.job, hello.host);
  if (hello.term < term_)
    return fmt::format("a supervisor of term {} has taken over from term {}", term_, hello.term);
  if (stop_requested_) return "the agent is stopping";
  return {};
}

awaitable<void> Agent::refuse(Channel channel, std::string why) {
  Refused refused;
  refused.why = std::move(why);
  channel->send(refused);
  asio::steady_timer deadline(executor_, kFarewellDeadline);
  using namespace asio::experimental::awaitable_operators;
  auto race = channel->flush() || deadline.async_wait(tok);
  co_await std::move(race);
}

awaitable<void> Agent::serve_supervisor(Channel channel, AgentHello hello) {
  if (auto why = objection(hello); !why.empty()) {
    log_.warn("refused a supervisor: {}", why);
    ++kept_out_.refused;
    co_await refuse(channel, std::move(why));
    co_return;
  }
  attach(channel, hello);
  for (;;) {
    auto frame = co_await channel->receive();
    if (!frame) {
      if (frame.error().kind == ErrorKind::kProtocol) {
        ++kept_out_.dropped;
        log_.warn("supervisor link dropped: {}", frame.error().message);
      }
      break;
    }
    if (channel != link_) break;  // replaced: nothing it says counts any more
    heard_at_ = Clock::now();
    if (auto done = obey(*frame); !done) {
      ++kept_out_.dropped;
      log_.warn("supervisor link dropped: {}", done.error().message);
      break;
    }
  }
  detach(channel);
}

void Agent::attach(Channel channel, const AgentHello& hello) {
  if (link_) link_->close();
  link_ = std::move(channel);
  was_attached_ = true;
  keeps_alive_ = false;
  heard_at_ = Clock::now();
  kept_out_told_ = {};
  gpu_health_told_ = {};
  adopt(hello);
  for (const auto& [id, offset] : hello.received)
    if (const auto found = processes_.find(id); found != processes_.end())
      found->second->spool.rewind(offset);
  tell(state());
  pump_wake_.cancel();
}

void Agent::detach(const Channel& channel) {
  if (channel != link_) return;
  link_.reset();
  alone_since_ = Clock::now();
}

AgentState Agent::state() {
  AgentState state;
  state.boot_id = boot_id_;
  state.incarnation = incarnation_;
  state.cores = usable_cores();
  state.machine = machine_name(boot_id_);
  state.place = place();
  for (auto& [id, process] : processes_) {
    ProcessReport report;
    report.process = id;
    report.pid = process->pid;
    report.said.assign(process->said.begin(), process->said.end());
    // An exit comes after all output: with output still to be sent, it follows that.
    process->exit_told = process->exit && process->spool.empty() && process->failure.empty();
    if (process->exit_told) report.exit = process->exit;
    state.processes.push_back(std::move(report));
  }
  return state;
}

// ---------------------------------------------------------------- what it asks for

template <class Message>
Result<void> Agent::obey_as(const wire::Frame& frame) {
  auto message = wire::parse<Message>(frame.body);
  if (!message) return tl::unexpected(message.error());
  handle(*message);
  return {};
}

Result<void> Agent::obey(const wire::Frame& frame) {
  switch (frame.type) {
    case AgentHello::kType:
      return obey_as<AgentHello>(frame);
    case StartProcess::kType:
      return obey_as<StartProcess>(frame);
    case StopProcess::kType:
      return obey_as<StopProcess>(frame);
    case AckExit::kType:
      return obey_as<AckExit>(frame);
    case AskProcess::kType:
      return obey_as<AskProcess>(frame);
    case CheckFolder::kType:
      return obey_as<CheckFolder>(frame);
    case ToProcess::kType:
      return obey_as<ToProcess>(frame);
    case Shutdown::kType:
      return obey_as<Shutdown>(frame);
    default:
      return fail(ErrorKind::kProtocol, "unknown message of type {}", frame.type);
  }
}

void Agent::handle(const AgentHello& hello) {
  if (objection(hello).empty()) adopt(hello);
  keeps_alive_ = true;
}

void Agent::adopt(const AgentHello& hello) {
  term_ = hello.term;
  orphan_timeout_ = std::chrono::milliseconds(hello.orphan_timeout_ms);
  beat_ =
      std::clamp<Duration>(std::chrono::milliseconds(hello.beat_ms), kFastestBeat, kSlowestBeat);
}

void Agent::handle(const StartProcess& start_message) {
  const ProcessId id = start_message.process;
  if (const auto gone = forgotten_.find(id); gone != forgotten_.end()) {
    ProcessExited exited;
    exited.process = id;
    exited.status = gone->second;
    return tell(exited);
  }
  if (const auto known = processes_.find(id); known != processes_.end()) {
    Process& process = *known->second;
    if (process.exit) {
      process.exit_told = false;
      pump_wake_.cancel();
    } else if (process.running) {
      ProcessStarted started;
      started.process = id;
      started.pid = process.pid;
      tell(started);
    }
    return;
  }
  auto process = std::make_shared<Process>(executor_, id, options_.spool_bytes);
  processes_.emplace(id, process);
  auto started = stop_requested_
                     ? fail(ErrorKind::kClosed, "the agent on host {} is stopping", options_.host)
                     : start(*process, start_message);
  if (!started) {
    process->failure = started.error().message;
    process->exit = ExitStatus{126, 0};
    pump_wake_.cancel();
    return;
  }
  tasks_.spawn(live(process));
  if (id.role != Role::kWorker) return;
  decltype(start_message.env) environment;
  for (const auto& variable : start_message.env)
    if (variable.first == io::kNvmlVariable) environment.push_back(variable);
  gpus_.begin(std::move(environment));
}

GpuHealth Agent::gpu_health() const {
  GpuHealth health;
  health.trouble = gpus_.trouble();
  health.gpus = gpus_.gpus();
  if (health.gpus.empty()) return health;
  for (const auto& [id, process] : processes_)
    if (id.role == Role::kWorker && process->running && !process->exit)
      health.workers.emplace_back(WorkerId(id.id),
                                  visible_gpus(process->cuda_visible_devices, health.gpus));
  return health;
}

void Agent::handle(const StopProcess& message) {
  const auto found = processes_.find(message.process);
  if (found != processes_.end()) stop(found->second, message.grace_ms);
}

void Agent::handle(const AckExit& ack) {
  const auto found = processes_.find(ack.process);
  if (found == processes_.end() || !found->second->exit) return;
  forgotten_[ack.process] = *found->second->exit;
  processes_.erase(found);
}

void Agent::handle(const AskProcess& question) {
  const auto found = processes_.find(question.process);
  if (found == processes_.end() || found->second->pid == 0 || found->second->reaped) return;
  ProcessState state;
  state.process = question.process;
  state.text = process_states(found->second->pid);
  tell(state);
}

void Agent::handle(const CheckFolder& question) { tasks_.spawn(check_folder(question.folder)); }

awaitable<void> Agent::check_folder(std::string folder) {
  FolderChecked checked;
  checked.folder = folder;
  auto answer = ask_folder(folder);
  if (answer) {
    asio::posix::stream_descriptor pipe(executor_, answer->release());
    checked.error = EIO;  // unless it says otherwise before it ends
    const auto buffer = asio::buffer(&checked.error, sizeof checked.error);
    co_await pipe.async_read_some(buffer, tok);
  } else {
    log_.warn("{}", answer.error().message);  // no reason to keep the host out
  }
  tell(checked);
}

awaitable<void> Agent::tell_usage() {
  for (;;) {
    co_await io::sleep_for(kUsageInterval);
    Usage usage;
    for (const auto& [id, process] : processes_)
      if (link_ && process->running && !process->reaped)
        usage.resident.emplace_back(id, resident_bytes(process->pid));
    if (!usage.resident.empty()) tell(usage);
  }
}

void Agent::handle(const ToProcess& message) {
  const auto found = processes_.find(message.process);
  if (found == processes_.end() || found->second->exit) return;
  Process& process = *found->second;
  if (process.connection && process.connection->is_open())
    process.connection->send_bytes(wire::frame(message.type, message.body));
  else
    process.waiting[message.type] = message.body;
}

void Agent::handle(const Shutdown& shutdown) { request_stop(shutdown.grace_ms, {}); }

// ---------------------------------------------------------------- output

bool Agent::send_piece(Process& process) {
  if (!process.running && !process.exit) return false;  // ProcessStarted comes before its output
  if (!process.spool.empty()) {
    auto piece = process.spool.pop();
    Output output;
    output.process = process.id;
    output.is_stderr = piece.is_stderr;
    output.bytes = std::move(piece.bytes);
    output.lost_before = piece.lost_before;
    output.offset = piece.offset;
    tell(output);
    for (auto& room : process.room) room.cancel();
    return true;
  }
  if (!process.exit || process.exit_told) return false;
  process.exit_told = true;
  if (process.failure.empty()) {
    ProcessExited exited;
    exited.process = process.id;
    exited.status = *process.exit;
    tell(exited);
  } else {
    ProcessFailed failed;
    failed.process = process.id;
    failed.why = process.failure;
    tell(failed);
  }
  return true;
}

awaitable<void> Agent::pump() {
  for (;;) {
    const Channel link = link_;
    bool sent = false;
    auto next = processes_.upper_bound(last_served_);
    for (std::size_t n = processes_.size(); link && n > 0; --n, ++next) {
      if (link->queued_bytes() >= kLinkWindow) break;
      if (next == processes_.end()) next = processes_.begin();
      last_served_ = next->first;
      sent |= send_piece(*next->second);
    }
    if (link && link->queued_bytes() < kLinkWindow) link_moved_ = Clock::now();
    if (link && link->queued_bytes() >= kLinkWindow)
      co_await link->flush();
    else if (!sent)
      co_await pump_wake_.async_wait(tok);
  }
}

}  // namespace dt::launcher
