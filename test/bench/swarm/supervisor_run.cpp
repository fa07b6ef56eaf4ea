#include "test/bench/swarm/supervisor_run.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <fstream>
#include <sstream>
#include <utility>

#include "core/protocol/exit_code.h"
#include "io/fd.h"
#include "io/subprocess.h"
#include "io/within.h"
#include "supervisor/paced_loop.h"
#include "supervisor/supervisor.h"
#include "test/bench/swarm/backend.h"

namespace dt::swarm {

using io::awaitable;

namespace {

constexpr const char* kSelf = "/proc/self/exe";
constexpr int kReadyFd = 3;
constexpr Duration kReadyLimit = std::chrono::seconds(60);

awaitable<Result<std::string>> read_line(io::Fd pipe) {
  boost::asio::posix::stream_descriptor stream(co_await boost::asio::this_coro::executor,
                                               pipe.release());
  std::string text;
  auto buffer = boost::asio::dynamic_buffer(text, 4096);
  co_await boost::asio::async_read_until(stream, buffer, '\n', io::tok);
  co_return text.substr(0, text.find('\n'));
}

/// The sum of a field ("Rss:") in a file of /proc, in MB.
double megabytes(const std::string& file, const std::string& field) {
  std::ifstream in(file);
  double kilobytes = 0;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    double value = 0;
    if (words >> name >> value && name == field) kilobytes += value;
  }
  return kilobytes / 1024;
}

}  // namespace

awaitable<Result<SupervisorRun>> SupervisorRun::start(io::JobSpec spec, std::string swarm_socket,
                                                      std::string log) {
  const std::string spec_file = spec.state_dir + "/spec.json";
  std::ofstream(spec_file) << to_json(spec) << "\n";
  const io::Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const io::Fd out(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  auto ready = io::make_pipe();
  if (!null || !out || !ready) co_return fail(ErrorKind::kIo, "cannot open {}", log);
  const std::vector<std::string> words = {kSelf,     "--supervisor",   "--spec",
                                          spec_file, "--swarm-socket", std::move(swarm_socket)};
  const std::vector<int> files = {null.get(), out.get(), out.get(), ready->write.get()};
  auto pid = io::spawn(kSelf, words, files, io::ProcessGroup::kOwnSession);
  if (!pid) co_return tl::unexpected(pid.error());
  SupervisorRun run(*pid);
  ready->write.reset();
  auto reading = read_line(std::move(ready->read));
  const auto line = co_await io::within(kReadyLimit, std::move(reading), "the supervisor");
  if (!line) co_return tl::unexpected(line.error());
  if (!line->starts_with("READY "))
    co_return fail(ErrorKind::kUnavailable, "not ready: {}; see {}", *line, log);
  co_return std::move(run);
}

SupervisorRun::SupervisorRun(SupervisorRun&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)) {}

SupervisorRun::~SupervisorRun() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Duration SupervisorRun::cpu() const {
  clockid_t clock{};
  timespec used{};
  if (pid_ <= 0 || ::clock_getcpuclockid(pid_, &clock) != 0) return {};
  if (::clock_gettime(clock, &used) != 0) return {};
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

Memory SupervisorRun::memory() const {
  const std::string folder = fmt::format("/proc/{}/", pid_);
  return {megabytes(folder + "smaps_rollup", "Rss:"), megabytes(folder + "smaps_rollup", "Pss:"),
          megabytes(folder + "status", "VmHWM:")};
}

std::optional<int> SupervisorRun::ended() {
  int status = 0;
  if (pid_ <= 0 || ::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  pid_ = -1;
  return io::exit_status(status).shell_code();
}

int run_supervisor(const std::string& spec_file, const std::string& swarm_socket) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // with the bench, which may be killed
  auto spec = io::read_spec(spec_file);
  if (!spec) {
    std::fputs((spec.error().message + "\n").c_str(), stderr);
    return kExitUsage;
  }
  io::asio::io_context context(1);
  supervisor::SupervisorOptions options;
  options.spec = std::move(*spec);
  options.ready_fd = kReadyFd;
  options.volume_helper = {kSelf, "--volume-helper"};
  auto backend = std::make_unique<SwarmBackend>(context.get_executor(), swarm_socket);
  const auto supervisor =
      supervisor::make_supervisor(context, std::move(options), std::move(backend));
  return supervisor::run_paced(context, supervisor->run());
}

}  // namespace dt::swarm
