#include "launcher/agent.h"

#include <fcntl.h>
#include <pwd.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "core/messages.h"
#include "io/frame_channel.h"
#include "io/log.h"
#include "io/task_group.h"
#include "io/within.h"
#include "launcher/attach.h"
#include "launcher/child.h"
#include "launcher/guard.h"
#include "launcher/spool.h"
#include "launcher/sweep.h"

namespace dt::launcher {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using io::tok;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;
using Channel = std::shared_ptr<io::FrameChannel>;

/// Output waiting in the link's queue; small, so that a Beat behind it is not late.
constexpr std::size_t kLinkWindow = std::size_t{256} << 10;
/// A spool fuller than this share makes its process wait, as long as the supervisor takes output;
/// after this time without progress the oldest is dropped instead: output never stops training.
constexpr std::size_t kFullShare = 2;
constexpr auto kStalledLink = 500ms;
/// Sent output kept per process for a supervisor that did not get it: more than is ever on its way.
constexpr std::size_t kKeptOutput = std::size_t{4} << 20;
/// Connections that have not said who they are, and how long they may take.
constexpr std::size_t kMaxStrangers = 32;
constexpr auto kIdentifyDeadline = 5s;
/// A process's pipes and connection after its end: a descriptor may have gone anywhere.
constexpr auto kDrainDeadline = 1s;
/// Killing leftovers takes milliseconds unless the kernel cannot end them.
constexpr auto kSweepDeadline = 2s;
constexpr auto kFarewellDeadline = 2s;
/// Beyond its grace, what a shutdown waits for before it leaves the rest to the guard.
constexpr auto kShutdownSlack = 5s;
constexpr std::uint32_t kTermSignalGrace_ms = 5000;
/// Kinds of message kept per process.
constexpr std::size_t kMaxSaid = 64;
constexpr auto kHousekeeping = 250ms;
constexpr int kListenBacklog = 64;

std::string read_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string random_hex(std::size_t bytes) {
  std::string raw(bytes, '\0');
  DT_CHECK(::getrandom(raw.data(), bytes, 0) == static_cast<ssize_t>(bytes), "no random numbers");
  std::string hex;
  for (const char c : raw) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return hex;
}

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
  return fmt::format("{}/{}/{}", read_line("/etc/machine-id"), boot_id, host);
}

std::string home_folder() {
  if (const char* home = std::getenv("HOME"); home && *home) return home;
  const passwd* user = ::getpwuid(::geteuid());
  return user && user->pw_dir ? user->pw_dir : "/";
}

/// One process of the job, from its start until its exit is acknowledged.
struct Process {
  Process(asio::any_io_executor executor, ProcessId process, std::size_t spool_bytes)
      : id(process),
        spool(spool_bytes, kKeptOutput),
        pidfd(executor),
        exec_result(executor),
        out(executor),
        err(executor),
        room{asio::steady_timer(executor), asio::steady_timer(executor)},
        changed(executor, asio::steady_timer::time_point::max()),
        kill_timer(executor, asio::steady_timer::time_point::max()) {}

  ProcessId id;
  std::string command;
  std::string token = random_hex(16);
  pid_t pid = 0;
  Spool spool;
  asio::posix::stream_descriptor pidfd;
  asio::posix::stream_descriptor exec_result;
  asio::posix::stream_descriptor out;
  asio::posix::stream_descriptor err;
  std::array<asio::steady_timer, 2> room;  ///< A reader each, while the spool is rather full.
  asio::steady_timer changed;              ///< finish_streams waits on it.
  asio::steady_timer kill_timer;           ///< kill_later waits on it.

  bool running = false;            ///< exec went well.
  bool reaped = false;             ///< pid may be somebody else's now.
  std::string failure;             ///< Why it could not be started.
  std::optional<ExitStatus> exit;  ///< Set when all of it has ended and its pipes are drained.
  bool exit_told = false;          ///< To the present supervisor.
  int open_pipes = 0;

  bool stopping = false;
  Clock::time_point kill_at = Clock::time_point::max();
  std::vector<io::Fd> seen_below;  ///< Descendants when it was told to stop.

  std::map<std::uint16_t, std::string> said;     ///< Latest FromProcess of each type.
  std::map<std::uint16_t, std::string> waiting;  ///< Latest ToProcess until it connects.
  Channel connection;
};
using ProcessPtr = std::shared_ptr<Process>;

class Agent {
 public:
  Agent(asio::io_context& context, AgentOptions options, AgentFiles files, GuardPlan plan,
        Guard guard, std::uint64_t incarnation, mode_t user_umask)
      : executor_(context.get_executor()),
        options_(std::move(options)),
        files_(std::move(files)),
        plan_(std::move(plan)),
        guard_(std::move(guard)),
        incarnation_(incarnation),
        umask_(user_umask),
        boot_id_(read_line("/proc/sys/kernel/random/boot_id")),
        log_(STDERR_FILENO),
        acceptor_(context),
        tasks_(executor_),
        pump_wake_(executor_, asio::steady_timer::time_point::max()),
        stop_wake_(executor_, asio::steady_timer::time_point::max()) {}

  [[nodiscard]] Result<void> listen();
  awaitable<void> run();

 private:
  // Connections.
  awaitable<void> accept_all();
  awaitable<void> serve(io::UnixSocket socket);
  awaitable<void> write_frames(Channel channel);
  awaitable<void> serve_supervisor(Channel channel, AgentHello hello);
  awaitable<void> serve_process(Channel channel, Identify identify);
  awaitable<void> refuse(Channel channel, std::string why);
  [[nodiscard]] std::string objection(const AgentHello& hello) const;
  void attach(Channel channel, const AgentHello& hello);
  void detach(const Channel& channel);
  [[nodiscard]] AgentState state();

  // What a supervisor asks for.
  [[nodiscard]] Result<void> obey(const wire::Frame& frame);
  template <class Message>
  [[nodiscard]] Result<void> obey_as(const wire::Frame& frame);
  void handle(const AgentHello& hello);
  void adopt(const AgentHello& hello);
  void handle(const StartProcess& start);
  void handle(const StopProcess& stop);
  void handle(const AckExit& ack);
  void handle(const ToProcess& message);
  void handle(const Shutdown& shutdown);
  template <class Message>
  void tell(const Message& message) {
    if (link_) link_->send(message);
  }

  // Processes.
  awaitable<void> live(ProcessPtr process);
  awaitable<void> wait_for_exec(ProcessPtr process);
  awaitable<void> drain(ProcessPtr process, bool is_stderr);
  awaitable<void> wait_for_room(ProcessPtr process, bool is_stderr);
  awaitable<void> end_leftovers(ProcessPtr process);
  awaitable<void> finish_streams(ProcessPtr process);
  awaitable<void> kill_later(ProcessPtr process);
  [[nodiscard]] Result<void> start(Process& process, const StartProcess& start);
  void stop(const ProcessPtr& process, std::uint32_t grace_ms);
  void kill_now(Process& process);
  /// Orphans without any mark (own session, own environment) can be told apart from the children of
  /// others only when there are no others.
  void kill_anonymous();

  // Output to the supervisor.
  awaitable<void> pump();
  bool send_piece(Process& process);

  // Around it all.
  awaitable<void> housekeeping();
  awaitable<void> watch_guard();
  awaitable<void> watch_signals();
  awaitable<void> stop_all();
  awaitable<void> sweep_all();
  void check_loneliness();
  void reap_adopted();
  void request_stop(std::uint32_t grace_ms, std::string why);

  asio::any_io_executor executor_;
  AgentOptions options_;
  AgentFiles files_;
  GuardPlan plan_;
  Guard guard_;
  std::uint64_t incarnation_;
  mode_t umask_;
  std::string boot_id_;
  io::FdLog log_;
  asio::local::stream_protocol::acceptor acceptor_;
  io::TaskGroup tasks_;
  asio::steady_timer pump_wake_;
  asio::steady_timer stop_wake_;

  std::size_t strangers_ = 0;
  Channel link_;  ///< The supervisor's, or none.
  Term term_;
  Clock::time_point link_moved_;  ///< When it last had room for more output.
  bool was_attached_ = false;
  Clock::time_point heard_at_;  ///< The supervisor's last message.
  bool keeps_alive_ = false;    ///< It repeats AgentHello, so its silence means something.
  Clock::time_point alone_since_ = Clock::now();
  Duration orphan_timeout_ = 300s;
  Duration beat_ = 250ms;
  std::uint64_t beats_ = 0;

  std::map<ProcessId, ProcessPtr> processes_;
  std::map<ProcessId, ExitStatus> forgotten_;  ///< Acknowledged: an id never starts twice.
  ProcessId last_served_;                      ///< By the pump: everyone's turn comes.
  bool stop_requested_ = false;
  std::uint32_t stop_grace_ms_ = 0;
};

// ---------------------------------------------------------------- connections

Result<void> Agent::listen() {
  ::unlink(files_.socket.c_str());
  boost::system::error_code ec;
  acceptor_.open(asio::local::stream_protocol(), ec);
  const mode_t before = ::umask(0177);
  if (!ec) acceptor_.bind(files_.socket, ec);
  ::umask(before);
  if (!ec) acceptor_.listen(kListenBacklog, ec);
  if (ec) return tl::unexpected(io::asio_error(ec, "listen on " + files_.socket));
  return {};
}

awaitable<void> Agent::accept_all() {
  for (;;) {
    io::UnixSocket socket(executor_);
    auto [ec] = co_await acceptor_.async_accept(socket, tok);
    if (ec == asio::error::operation_aborted) co_return;
    if (ec) {  // out of descriptors, for instance: later may be better
      co_await io::sleep_for(100ms);
      continue;
    }
    ucred peer{};
    socklen_t size = sizeof peer;
    const bool known =
        ::getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    if (!known || peer.uid != ::geteuid() || strangers_ >= kMaxStrangers) continue;
    tasks_.spawn(serve(std::move(socket)));
  }
}

awaitable<void> Agent::write_frames(Channel channel) { co_await channel->write_loop(); }

awaitable<void> Agent::serve(io::UnixSocket socket) {
  auto channel = std::make_shared<io::FrameChannel>(executor_, io::unix_stream(std::move(socket)));
  ++strangers_;
  auto receiving = channel->receive();
  auto first = co_await io::within(kIdentifyDeadline, std::move(receiving), "first message");
  --strangers_;
  if (first && first->type == AgentHello::kType) {
    if (auto hello = wire::parse<AgentHello>(first->body); hello) {
      tasks_.spawn(write_frames(channel));
      co_await serve_supervisor(channel, std::move(*hello));
    }
  } else if (first && first->type == Identify::kType) {
    if (auto identify = wire::parse<Identify>(first->body); identify) {
      tasks_.spawn(write_frames(channel));
      co_await serve_process(channel, std::move(*identify));
    }
  }
  channel->close();
}

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
    co_await refuse(channel, std::move(why));
    co_return;
  }
  attach(channel, hello);
  for (;;) {
    auto frame = co_await channel->receive();
    if (!frame) {
      if (frame.error().kind == ErrorKind::kProtocol)
        log_.warn("supervisor link dropped: {}", frame.error().message);
      break;
    }
    if (channel != link_) break;  // replaced: nothing it says counts any more
    heard_at_ = Clock::now();
    if (auto done = obey(*frame); !done) {
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

awaitable<void> Agent::serve_process(Channel channel, Identify identify) {
  const auto found = processes_.find(identify.process);
  if (found == processes_.end() || found->second->token != identify.token) {
    log_.warn("dropped a connection that claimed to be {}", to_string(identify.process));
    co_return;
  }
  const ProcessPtr process = found->second;
  if (process->connection) process->connection->close();
  process->connection = channel;
  for (const auto& [type, body] : process->waiting) channel->send_bytes(wire::frame(type, body));
  process->waiting.clear();
  for (;;) {
    auto frame = co_await channel->receive();
    if (!frame || process->connection != channel) break;
    const bool is_new = !process->said.contains(frame->type);
    if (is_new && process->said.size() >= kMaxSaid) break;
    FromProcess relayed;
    relayed.process = process->id;
    relayed.type = frame->type;
    relayed.body = frame->body;
    tell(relayed);
    process->said[frame->type] = std::move(frame->body);
  }
  if (process->connection == channel) process->connection.reset();
  process->changed.cancel();
}

// ---------------------------------------------------------------- what a supervisor asks for

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
  beat_ = std::chrono::milliseconds(std::max<std::uint32_t>(hello.beat_ms, 10));
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

void Agent::request_stop(std::uint32_t grace_ms, std::string why) {
  if (!why.empty()) log_.warn("stopping everything: {}", why);
  if (stop_requested_) grace_ms = std::min(grace_ms, stop_grace_ms_);
  stop_requested_ = true;
  stop_grace_ms_ = grace_ms;
  for (auto& [id, process] : processes_) stop(process, grace_ms);
  stop_wake_.cancel();
}

// ---------------------------------------------------------------- processes

/// PATH as the process would have it, with this program's folder last: dtserver lies beside the
/// agent wherever that was copied to.
std::string path_with_own_folder(const std::vector<std::pair<std::string, std::string>>& env) {
  const char* inherited = std::getenv("PATH");
  std::string path = inherited ? inherited : "/usr/local/bin:/usr/bin:/bin";
  for (const auto& [name, value] : env)
    if (name == "PATH") path = value;
  std::error_code ec;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ec);
  return ec ? path : path + ":" + self.parent_path().string();
}

Result<void> Agent::start(Process& process, const StartProcess& message) {
  auto overrides = message.env;
  overrides.emplace_back("DT_AGENT_SOCKET", files_.socket);
  overrides.emplace_back("DT_TOKEN", process.token);
  const std::size_t equals = plan_.mark.find('=');
  overrides.emplace_back(plan_.mark.substr(0, equals), plan_.mark.substr(equals + 1));
  overrides.emplace_back("PATH", path_with_own_folder(message.env));

  ChildSpec spec;
  spec.argv = message.argv;
  spec.environment = merge_environment(environ, overrides);
  spec.cwd = message.cwd;
  spec.home = home_folder();
  spec.umask = umask_;
  process.command = message.argv.empty() ? std::string() : message.argv[0];
  auto child = start_child(spec);
  if (!child) return tl::unexpected(child.error().at("host " + options_.host));
  process.pid = child->pid;
  guard_.group_started(child->pid);
  process.pidfd.assign(child->pidfd.release());
  process.exec_result.assign(child->exec_result.release());
  process.out.assign(child->out.release());
  process.err.assign(child->err.release());
  return {};
}

awaitable<void> Agent::live(ProcessPtr process) {
  process->open_pipes = 2;
  tasks_.spawn(drain(process, false));
  tasks_.spawn(drain(process, true));
  co_await wait_for_exec(process);
  co_await process->pidfd.async_wait(asio::posix::stream_descriptor::wait_read, tok);
  // Still a zombie: its number, which is its group's, cannot be given to anybody else yet.
  co_await end_leftovers(process);
  siginfo_t info{};
  const auto pidfd = static_cast<id_t>(process->pidfd.native_handle());
  ::waitid(static_cast<idtype_t>(3) /* P_PIDFD */, pidfd, &info, WEXITED | WNOHANG);
  process->reaped = true;
  for (auto& room : process->room) room.cancel();
  process->kill_timer.cancel();
  guard_.group_ended(process->pid);
  kill_anonymous();
  co_await finish_streams(process);

  ExitStatus status;
  if (info.si_code == CLD_EXITED)
    status.code = info.si_status;
  else
    status.signal = info.si_status;
  process->exit = status;
  process->waiting.clear();
  process->seen_below.clear();
  pump_wake_.cancel();
  stop_wake_.cancel();
  reap_adopted();
}

awaitable<void> Agent::wait_for_exec(ProcessPtr process) {
  int number = 0;
  const auto buffer = asio::buffer(&number, sizeof number);
  auto [ec, n] = co_await process->exec_result.async_read_some(buffer, tok);
  process->exec_result.close();
  if (n == sizeof number) {
    process->failure = explain_exec_failure(number, process->command, options_.host);
    co_return;
  }
  process->running = true;
  ProcessStarted started;
  started.process = process->id;
  started.pid = process->pid;
  tell(started);
  pump_wake_.cancel();
}

awaitable<void> Agent::drain(ProcessPtr process, bool is_stderr) {
  auto& pipe = is_stderr ? process->err : process->out;
  std::string buffer(Spool::kPieceSize, '\0');
  for (;;) {
    auto [ec, n] = co_await pipe.async_read_some(asio::buffer(buffer), tok);
    if (ec) break;
    process->spool.push(is_stderr, std::string_view(buffer).substr(0, n));
    pump_wake_.cancel();
    co_await wait_for_room(process, is_stderr);
  }
  --process->open_pipes;
  process->changed.cancel();
}

awaitable<void> Agent::wait_for_room(ProcessPtr process, bool is_stderr) {
  const std::size_t enough = options_.spool_bytes / kFullShare;
  while (link_ && process->spool.bytes() > enough && !process->reaped &&
         Clock::now() < link_moved_ + kStalledLink) {
    asio::steady_timer& room = process->room[is_stderr];
    room.expires_at(link_moved_ + kStalledLink);
    co_await room.async_wait(tok);
  }
}

awaitable<void> Agent::end_leftovers(ProcessPtr process) {
  const auto deadline = Clock::now() + kSweepDeadline;
  const std::string token = "DT_TOKEN=" + process->token;
  for (;;) {
    ::kill(-process->pid, SIGKILL);
    for (const auto& below : process->seen_below) signal_pidfd(below, SIGKILL);
    const auto left = marked_processes(token);
    if (left.empty()) co_return;
    for (const auto& one : left) signal_pidfd(one, SIGKILL);
    if (Clock::now() > deadline) {
      log_.warn("{}: {} of its processes cannot be killed", to_string(process->id), left.size());
      co_return;
    }
    co_await io::sleep_for(5ms);
  }
}

void Agent::kill_anonymous() {
  for (const auto& [id, process] : processes_)
    if (process->pid != 0 && !process->reaped) return;
  for (const auto& one : descendants(::getpid(), guard_.pid())) signal_pidfd(one, SIGKILL);
}

awaitable<void> Agent::finish_streams(ProcessPtr process) {
  const auto deadline = Clock::now() + kDrainDeadline;
  while ((process->open_pipes > 0 || process->connection) && Clock::now() < deadline) {
    process->changed.expires_at(deadline);
    co_await process->changed.async_wait(tok);
  }
  if (process->connection) process->connection->close();
  boost::system::error_code ignored;
  process->out.close(ignored);
  process->err.close(ignored);
  // The readers end at their next step, and only then is the spool complete.
  while (process->open_pipes > 0) {
    process->changed.expires_at(asio::steady_timer::time_point::max());
    co_await process->changed.async_wait(tok);
  }
}

void Agent::stop(const ProcessPtr& process, std::uint32_t grace_ms) {
  if (process->reaped || process->exit) return;
  const auto kill_at = Clock::now() + std::chrono::milliseconds(grace_ms);
  process->kill_at = std::min(process->kill_at, kill_at);
  process->kill_timer.cancel();
  if (process->stopping) return;
  process->stopping = true;
  if (grace_ms > 0) {
    process->seen_below = descendants(process->pid);
    ::kill(-process->pid, SIGTERM);
    ::kill(-process->pid, SIGCONT);  // a stopped process has to run to end
  }
  tasks_.spawn(kill_later(process));
}

awaitable<void> Agent::kill_later(ProcessPtr process) {
  while (!process->reaped && Clock::now() < process->kill_at) {
    process->kill_timer.expires_at(process->kill_at);
    co_await process->kill_timer.async_wait(tok);
  }
  if (!process->reaped) kill_now(*process);
}

void Agent::kill_now(Process& process) {
  for (auto& below : descendants(process.pid)) process.seen_below.push_back(std::move(below));
  ::kill(-process.pid, SIGKILL);
}

// ---------------------------------------------------------------- output to the supervisor

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

// ---------------------------------------------------------------- around it all

awaitable<void> Agent::housekeeping() {
  for (;;) {
    co_await io::sleep_for(link_ ? beat_ : Duration(kHousekeeping));
    if (link_) {
      Beat beat;
      beat.count = ++beats_;
      tell(beat);
    }
    check_loneliness();
    reap_adopted();
  }
}

void Agent::check_loneliness() {
  if (link_ && keeps_alive_ && Clock::now() - heard_at_ > orphan_timeout_) {
    link_->close();
    link_.reset();
    alone_since_ = heard_at_;
  }
  if (link_ || stop_requested_) return;
  const Duration limit = was_attached_ ? orphan_timeout_ : options_.lonely_timeout;
  if (Clock::now() - alone_since_ < limit) return;
  request_stop(kTermSignalGrace_ms, fmt::format("no supervisor for {:.1f} s",
                                                std::chrono::duration<double>(limit).count()));
}

void Agent::reap_adopted() {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    if (info.si_pid == guard_.pid()) return;  // watch_guard takes it
    for (const auto& [id, process] : processes_)
      if (process->pid == info.si_pid && !process->reaped) return;  // live() takes it
    ::waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

awaitable<void> Agent::watch_guard() {
  for (;;) {
    asio::posix::stream_descriptor watched(executor_, ::dup(guard_.pidfd().get()));
    co_await watched.async_wait(asio::posix::stream_descriptor::wait_read, tok);
    ::waitpid(guard_.pid(), nullptr, WNOHANG);  // a replacement was our child
    auto guard = fork_new_guard(plan_);
    if (!guard) {
      log_.error("no guard: {}", guard.error().message);
      co_await io::sleep_for(1s);
      continue;
    }
    guard_ = std::move(*guard);
    for (const auto& [id, process] : processes_)
      if (process->pid != 0 && !process->reaped) guard_.group_started(process->pid);
    log_.warn("the guard was gone; process {} guards now", guard_.pid());
  }
}

awaitable<void> Agent::watch_signals() {
  asio::signal_set signals(executor_, SIGTERM, SIGINT);
  for (;;) {
    auto [ec, number] = co_await signals.async_wait(tok);
    if (ec) co_return;
    request_stop(kTermSignalGrace_ms, fmt::format("signal {}", number));
  }
}

awaitable<void> Agent::stop_all() {
  const auto began = Clock::now();
  for (;;) {
    const bool ended = std::all_of(processes_.begin(), processes_.end(),
                                   [](const auto& one) { return one.second->exit.has_value(); });
    const auto deadline = began + std::chrono::milliseconds(stop_grace_ms_) + kShutdownSlack;
    if (ended || Clock::now() > deadline) co_return;
    stop_wake_.expires_at(deadline);
    co_await stop_wake_.async_wait(tok);
  }
}

awaitable<void> Agent::sweep_all() {
  const auto deadline = Clock::now() + kSweepDeadline;
  while (Clock::now() < deadline) {
    auto left = descendants(::getpid(), guard_.pid());
    for (auto& one : marked_processes(plan_.mark)) left.push_back(std::move(one));
    if (left.empty()) break;
    for (const auto& one : left) signal_pidfd(one, SIGKILL);
    co_await io::sleep_for(5ms);
    reap_adopted();
  }
}

awaitable<void> Agent::run() {
  tasks_.spawn(accept_all());
  tasks_.spawn(pump());
  tasks_.spawn(housekeeping());
  tasks_.spawn(watch_guard());
  tasks_.spawn(watch_signals());
  while (!stop_requested_) co_await stop_wake_.async_wait(tok);

  co_await stop_all();
  co_await sweep_all();
  // Whoever is attached hears the last of it; nobody new can come.
  ::unlink(files_.socket.c_str());
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  const auto deadline = Clock::now() + kFarewellDeadline;
  const auto unsaid = [](const auto& one) {
    return !one.second->spool.empty() || !one.second->exit_told;
  };
  while (link_ && Clock::now() < deadline &&
         (link_->queued_bytes() > 0 || std::any_of(processes_.begin(), processes_.end(), unsaid)))
    co_await io::sleep_for(2ms);
  ::unlink(files_.log.c_str());
  if (link_) link_->close();
  tasks_.cancel();
  co_await tasks_.join();
}

/// Nothing of whoever started us stays open, least of all an ssh channel's pipes.
void leave_the_caller() {
  ::syscall(SYS_close_range, static_cast<unsigned>(kDaemonLockFd) + 1, ~0U, 0U);
  if (::chdir("/") != 0) ::_exit(1);
  ::fcntl(kDaemonLockFd, F_SETFD, FD_CLOEXEC);
  ::signal(SIGHUP, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_NAME, "dtagent");  // it was run as /proc/self/exe
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  DT_CHECK(::getrandom(&number, sizeof number, 0) == sizeof number, "no random numbers");
  return number;
}

}  // namespace

int agent_main(const AgentOptions& options) {
  io::FdLog log(STDERR_FILENO);
  auto files = agent_files(options.job, options.host);
  if (!files) {
    log.error("{}", files.error().message);
    return 1;
  }
  leave_the_caller();
  const mode_t user_umask = ::umask(077);
  const std::uint64_t incarnation = random_number();
  GuardPlan plan;
  plan.mark = fmt::format("DT_MARK={}/{}/{:016x}", options.job, options.host, incarnation);
  plan.files = {files->socket, files->lock};
  plan.log_file = files->log;
  plan.folder = files->folder;
  plan.lock_fd = kDaemonLockFd;
  auto guard = fork_under_guard(plan);
  if (!guard) {
    log.error("{}", guard.error().message);
    return 1;
  }
  // Orphans of our processes come to us while we live, and to the guard after that.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);

  asio::io_context context(1);
  Agent agent(context, options, *files, plan, std::move(*guard), incarnation, user_umask);
  if (auto listening = agent.listen(); !listening) {
    log.error("{}", listening.error().message);
    return 1;
  }
  std::exception_ptr failure;
  const auto done = [&failure](std::exception_ptr error) { failure = error; };
  asio::co_spawn(context, agent.run(), done);
  context.run();
  if (!failure) return 0;
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    log.error("{}", e.what());
  }
  return 1;
}

}  // namespace dt::launcher
