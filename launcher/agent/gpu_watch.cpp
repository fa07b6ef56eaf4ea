#include "launcher/agent/gpu_watch.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <csignal>

#include "io/nvml.h"
#include "io/process_end.h"
#include "io/process_tree.h"
#include "io/subprocess.h"
#include "launcher/agent/agent_environment.h"
#include "launcher/agent/child.h"

namespace dt::launcher {
namespace {

using io::awaitable;
using io::tok;
namespace asio = io::asio;
using Clock = std::chrono::steady_clock;

/// More than a frame about all GPUs of any host.
constexpr std::size_t kLongestFrame = std::size_t{1} << 20;

}  // namespace

int gpu_watch_main(Duration interval) {
  ::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_NAME, "dtagent-gpus");  // it was run as /proc/self/exe
  const auto pause = std::chrono::ceil<std::chrono::milliseconds>(interval);
  for (;;) {
    auto nvml = io::Nvml::open();
    if (!nvml && nvml.error().kind == ErrorKind::kUnavailable) return 0;
    GpuHealth health;
    if (!nvml) {
      // After an update of the driver NVML works again once it is loaded again.
      health.trouble = nvml.error().message;
      if (!io::write_all(STDOUT_FILENO, wire::frame(health))) return 0;
      pollfd reader{STDOUT_FILENO, 0, 0};  // ends when the reader is gone
      ::poll(&reader, 1, static_cast<int>(pause.count()));
      continue;
    }
    for (;;) {
      health.gpus = (*nvml)->read();
      if (!io::write_all(STDOUT_FILENO, wire::frame(health))) return 0;
      (*nvml)->wait(pause);
    }
  }
}

GpuWatch::GpuWatch(asio::any_io_executor executor, Options options)
    : executor_(executor),
      options_(std::move(options)),
      wake_(executor, io::kNever),
      answer_by_(executor) {}

GpuWatch::~GpuWatch() { io::signal_pidfd(process_, SIGKILL); }

void GpuWatch::stop() {
  stopped_ = true;
  io::signal_pidfd(process_, SIGKILL);
  wake_.cancel();
}

void GpuWatch::hurry() {
  options_.first = {};
  answer_by_.expires_after(options_.answer);
}

awaitable<void> GpuWatch::answered() {
  while (!has_answered_ && answer_by_.expiry() > Clock::now()) co_await answer_by_.async_wait(tok);
}

void GpuWatch::note_answer() {
  has_answered_ = true;
  answer_by_.cancel();
}

awaitable<void> GpuWatch::run(std::vector<std::pair<std::string, std::string>> environment) {
  environment_ = std::move(environment);
  wake_.expires_after(options_.first);
  co_await wake_.async_wait(tok);
  while (!stopped_) {
    co_await one_process();
    if (nothing_there_ || stopped_) co_return;
    wake_.expires_after(options_.again);
    co_await wake_.async_wait(tok);
  }
}

awaitable<void> GpuWatch::one_process() {
  auto child = start_child(
      {.argv = options_.argv, .environment = environment_with(environment_), .cwd = "/"});
  if (!child) {
    trouble_ = "the GPUs are not watched: " + child.error().message;
    co_return;
  }
  pid_ = child->pid;
  process_ = io::open_pidfd(pid_);
  co_await listen(std::move(child->out));
  asio::posix::stream_descriptor end(executor_, child->pidfd.release());
  co_await io::process_ended(end);
  int status = 0;
  const bool reaped = ::waitpid(pid_, &status, WNOHANG) == pid_;
  pid_ = 0;
  process_.reset();
  if (!reaped || stopped_) co_return;
  gpus_.clear();
  const ExitStatus how = io::exit_status(status);
  nothing_there_ = how.clean();
  note_answer();
  trouble_ =
      nothing_there_ ? "" : "NVML is not asked: what asks it has ended with " + to_string(how);
}

awaitable<void> GpuWatch::listen(io::Fd out) {
  asio::posix::stream_descriptor pipe(executor_, out.release());
  wire::FrameDecoder decoder(kLongestFrame);
  std::string buffer(16384, '\0');
  auto heard_at = Clock::now();
  bool is_silent = false;
  for (;;) {
    asio::steady_timer silence(executor_, heard_at + options_.silence);
    if (silence.expiry() <= Clock::now()) silence.expires_after(options_.silence);
    using namespace asio::experimental::awaitable_operators;
    auto into = asio::buffer(buffer);
    auto race = pipe.async_read_some(into, tok) || silence.async_wait(tok);
    auto first = co_await std::move(race);
    if (first.index() == 1) {
      if (std::get<0>(std::get<1>(first))) co_return;  // cancelled
      const auto limit = seconds(options_.silence);
      if (!std::exchange(is_silent, true))
        trouble_ = fmt::format("NVML has not answered for more than {} s: {}", limit,
                               io::process_states(pid_));
      continue;
    }
    const auto [ec, n] = std::get<0>(first);
    if (ec) co_return;
    heard_at = Clock::now();
    is_silent = false;
    decoder.feed(std::string_view(buffer).substr(0, n));
    for (;;) {
      auto frame = decoder.next();
      if (!frame) co_return io::signal_pidfd(process_, SIGKILL);
      if (!*frame) break;
      take(**frame);
    }
  }
}

void GpuWatch::take(const wire::Frame& frame) {
  if (frame.type != GpuHealth::kType) return;
  auto health = wire::parse<GpuHealth>(frame.body);
  if (!health) return;
  gpus_ = std::move(health->gpus);
  trouble_ = std::move(health->trouble);
  note_answer();
}

}  // namespace dt::launcher
