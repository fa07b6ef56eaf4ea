/// dtsupervisor: keeps one job alive and changes its size. Started by dtlaunch.
#include <signal.h>
#include <unistd.h>

#include <boost/asio/signal_set.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <utility>

#include "core/base/version.h"
#include "core/protocol/exit_code.h"
#include "io/asio.h"
#include "io/descriptor_limit.h"
#include "io/flags.h"
#include "io/notice_signals.h"
#include "io/stop_signals.h"
#include "io/subprocess.h"
#include "launcher/backend/local.h"
#include "launcher/backend/sync.h"
#include "launcher/check/gate.h"
#include "launcher/reach/host_ways.h"
#include "supervisor/paced_loop.h"
#include "supervisor/supervisor.h"
#include "supervisor/volume/helper.h"

namespace {

using namespace dt;

constexpr const char* kHelp =
    "Usage: dtsupervisor --spec FILE [--resume] [--ready-fd N]\n"
    "\n"
    "Keeps one job alive: starts and stops its processes through an agent on each\n"
    "host, watches host_worker and adds or removes workers at each epoch. dtlaunch\n"
    "starts it and, in the foreground, restarts it when it dies;\n"
    "`dtsupervisor --spec FILE --resume` does so by hand.\n";

struct CommandLine {
  std::string spec;
  supervisor::SupervisorOptions options;
  std::optional<std::uint32_t> ready_fd;
  bool volume_helper = false;
  bool gate = false;
};

io::Flags flags_of(CommandLine& line) {
  // clang-format off
  return {{"Options", {
      {.name = "spec", .value = "FILE", .to = &line.spec,
       .help = "the job, as dtlaunch wrote it (JSON)",
       .manual = "The job, as `dtlaunch` wrote it (JSON)."},
      {.name = "resume", .to = &line.options.resume,
       .help = "take up the job where an earlier supervisor left it",
       .manual = "Take up the job where an earlier supervisor left it; this is how one that died "
           "is started by hand or by systemd."},
      {.name = "owned", .to = &line.options.owned,
       .help = "with --resume: a dtlaunch is there, and the job stops when that goes",
       .manual = "With --resume: a dtlaunch in the foreground has started it, and the job stops "
           "when that goes or does not come."},
      {.name = "adopt", .to = &line.options.adopt,
       .help = "with --resume: end a job of which nothing lives, so that it starts again",
       .manual = "With --resume: end a job of which nothing lives any more, so that it starts "
           "again from its last checkpoint."},
      {.name = "take-over", .to = &line.options.take_over,
       .help = "take the job folder from a supervisor on a host that is gone"},
      {.name = "ready-fd", .value = "N", .to = &line.ready_fd, .most = 1 << 20,
       .help = "tell readiness on this descriptor"},
      {.name = "volume-helper", .to = &line.volume_helper,
       .help = "serve the shared volume on standard input (internal)"},
      {.name = "gate", .to = &line.gate, .help = "check a host that is added (internal)"},
      {.name = "version", .help = "print the version"},
      {.name = "help", .letter = 'h', .help = "print this help",
       .manual = "Print the options."},
  }}};
  // clang-format on
}

io::awaitable<Result<void>> refuse_sync(Host host) {
  co_return fail(ErrorKind::kInvalid, "{}: --sync-dst-dir copies to other machines: not via=local",
                 host);
}

/// The backend for this job, and with --sync-dst-dir the way to bring the working folder along.
std::unique_ptr<launcher::Backend> make_backend(io::asio::io_context& context,
                                                supervisor::SupervisorOptions& options,
                                                io::Log& log) {
  if (io::is_local(options.spec)) return std::make_unique<launcher::LocalBackend>();
  const io::JobSpec& spec = options.spec;
  auto ways = launcher::make_ways(context, spec, log);
  if (!spec.sync_dst_dir.empty()) {
    const std::string source = std::filesystem::current_path().string();
    auto window = std::make_shared<io::Semaphore>(context.get_executor(), launcher::kSyncs);
    options.sync = [spec, all = ways.get(), window, source](Host host) {
      if (io::way_to(spec, host) == StarterKind::kLocal) return refuse_sync(std::move(host));
      return launcher::sync_folder(*all, window, std::move(host), source, spec.sync_dst_dir);
    };
  }
  return ways;
}

int run_job(supervisor::SupervisorOptions options) {
  // A TERM of the scheduler's reaches dtlaunch, too, which gives a notice, or stops the job.
  const bool leaves_term = options.owned && io::is_in_allocation();
  io::asio::io_context context(1);
  io::FdLog log(STDERR_FILENO);
  auto backend = make_backend(context, options, log);
  const auto supervisor =
      supervisor::make_supervisor(context, std::move(options), std::move(backend));
  boost::asio::signal_set signals(context);
  io::add_stop_signals(signals);
  io::StopOrders orders;
  bool is_stopping = false;  // by a signal: a second one kills
  std::function<void()> wait_for_signal = [&] {
    signals.async_wait([&](const boost::system::error_code& ec, int signal) {
      if (ec) return;
      if (signal == SIGTERM && leaves_term) return wait_for_signal();
      if (!orders.is_new(std::chrono::steady_clock::now())) return wait_for_signal();
      const std::string why = fmt::format("stopped by signal {}", signal);
      if (std::exchange(is_stopping, true))
        supervisor->kill(why);
      else
        supervisor->stop(why);
      wait_for_signal();
    });
  };
  wait_for_signal();
  return supervisor::run_paced(context, supervisor->run());
}

}  // namespace

int main(int argc, char** argv) {
  io::raise_descriptor_limit();
  // A dtlaunch or an sshd that has ended shows as an error of the write.
  ::signal(SIGPIPE, SIG_IGN);
  if (io::is_in_allocation()) io::ignore_notices();  // they are for dtlaunch
  ::signal(SIGXFSZ, SIG_IGN);  // a file beyond ulimit -f is an error of its write, like a full disk
  CommandLine line;
  const io::Flags flags = flags_of(line);
  const io::Program program{
      .name = "dtsupervisor", .version = version_text("dtsupervisor"), .usage = kHelp};
  const auto given = io::parse(program, flags, {argv + 1, argv + argc});
  if (!given) return io::refuse(program, given.error());
  if (const auto text = io::answer(program, flags, *given))
    return std::fputs(text->c_str(), stdout) < 0;
  try {
    if (line.volume_helper) return supervisor::volume_helper(STDIN_FILENO);
    if (line.gate) return launcher::gate_main(STDIN_FILENO, STDOUT_FILENO);
    if (line.spec.empty())
      return io::refuse(program, {ErrorKind::kInvalid,
                                  "--spec is missing (dtsupervisor is started by dtlaunch)"});
    auto spec = io::read_spec(line.spec);
    if (!spec) {
      std::cerr << "dtsupervisor: " << spec.error().message << "\n";
      return kExitUsage;
    }
    supervisor::SupervisorOptions options = std::move(line.options);
    options.spec = std::move(*spec);
    if (options.resume && (options.owned || options.adopt)) options.spec.detached = !options.owned;
    options.owned = !options.spec.detached && (!options.resume || options.owned);
    options.adopt = options.adopt || options.take_over;
    if (line.ready_fd) options.ready_fd = static_cast<int>(*line.ready_fd);
    options.volume_helper = {"/proc/self/exe", "--volume-helper"};
    return run_job(std::move(options));
  } catch (const std::exception& e) {
    std::cerr << "dtsupervisor: " << e.what() << "\n";
    return kExitFailure;
  }
}
