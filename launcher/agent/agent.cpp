#include "launcher/agent/agent.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "core/base/number.h"
#include "core/launch/allocation.h"
#include "core/protocol/gpu_health.h"
#include "io/clock.h"
#include "io/notice_signals.h"
#include "io/nvml.h"
#include "io/process_tree.h"
#include "io/subprocess.h"
#include "io/task_group.h"
#include "launcher/agent/agent_listener.h"
#include "launcher/agent/child.h"
#include "launcher/agent/gpu_watch.h"
#include "launcher/agent/kept_ports.h"
#include "launcher/agent/machine.h"
#include "launcher/agent/output_pump.h"
#include "launcher/bundle_use.h"
#include "launcher/environment.h"
#include "launcher/prune.h"

namespace dt::launcher {
namespace {

namespace asio = io::asio;
using Clock = std::chrono::steady_clock;
using io::awaitable;
using io::tok;
using namespace std::chrono_literals;

/// How long a shutdown waits beyond its grace before it leaves the rest to the guard.
constexpr auto kShutdownSlack = 5s;
constexpr std::uint32_t kTermSignalGrace_ms = 5000;
constexpr auto kHousekeeping = 250ms;
/// Signals that come sooner one after the other are one: a scheduler's to every process, and the
/// same from the bridge.
constexpr auto kOneSignal = 1s;
/// Often enough for those who look at `dtctl status`.
constexpr auto kUsageInterval = 5s;
/// In the environment of a host's parent interpreter (dtkv.run), which forks workers.
constexpr auto kWarmParent = "DT_WARM_PARENT=1";
/// For the last messages on a link that is about to be closed.
constexpr auto kFarewellDeadline = 2s;
/// How long an agent that ends waits for a supervisor that takes no output: less than that waits
/// for the agent.
constexpr auto kOutputDeadline = 8s;

std::optional<std::string> value_of(const StartProcess& message, std::string_view name) {
  for (const auto& [key, value] : message.env)
    if (key == name) return value;
  return std::nullopt;
}

/// Composes the parts: what happens in one, it passes to the others. One thread.
class Agent {
 public:
  Agent(asio::io_context& context, const AgentOptions& options, const AgentFiles& files,
        const ProcessDefaults& defaults, Guard guard, std::uint64_t incarnation)
      : executor_(context.get_executor()),
        options_(options),
        files_(files),
        defaults_(defaults),
        incarnation_(incarnation),
        guard_(files, defaults.mark, std::move(guard), log_),
        listener_(context, files.socket, processes_, kept_out_, log_) {}

  [[nodiscard]] Result<void> listen() { return listener_.listen(); }

  awaitable<void> run() {
    Listener::Handlers handlers;
    handlers.supervisor = [this](Channel channel, AgentHello hello) {
      return serve_supervisor(std::move(channel), std::move(hello));
    };
    handlers.process = [this](Channel channel, ProcessPtr process) {
      return serve_process(std::move(channel), std::move(process));
    };
    tasks_.spawn(listener_.run(tasks_, std::move(handlers)));
    tasks_.spawn(output_.run());
    tasks_.spawn(housekeeping());
    tasks_.spawn(send_usage());
    tasks_.spawn(guard_.run());
    tasks_.spawn(watch_signals());
    tasks_.spawn(keep_bundle_in_use());
    tasks_.spawn(live_and_end());
    // An exception of one (no memory) ends them all; then the guard ends the processes.
    co_await tasks_.join();
  }

 private:
  // ---------------------------------------------------------------- connections

  awaitable<void> serve_supervisor(Channel channel, AgentHello hello) {
    if (auto why = objection(hello); !why.empty()) {
      log_.warn("refused a supervisor: {}", why);
      ++kept_out_.refused;
      co_await refuse(channel, std::move(why));
      co_return;
    }
    attach(channel, hello);
    for (;;) {
      auto frame = co_await channel->receive();
      if (!frame && frame.error().kind == ErrorKind::kProtocol) count_dropped(frame.error());
      if (!frame || channel != link_.channel()) break;  // replaced: its messages are ignored
      link_.on_message(io::steady_now());
      auto done = handle_as<AgentHello, StartProcess, StopProcess, AckExit, AskProcess, CheckFolder,
                            OutputRoom, ToProcess, Shutdown>(*frame);
      if (!done) {
        count_dropped(done.error());
        break;
      }
    }
    link_.detach(channel, io::steady_now());
  }

  /// Where a job of SGE ends, who attached over qrsh cannot come back.
  [[nodiscard]] bool has_sge_ended() const {
    return sge_folder_ && ::access(sge_folder_->c_str(), F_OK) != 0 && errno == ENOENT;
  }

  void count_dropped(const Error& why) {
    ++kept_out_.dropped;
    log_.warn("supervisor link dropped: {}", why.message);
  }

  awaitable<void> refuse(Channel channel, std::string why) {
    channel->send(Refused{std::move(why), link_.term()});
    asio::steady_timer deadline(executor_, kFarewellDeadline);
    using namespace asio::experimental::awaitable_operators;
    auto race = channel->flush() || deadline.async_wait(tok);
    co_await std::move(race);
  }

  [[nodiscard]] std::string objection(const AgentHello& hello) const {
    if (hello.version != kProtocolVersion)
      return fmt::format("the agent speaks version {} of the protocol, the supervisor {}",
                         kProtocolVersion, hello.version);
    if (hello.job != options_.job || hello.host != options_.host)
      return fmt::format("this agent belongs to job {} on host {}, not to job {} on host {}",
                         options_.job, options_.host, hello.job, hello.host);
    if (hello.term < link_.term())
      return fmt::format("a supervisor of term {} has taken over from term {}", link_.term(),
                         hello.term);
    if (stop_requested_) return "the agent is stopping";
    return {};
  }

  void attach(Channel channel, const AgentHello& hello) {
    const bool is_new = hello.term != link_.term();
    link_.attach(std::move(channel), hello, io::steady_now());
    kept_out_sent_ = {};
    gpu_health_sent_ = {};
    for (const auto& [id, offset] : hello.received)
      if (const auto process = processes_.find(id)) process->output.spool.rewind(offset);
    link_.send(state());
    send_notice(true);
    output_.attached(is_new);
  }

  awaitable<void> serve_process(Channel channel, ProcessPtr process) {
    process->mailbox.connect(channel);
    for (;;) {
      auto frame = co_await channel->receive();
      if (!frame && frame.error().kind == ErrorKind::kProtocol) ++kept_out_.dropped;
      if (!frame || process->mailbox.connection() != channel) break;
      const FromProcess relayed{process->id(), frame->type, frame->body};
      if (!process->mailbox.keep(std::move(*frame))) {
        ++kept_out_.dropped;
        log_.warn("{} said too much (type {}, {} bytes): its connection is dropped",
                  to_string(process->id()), relayed.type, relayed.body.size());
        break;
      }
      link_.send(relayed);
    }
    process->mailbox.disconnect(channel);
    process->stream_ended();
  }

  // ---------------------------------------------------------------- the supervisor's messages

  /// Gives the frame to the handler of its type.
  template <class Message, class... Others>
  [[nodiscard]] Result<void> handle_as(const wire::Frame& frame) {
    if (frame.type == Message::kType) {
      auto message = wire::parse<Message>(frame.body);
      if (!message) return tl::unexpected(message.error());
      handle(*message);
      return {};
    }
    if constexpr (sizeof...(Others) > 0)
      return handle_as<Others...>(frame);
    else
      return fail(ErrorKind::kProtocol, "unknown message of type {}", frame.type);
  }

  void handle(const AgentHello& hello) {
    if (objection(hello).empty()) link_.apply(hello);
    link_.on_hello_again();
  }

  void handle(const StartProcess& message) {
    if (const ExitStatus* status = processes_.acknowledged(message.process)) {
      link_.send(ProcessExited{message.process, *status});
    } else if (const auto known = processes_.find(message.process); !known) {
      start(message);
    } else if (known->exit()) {
      known->exit_sent = false;
      output_.wake();
    } else if (known->is_running()) {
      send_started(*known);
    }
  }

  void handle(const StopProcess& message) {
    if (const auto process = processes_.find(message.process))
      process->stop(message.grace_ms, tasks_);
    output_.wake();  // it may have ended without a begin
  }

  void handle(const AckExit& ack) { processes_.acknowledge(ack.process); }

  void handle(const AskProcess& question) {
    const auto process = processes_.find(question.process);
    if (!process || !process->has_pid()) return;
    link_.send(ProcessState{question.process,
                            io::process_states(process->pid(), io::marked_children(kWarmParent))});
  }

  void handle(const CheckFolder& question) { tasks_.spawn(check_folder(question.folder)); }

  void handle(const OutputRoom& room) { output_.take(room); }

  void handle(const ToProcess& message) {
    const auto process = processes_.find(message.process);
    if (process && !process->exit()) process->mailbox.deliver(message.type, message.body);
  }

  void handle(const Shutdown& shutdown) {
    if (shutdown.takes_over)
      if (auto noted = note_take_over(files_, link_.term()); !noted)
        log_.warn("{}", noted.error().message);
    drops_output_ = drops_output_ || shutdown.drops_output;
    request_stop(shutdown.grace_ms, {});
  }

  // ---------------------------------------------------------------- what it reports

  [[nodiscard]] AgentState state() const {
    AgentState state = this_machine();
    state.incarnation = incarnation_;
    state.place = place();
    for (const auto& [id, process] : processes_) {
      if (processes_.acknowledged(id)) continue;  // nothing but output is left of it
      ProcessReport report;
      report.process = id;
      report.pid = process->is_running() ? process->pid() : 0;
      const auto& sent = process->mailbox.sent();
      report.said.assign(sent.begin(), sent.end());
      // An exit comes after all output: with output still to be sent, it follows that.
      process->exit_sent =
          process->exit() && process->output.spool.empty() && process->failure().empty();
      if (process->exit_sent) report.exit = process->exit();
      state.processes.push_back(std::move(report));
    }
    return state;
  }

  [[nodiscard]] AgentPlace place() const { return {files_.socket, ports_.master(), ports_.root()}; }

  void send_started(const Process& process) {
    link_.send(ProcessStarted{process.id(), process.pid()});
  }

  [[nodiscard]] GpuHealth gpu_health() const {
    GpuHealth health;
    health.trouble = gpus_.trouble();
    health.gpus = gpus_.gpus();
    if (health.gpus.empty()) return health;
    for (const auto& [id, process] : processes_)
      if (id.role == Role::kWorker && process->is_running() && !process->exit())
        health.workers.emplace_back(WorkerId(id.id),
                                    visible_gpus(process->cuda_visible_devices(), health.gpus));
    return health;
  }

  awaitable<void> send_usage() {
    for (;;) {
      co_await io::sleep_for(kUsageInterval);
      Usage usage;
      const std::vector<pid_t> forkers = io::marked_children(kWarmParent);
      for (const auto& [id, process] : processes_)
        if (link_.is_attached() && process->is_running() && !process->is_reaped())
          usage.resident.emplace_back(id, io::resident_bytes(process->pid(), forkers));
      usage.held = output_.held();
      if (!usage.resident.empty()) link_.send(usage);
    }
  }

  awaitable<void> check_folder(std::string folder) {
    FolderChecked checked;
    checked.folder = folder;
    auto answer = ask_folder(folder);
    if (answer) {
      asio::posix::stream_descriptor pipe(executor_, answer->release());
      checked.error = EIO;  // unless it answers before it ends
      const auto buffer = asio::buffer(&checked.error, sizeof checked.error);
      co_await pipe.async_read_some(buffer, tok);
    } else {
      log_.warn("{}", answer.error().message);  // no reason to keep the host out
    }
    link_.send(checked);
  }

  // ---------------------------------------------------------------- processes

  void start(const StartProcess& message) {
    auto process = std::make_shared<Process>(executor_, message.process);
    processes_.add(process);
    const bool gets_gpus = value_of(message, kGpusPerWorker).has_value();
    const bool watches = gets_gpus || message.process.role == Role::kWorker;
    if (watches && !std::exchange(watches_gpus_, true)) {
      decltype(message.env) environment;
      for (const auto& variable : message.env)
        if (variable.first == io::kNvmlVariable) environment.push_back(variable);
      if (gets_gpus) gpus_.hurry();
      tasks_.spawn(gpus_.run(std::move(environment)));
    }
    if (gets_gpus)
      tasks_.spawn(begin_with_gpus(process, message));
    else
      begin(process, message);
  }

  awaitable<void> begin_with_gpus(ProcessPtr process, StartProcess message) {
    co_await gpus_.answered();
    if (process->exit()) co_return;  // it was stopped
    if (auto dealt = deal(message); dealt)
      begin(process, message);
    else
      cannot_start(*process, dealt.error());
  }

  /// Adds the process's GPUs, of those that this one sees and the job may use.
  Result<void> deal(StartProcess& message) {
    auto numbers = chosen_gpus(value_of(message, kHostGpus).value_or(""),
                               io::variable(kVisibleGpus), gpus_.gpus());
    if (!numbers) return tl::unexpected(numbers.error());
    const auto number = [&message](const char* name) {
      return parse_number<std::uint32_t>(value_of(message, name).value_or("")).value_or(0);
    };
    const bool gets_all = value_of(message, kGpusPerWorker) == "all";
    GpuShare share;
    if (!gets_all) {
      if (dealt_to_ == 0) dealt_to_ = number("LOCAL_WORLD_SIZE");
      share = {number(kGpusPerWorker), dealt_to_};
    }
    std::string own = deal_gpus(gpus_.gpus(), *numbers, share, gets_all ? 0 : number("DT_SLOT"));
    if (own.empty()) return {};
    message.env.emplace_back(kVisibleGpus, std::move(own));
    if (!gets_all) message.env.emplace_back("LOCAL_RANK", "0");  // they count from 0
    return {};
  }

  void cannot_start(Process& process, const Error& error) {
    process.fail_start(error.message);
    output_.wake();
  }

  void begin(const ProcessPtr& process, const StartProcess& message) {
    auto started = stop_requested_
                       ? fail(ErrorKind::kClosed, "the agent on host {} is stopping", options_.host)
                       : process->start(message, defaults_);
    if (!started) return cannot_start(*process, started.error());
    ports_.give(process->ports());  // the child holds them until its exec
    guard_.group_started(process->pid());
    tasks_.spawn(live(process));
  }

  awaitable<void> live(ProcessPtr process) {
    tasks_.spawn(output_.read(process, false));
    tasks_.spawn(output_.read(process, true));
    if (co_await process->is_executed()) {
      send_started(*process);
      output_.wake();
    }
    co_await process->end();
    if (const std::size_t left = co_await process->end_leftovers(); left > 0)
      log_.warn("{}: {} of its processes cannot be killed", to_string(process->id()), left);
    const ExitStatus status = process->reap();
    guard_.group_ended(process->pid());
    kill_anonymous();
    if (ports_.take_again(process->ports())) link_.send(place());
    co_await process->finish_streams();
    send_error(*process, status);
    process->finish(status);
    output_.wake();
    stop_wake_.cancel();
    reap_adopted();
  }

  /// It comes before the exit, and stays known like a message of the process itself.
  void send_error(Process& process, ExitStatus status) {
    ErrorFile error{process.take_error(status)};
    if (error.json.empty()) return;
    wire::Frame frame{ErrorFile::kType, wire::body_of(error)};
    const FromProcess message{process.id(), frame.type, frame.body};
    if (process.mailbox.keep(std::move(frame))) link_.send(message);
  }

  /// Kills orphans without any mark (own session, own environment). While another process of the
  /// job lives they cannot be distinguished from its children. The host's parent interpreter
  /// (dtkv.run) stays for the next workers; like everything else it ends with this process.
  void kill_anonymous() {
    if (!processes_.all_reaped()) return;
    for (const auto& one :
         io::unmarked_descendants(::getpid(), kWarmParent, {guard_.pid(), gpus_.pid()}))
      io::signal_pidfd(one, SIGKILL);
  }

  void reap_adopted() {
    for (;;) {
      siginfo_t info{};
      if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
      // The part that waits for these reaps them.
      if (info.si_pid == guard_.pid() || info.si_pid == gpus_.pid() || processes_.owns(info.si_pid))
        return;
      ::waitpid(info.si_pid, nullptr, WNOHANG);
    }
  }

  // ---------------------------------------------------------------- its own life

  [[nodiscard]] bool has_lock() const {
    struct stat mine {};
    struct stat there {};
    return ::lstat(files_.lock.c_str(), &there) == 0 && ::fstat(kDaemonLockFd, &mine) == 0 &&
           there.st_ino == mine.st_ino && there.st_dev == mine.st_dev;
  }

  /// Makes lock and socket again, by which supervisors find this agent: a cleaner of /tmp removes
  /// them, and so does the end of the user's last session.
  void keep_files() {
    if (stop_requested_ || (has_lock() && ::access(files_.socket.c_str(), F_OK) == 0)) return;
    for (AgentFiles& place : agent_files_anywhere(options_.job, options_.host, files_, "")) {
      if (!has_lock()) {
        if (!make_agent_folder(place)) continue;
        const auto lock = take_agent_lock(place.lock);
        if (!lock || !*lock || ::dup3((*lock)->get(), kDaemonLockFd, O_CLOEXEC) < 0) continue;
      }
      has_moved_ = has_moved_ || place.socket != files_.socket;
      files_ = std::move(place);
      defaults_.socket = files_.socket;
      defaults_.folder = files_.folder;
      if (auto again = listener_.listen_again(files_.socket); !again)
        log_.warn("{}", again.error().message);
      return;
    }
  }

  awaitable<void> housekeeping() {
    for (;;) {
      keep_files();
      co_await io::sleep_for(link_.is_attached() ? link_.until_beat(io::steady_now())
                                                 : Duration(kHousekeeping));
      if (link_.is_attached()) {
        if (link_.until_beat(io::steady_now()) <= Duration{}) link_.send(Beat{++beats_});
        if (kept_out_ != kept_out_sent_) link_.send(kept_out_sent_ = kept_out_);
        if (auto health = gpu_health(); health != gpu_health_sent_)
          link_.send(gpu_health_sent_ = std::move(health));
      }
      if (const auto timeout = link_.expired_timeout(io::steady_now()); timeout && !stop_requested_)
        request_stop(kTermSignalGrace_ms,
                     fmt::format("no supervisor for {:.1f} s", seconds(*timeout)));
      else if (!link_.is_attached() && !stop_requested_ && has_sge_ended())
        request_stop(kTermSignalGrace_ms, "the job of SGE has ended here");
      reap_adopted();
    }
  }

  awaitable<void> watch_signals() {
    asio::signal_set signals(executor_, SIGTERM, SIGINT);
    const bool has_notices = options_.notice_grace > Duration{};
    if (has_notices)
      for (const int number : io::kNoticeSignals) signals.add(number);
    for (;;) {
      auto [ec, number] = co_await signals.async_wait(tok);
      if (ec) co_return;
      const Time now = io::steady_now();
      if (number == SIGINT || !has_notices || (number == SIGTERM && is_second_term(now)))
        request_stop(kTermSignalGrace_ms, fmt::format("signal {}", number));
      else
        take_notice(number, now);
    }
  }

  [[nodiscard]] bool is_second_term(Time now) const {
    return term_at_ && now - *term_at_ >= kOneSignal;
  }

  /// The first one counts: a later one does not put the host's end off.
  void take_notice(int number, Time now) {
    if (number == SIGTERM && !term_at_) term_at_ = now;
    if (notice_) return;
    notice_ = HostEnd{now + options_.notice_grace,
                      fmt::format("{} of its scheduler", ::sigabbrev_np(number))};
    log_.warn("{}: the host goes away in {:.0f} s", notice_->why, seconds(options_.notice_grace));
    send_notice(false);
  }

  void send_notice(bool is_repeated) {
    if (!notice_ || !link_.is_attached()) return;
    const auto left = std::max(Duration{}, notice_->deadline - io::steady_now());
    link_.send(Notice{NoticeKind::kSignal, milliseconds(left), notice_->why, is_repeated});
  }

  void request_stop(std::uint32_t grace_ms, const std::string& why) {
    if (!why.empty()) log_.warn("stopping everything: {}", why);
    if (stop_requested_) grace_ms = std::min(grace_ms, stop_grace_ms_);
    stop_requested_ = true;
    stop_grace_ms_ = grace_ms;
    for (const auto& [id, process] : processes_) process->stop(grace_ms, tasks_);
    stop_wake_.cancel();
  }

  awaitable<void> live_and_end() {
    while (!stop_requested_) co_await stop_wake_.async_wait(tok);
    co_await wait_for_all();
    gpus_.stop();
    co_await kill_rest();
    listener_.close();  // no new connection
    co_await wait_until_sent();
    ::unlink(files_.log.c_str());
    if (has_moved_) ::unlink(files_.lock.c_str());
    if (has_moved_) ::rmdir(files_.folder.c_str());
    link_.close();
    tasks_.cancel();
  }

  awaitable<void> wait_for_all() {
    const auto began = Clock::now();
    for (;;) {
      const auto deadline = began + std::chrono::milliseconds(stop_grace_ms_) + kShutdownSlack;
      if (processes_.all_ended() || Clock::now() > deadline) co_return;
      stop_wake_.expires_at(deadline);
      co_await stop_wake_.async_wait(tok);
    }
  }

  awaitable<void> kill_rest() {
    const auto deadline = Clock::now() + io::kKillDeadline;
    while (Clock::now() < deadline) {
      const auto left = io::descendants(::getpid(), {guard_.pid()});
      if (left.empty()) break;
      for (const auto& one : left) io::signal_pidfd(one, SIGKILL);
      co_await io::sleep_for(5ms);  // tidy: allow (killed ones may have forked: a look tells)
      reap_adopted();
    }
  }

  awaitable<void> wait_until_sent() {
    const auto begin = Clock::now();
    const auto waits = [&] {
      return Clock::now() - (drops_output_ ? begin : std::max(begin, output_.moved_at())) <
             (drops_output_ ? kFarewellDeadline : kOutputDeadline);
    };
    while (link_.is_attached() && !is_all_sent() && waits())
      co_await io::sleep_for(2ms);  // tidy: allow (output still comes, and moves the deadline)
    output_.give_up(drops_output_);
    const auto deadline = Clock::now() + kFarewellDeadline;
    while (link_.is_attached() && !is_all_sent() && Clock::now() < deadline)
      co_await io::sleep_for(2ms);  // tidy: allow (a link tells nobody that it has sent all)
  }

  [[nodiscard]] bool is_all_sent() const {
    return link_.channel()->queued_bytes() == 0 && processes_.all_sent();
  }

  asio::any_io_executor executor_;
  const AgentOptions& options_;
  AgentFiles files_;
  bool has_moved_ = false;  ///< The files are where the guard does not remove them.
  ProcessDefaults defaults_;
  std::uint64_t incarnation_;
  const std::optional<std::string> sge_folder_ = sge_job_folder(io::variable);
  io::FdLog log_{STDERR_FILENO};
  io::TaskGroup tasks_{executor_};
  GuardKeeper guard_;
  GpuWatch gpus_{executor_, GpuWatch::Options()};
  bool watches_gpus_ = false;   ///< From the first process on that needs it.
  std::uint32_t dealt_to_ = 0;  ///< Workers of the host at its start.
  KeptPorts ports_{ports_to_keep()};
  SupervisorLink link_{options_.lonely_timeout, io::steady_now()};
  Processes processes_;
  OutputPump output_{executor_, processes_, link_};
  KeptOut kept_out_;
  Listener listener_;

  std::uint64_t beats_ = 0;
  KeptOut kept_out_sent_;      ///< To the present supervisor.
  GpuHealth gpu_health_sent_;  ///< To the present supervisor.
  struct HostEnd {
    Time deadline;
    std::string why;
  };
  std::optional<HostEnd> notice_;  ///< The host goes away.
  std::optional<Time> term_at_;    ///< The first TERM, as a notice.
  bool stop_requested_ = false;
  std::uint32_t stop_grace_ms_ = 0;
  bool drops_output_ = false;
  asio::steady_timer stop_wake_{executor_, io::kNever};
};

}  // namespace

Result<void> run_agent(const AgentOptions& options, const AgentFiles& files,
                       const ProcessDefaults& defaults, Guard guard, std::uint64_t incarnation) {
  asio::io_context context(1);
  Agent agent(context, options, files, defaults, std::move(guard), incarnation);
  if (auto listening = agent.listen(); !listening) return listening;
  // Sockets and logs of earlier jobs on this host, not their state folders: a home folder may be
  // shared with the master.
  prune_jobs(files.folder.substr(0, files.folder.rfind('/')), std::chrono::system_clock::now());
  std::exception_ptr failure;
  const auto done = [&failure](std::exception_ptr error) { failure = error; };
  asio::co_spawn(context, agent.run(), done);
  context.run();
  try {
    if (failure) std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    return fail(ErrorKind::kIo, "{}", e.what());
  }
  return {};
}

}  // namespace dt::launcher
