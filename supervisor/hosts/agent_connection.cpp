#include "supervisor/hosts/agent_connection.h"

#include <algorithm>
#include <utility>

#include "io/clock.h"
#include "io/task_group.h"
#include "io/within.h"

namespace dt::supervisor {

using namespace std::chrono_literals;

namespace {

/// Hellos show the agent that its supervisor is alive.
constexpr Duration kHelloEvery = 5s;
constexpr Duration kSecondLook = 100ms;

/// 0, then 0.2 s doubling to 10 s, each times 0.75 to 1.25.
Duration reattach_delay(std::uint32_t failures, std::uint64_t salt) {
  if (failures <= 1) return Duration{};
  const Duration plain = std::min<Duration>(200ms * (1 << std::min(failures - 2, 6U)), 10s);
  const std::uint64_t mixed = (salt + failures) * 0x9e3779b97f4a7c15U;
  return plain / 100 * static_cast<Duration::rep>(75 + (mixed >> 32) % 51);
}

}  // namespace

AgentConnection::AgentConnection(io::asio::any_io_executor executor, launcher::Backend& backend,
                                 Options options, Callbacks callbacks)
    : executor_(executor),
      backend_(backend),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      wake_(executor, io::asio::steady_timer::time_point::max()) {}

void AgentConnection::attach(bool start) {
  if (up_) return;
  wanted_ = true;
  start_ = start;
  failures_ = 0;
  wake_.cancel();
}

void AgentConnection::shut_down(std::uint32_t grace_ms, bool drops_output) {
  closing_ = true;
  const Shutdown word{grace_ms, drops_output, options_.takes_over};
  if (up_) channel_->send(word);
  if (wanted_ && (!up_ || options_.takes_over)) last_word_ = word;
  wake_.cancel();
}

io::awaitable<void> AgentConnection::run() {
  // Cancellation shows as errors of the operations: the connection is always ended in order.
  co_await io::asio::this_coro::throw_if_cancelled(false);
  for (;;) {
    const auto cancelled = (co_await io::asio::this_coro::cancellation_state).cancelled();
    if (cancelled != io::asio::cancellation_type::none || has_parted()) break;
    if (!wanted_) {
      co_await wake_.async_wait(io::tok);
      continue;
    }
    co_await one_connection(start_);
    if (has_parted() || !wanted_) continue;
    const Duration delay = reattach_delay(failures_, options_.seed);
    if (delay > Duration{}) {
      wake_.expires_after(delay);
      co_await wake_.async_wait(io::tok);
      wake_.expires_at(io::asio::steady_timer::time_point::max());
    }
  }
  backend_.disconnect(options_.host);
  ended_ = true;
}

io::awaitable<void> AgentConnection::one_connection(bool start) {
  std::vector<std::string> argv = {"dtagent",    "--attach", "--job",
                                   options_.job, "--host",   to_string(options_.host)};
  argv.insert(argv.end(), {"--notice-grace", fmt::format("{}", seconds(options_.notice_grace))});
  argv.insert(argv.end(), {"--term", fmt::format("{}", options_.term)});
  if (options_.takes_over) argv.emplace_back("--take-over");
  if (start) argv.emplace_back("--start");
  const auto last = options_.last_place ? options_.last_place() : AgentPlace{};
  if (start && !last) argv.emplace_back("--first");
  if (last && !last->socket.empty()) argv.insert(argv.end(), {"--socket", last->socket});
  auto stream = co_await backend_.open(options_.host, std::move(argv));
  if (!stream) co_return lost(stream.error(), false);
  if (has_parted()) co_return;
  channel_ = std::make_unique<io::FrameChannel>(executor_, std::move(*stream));
  io::TaskGroup tasks(executor_);
  tasks.spawn(channel_->write_loop());
  auto end = co_await converse(tasks);
  const bool gone = !end && end.error().kind == ErrorKind::kClosed && !up_ && !start;
  up_ = false;
  channel_->close();
  tasks.cancel();
  co_await tasks.join();
  channel_.reset();  // and with it the last of the connection
  if (!end) lost(end.error(), gone);
}

io::awaitable<Result<void>> AgentConnection::converse(io::TaskGroup& tasks) {
  auto state = co_await io::within(options_.answer_deadline, greet(), "waiting for the agent");
  if (!state) co_return tl::unexpected(state.error());
  up_ = true;
  heard_at_ = io::steady_now();
  start_ = false;
  failures_ = 0;
  if (last_word_)
    channel_->send(*last_word_);
  else
    callbacks_.attached(*state);
  if (!options_.takes_over) last_word_.reset();
  is_silent_ = false;
  tasks.spawn(end_silent_link());
  for (;;) {
    auto frame = co_await receive();
    if (!frame && is_silent_)
      co_return fail(ErrorKind::kTimeout, "the agent: nothing within {:.1f} s",
                     seconds(options_.silence_limit));
    if (!frame) co_return tl::unexpected(frame.error());
    heard_at_ = io::steady_now();
    note(*frame);
    callbacks_.frame(*frame);
  }
}

/// Looks once per limit and not at each message: thousands come in a second.
io::awaitable<void> AgentConnection::end_silent_link() {
  for (Duration left = options_.silence_limit; left > Duration{};) {
    co_await io::sleep_for(left);
    // If this process stood still, what came meanwhile is read first.
    co_await io::sleep_for(std::min<Duration>(kSecondLook, options_.silence_limit));
    left = heard_at_ + options_.silence_limit - io::steady_now();
  }
  is_silent_ = true;
  channel_->close();
}

io::awaitable<Result<wire::Frame>> AgentConnection::receive() {
  auto frame = co_await channel_->receive();
  // A stream that ended does not show the agent's state: the next attach finds out.
  if (!frame && frame.error().kind == ErrorKind::kClosed)
    frame.error().kind = ErrorKind::kUnavailable;
  co_return frame;
}

void AgentConnection::say_hello() {
  channel_->send(AgentHello{.job = options_.job,
                            .host = to_string(options_.host),
                            .term = options_.term,
                            .orphan_timeout_ms = options_.orphan_timeout_ms,
                            .beat_ms = milliseconds(options_.beat),
                            .received = {received_.begin(), received_.end()}});
  said_hello_at_ = io::steady_now();
}

void AgentConnection::note(const wire::Frame& frame) {
  if (frame.type == Output::kType) {
    output_at_ = heard_at_;
    if (const auto output = wire::parse<Output>(frame.body))
      received_[output->process] = output->offset + output->bytes.size();
  } else if (frame.type == ProcessStarted::kType) {
    if (const auto started = wire::parse<ProcessStarted>(frame.body))
      received_.try_emplace(started->process, 0);
  }
  const Duration orphan = std::chrono::milliseconds(options_.orphan_timeout_ms);
  if (heard_at_ - said_hello_at_ >= std::min(kHelloEvery, orphan / 3)) say_hello();
}

io::awaitable<Result<AgentState>> AgentConnection::greet() {
  say_hello();
  for (;;) {
    auto frame = co_await receive();
    if (!frame) co_return tl::unexpected(frame.error());
    if (frame->type == NoAgent::kType)
      co_return fail(ErrorKind::kClosed, "no agent of the job runs there");
    if (frame->type == Refused::kType) {
      const auto refused = wire::parse<Refused>(frame->body);
      if (refused && refused->term > options_.term && callbacks_.outranked)
        callbacks_.outranked(refused->term);
      co_return fail(ErrorKind::kDenied, "the agent refused: {}",
                     refused ? refused->why : refused.error().message);
    }
    if (frame->type != AgentState::kType) continue;
    // A second one, from which on the agent counts this side's silence: what carries the link may
    // stay open when this process dies, as a step of srun's does.
    say_hello();
    co_return wire::parse<AgentState>(frame->body);
  }
}

void AgentConnection::lost(const Error& error, bool gone) {
  ++failures_;
  const bool first_try = start_;
  if (closing_) {
    // An agent that was to be started by this very attempt is not there.
    const bool is_refused = error.kind == ErrorKind::kDenied && !options_.takes_over;
    if (gone || first_try || is_refused) last_word_.reset();
    return;
  }
  if (gone || first_try) wanted_ = false;
  // While it is being attached again, only the first failure is news.
  if (gone || first_try || failures_ == 1) callbacks_.down(error, gone);
}

}  // namespace dt::supervisor
