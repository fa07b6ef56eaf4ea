#include "test/bench/swarm/host.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "io/clock.h"

namespace dt::swarm {

using io::awaitable;
using namespace std::chrono_literals;

namespace {

constexpr Duration kLonely = 60s;
constexpr Duration kUsage = 5s;  ///< The agent's interval of Usage.
constexpr std::uint32_t kCores = 8;
constexpr std::uint64_t kResident = std::uint64_t{300} << 20;
constexpr std::int32_t kFirstPid = 1000;

awaitable<void> say_and_close(launcher::Channel channel) {
  co_await channel->flush();
  channel->close();
}

}  // namespace

std::string address_of(const std::string& name) {
  const std::size_t mixed = std::hash<std::string>()(name);
  return fmt::format("10.{}.{}.{}", mixed & 255, mixed >> 8 & 255, mixed >> 16 & 255);
}

SwarmHost::SwarmHost(io::asio::any_io_executor executor, io::TaskGroup& tasks, World& world,
                     std::string name)
    : executor_(std::move(executor)),
      tasks_(tasks),
      world_(world),
      name_(std::move(name)),
      link_(kLonely, io::steady_now()) {}

awaitable<void> SwarmHost::serve(launcher::Channel channel, bool starts) {
  const auto first = co_await channel->receive();
  if (!first || first->type != AgentHello::kType) co_return channel->close();
  const auto hello = wire::parse<AgentHello>(first->body);
  if (!hello || is_lost_) co_return channel->close();
  if (incarnation_ == 0 && !starts) {
    channel->send(NoAgent{});
    co_return co_await say_and_close(channel);
  }
  if (auto why = objection(*hello); !why.empty()) {
    channel->send(Refused{std::move(why), {}});
    co_return co_await say_and_close(channel);
  }
  if (incarnation_ == 0) begin();
  link_.attach(channel, *hello, io::steady_now());
  link_.send(state());
  for (;;) {
    const auto frame = co_await channel->receive();
    if (!frame || channel != link_.channel()) break;
    link_.on_message(io::steady_now());
    handle(*frame);
  }
  channel->close();
  link_.detach(channel, io::steady_now());
}

std::string SwarmHost::objection(const AgentHello& hello) const {
  if (hello.host != name_) return fmt::format("this is {}, not {}", name_, hello.host);
  if (hello.term < link_.term()) return "a later supervisor has taken over";
  if (is_stopping_) return "the agent is stopping";
  return {};
}

void SwarmHost::begin() {
  incarnation_ = (std::hash<std::string>()(name_) | 1) + 2 * lives_++;
  link_ = launcher::SupervisorLink(kLonely, io::steady_now());
  tasks_.spawn(housekeeping(incarnation_));
}

AgentState SwarmHost::state() const {
  AgentState state;
  state.boot_id = fmt::format("boot {} of {}", boots_, name_);
  state.incarnation = incarnation_;
  state.cores = kCores;
  state.machine = name_;
  state.place = {"/run/" + name_, 20000, 20001};
  for (const auto& [id, known] : processes_) {
    ProcessReport report;
    report.process = id;
    report.pid = kFirstPid + static_cast<std::int32_t>(id.id);
    report.exit = known->exit;
    report.said.assign(known->mailbox.sent().begin(), known->mailbox.sent().end());
    state.processes.push_back(std::move(report));
  }
  return state;
}

// ---------------------------------------------------------------- the supervisor's messages

void SwarmHost::handle(const wire::Frame& frame) {
  const auto take = [&]<class Message>(std::type_identity<Message>) {
    if (frame.type != Message::kType) return false;
    if (const auto message = wire::parse<Message>(frame.body)) on(*message);
    return true;
  };
  (void)(take(std::type_identity<AgentHello>()) || take(std::type_identity<StartProcess>()) ||
         take(std::type_identity<StopProcess>()) || take(std::type_identity<AckExit>()) ||
         take(std::type_identity<AskProcess>()) || take(std::type_identity<CheckFolder>()) ||
         take(std::type_identity<ToProcess>()) || take(std::type_identity<Shutdown>()));
}

void SwarmHost::on(const AgentHello& hello) {
  link_.apply(hello);
  link_.on_hello_again();
}

void SwarmHost::on(const StartProcess& message) {
  const ProcessId id = message.process;
  if (const auto known = processes_.find(id); known != processes_.end()) {
    if (known->second->exit) link_.send(ProcessExited{id, *known->second->exit});
    return;
  }
  auto process = make_process(executor_, world_, id, address_of(name_),
                              [this, id](wire::Frame frame) { say(id, std::move(frame)); });
  if (!process) return link_.send(ProcessFailed{id, "a swarm has no such process"});
  auto known = std::make_shared<Known>();
  known->process = std::move(process);
  processes_[id] = known;
  link_.send(ProcessStarted{id, kFirstPid + static_cast<std::int32_t>(id.id)});
  tasks_.spawn(live(std::move(known), incarnation_));
}

void SwarmHost::on(const StopProcess& message) {
  const auto known = processes_.find(message.process);
  if (known != processes_.end()) known->second->process->end();
}

void SwarmHost::on(const AckExit& message) { processes_.erase(message.process); }

void SwarmHost::on(const CheckFolder& message) {
  FolderChecked answer;
  answer.folder = message.folder;
  link_.send(answer);
}

void SwarmHost::on(const ToProcess& message) {
  const auto known = processes_.find(message.process);
  if (known != processes_.end() && !known->second->exit) known->second->process->take(message);
}

void SwarmHost::on(const Shutdown&) {
  is_stopping_ = true;
  end_all();
  part_if_done();
}

// ---------------------------------------------------------------- processes

void SwarmHost::say(ProcessId process, wire::Frame frame) {
  const FromProcess relayed{process, frame.type, frame.body};
  if (processes_[process]->mailbox.keep(std::move(frame))) link_.send(relayed);
}

awaitable<void> SwarmHost::live(KnownPtr known, std::uint64_t incarnation) {
  const ExitStatus status = co_await known->process->live();
  if (incarnation != incarnation_) co_return;
  known->exit = status;
  link_.send(ProcessExited{known->process->id(), status});
  part_if_done();
}

void SwarmHost::end_all() {
  for (const auto& [id, known] : processes_) known->process->end();
}

void SwarmHost::part_if_done() {
  const auto has_ended = [](const auto& entry) { return entry.second->exit.has_value(); };
  if (!is_stopping_ || !std::all_of(processes_.begin(), processes_.end(), has_ended)) return;
  if (link_.is_attached()) tasks_.spawn(say_and_close(link_.channel()));
  processes_.clear();
  incarnation_ = 0;
  is_stopping_ = false;
}

void SwarmHost::lose() {
  is_lost_ = true;
  ++boots_;
  end_all();
  link_.close();
  processes_.clear();
  incarnation_ = 0;
}

awaitable<void> SwarmHost::housekeeping(std::uint64_t incarnation) {
  // Agents that are attached together do not beat in step.
  const auto part = static_cast<Duration::rep>(incarnation / 2 % 97);
  co_await io::sleep_for(link_.beat() * part / 97);
  Time usage_at = io::steady_now() + kUsage * part / 97;
  for (std::uint64_t beats = 0; incarnation == incarnation_;) {
    if (link_.until_beat(io::steady_now()) <= Duration{}) link_.send(Beat{++beats});
    if (const Time now = io::steady_now(); now >= usage_at) {
      usage_at = now + kUsage;
      Usage usage;
      for (const auto& [id, known] : processes_) usage.resident.emplace_back(id, kResident);
      if (!usage.resident.empty()) link_.send(usage);
    }
    co_await io::sleep_for(link_.is_attached() ? link_.until_beat(io::steady_now()) : link_.beat());
  }
}

}  // namespace dt::swarm
