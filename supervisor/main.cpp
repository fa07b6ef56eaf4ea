/// dtsupervisor: keeps one job alive and changes its size. Started by dtlaunch.
#include <signal.h>
#include <unistd.h>

#include <boost/asio/signal_set.hpp>
#include <boost/program_options.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <utility>

#include "core/base/version.h"
#include "core/protocol/exit_code.h"
#include "io/descriptor_limit.h"
#include "io/job/control_protocol.h"
#include "io/subprocess.h"
#include "launcher/backend/local.h"
#include "launcher/backend/ssh/ssh.h"
#include "launcher/backend/ssh/sync.h"
#include "supervisor/supervisor.h"
#include "supervisor/volume/helper.h"

namespace {

namespace po = boost::program_options;
using namespace dt;

constexpr const char* kHelp =
    "Usage: dtsupervisor --spec FILE [--resume] [--ready-fd N]\n"
    "\n"
    "Keeps one job alive: starts and stops its processes through an agent on each host, watches\n"
    "host_worker and adds or removes workers at each epoch. dtlaunch starts it and, in the\n"
    "foreground, restarts it when it dies; `dtsupervisor --spec FILE --resume` does so by hand.\n"
    "\n";

Result<io::JobSpec> load_spec(const std::string& file) {
  std::ifstream in(file);
  if (!in) return tl::unexpected(errno_error(errno, "read " + file));
  std::ostringstream text;
  text << in.rdbuf();
  auto spec = io::spec_from_json(text.str());
  if (!spec) return tl::unexpected(spec.error().at(file));
  return spec;
}

/// What a host needs: the programs that lie beside this one. They need no library that a host with
/// glibc and an sshd lacks.
std::vector<std::string> bundle_files() {
  const auto folder = io::program_folder();
  std::vector<std::string> files{(folder / "dtagent").string(), (folder / "dtserver").string()};
  // For --prepare-data.
  if (const auto check = folder / "dtgpucheck"; std::filesystem::exists(check))
    files.push_back(check.string());
  return files;
}

/// The backend for this job, and with --sync-dst-dir the way to bring the working folder along.
std::unique_ptr<launcher::Backend> make_backend(io::asio::io_context& context,
                                                supervisor::SupervisorOptions& options,
                                                io::Log& log) {
  const io::JobSpec& spec = options.spec;
  if (spec.local) return std::make_unique<launcher::LocalBackend>();
  launcher::SshLimits limits;
  limits.handshake = from_seconds(2 * spec.ssh.connect_timeout_s);
  auto ssh = std::make_unique<launcher::SshBackend>(context.get_executor(), spec.ssh,
                                                    bundle_files(), log, limits);
  if (!spec.sync_dst_dir.empty()) {
    const std::string source = std::filesystem::current_path().string();
    const std::string destination = spec.sync_dst_dir;
    options.sync = [backend = ssh.get(), source, destination](Host host) {
      const std::vector<Host> one{std::move(host)};
      return launcher::sync_folder(*backend, one, source, destination);
    };
  }
  return ssh;
}

int run_job(supervisor::SupervisorOptions options) {
  io::asio::io_context context(1);
  io::FdLog log(STDERR_FILENO);
  auto backend = make_backend(context, options, log);
  supervisor::Supervisor supervisor(context, std::move(options), std::move(backend));
  boost::asio::signal_set signals(context, SIGTERM, SIGINT, SIGHUP);
  bool is_stopping = false;  // by a signal: a second one kills
  std::function<void()> wait_for_signal = [&] {
    signals.async_wait([&](const boost::system::error_code& ec, int signal) {
      if (ec) return;
      const std::string why = fmt::format("stopped by signal {}", signal);
      if (std::exchange(is_stopping, true))
        supervisor.kill(why);
      else
        supervisor.stop(why);
      wait_for_signal();
    });
  };
  wait_for_signal();
  int code = kExitFailure;
  std::exception_ptr failure;
  boost::asio::co_spawn(context, supervisor.run(), [&](std::exception_ptr error, int exit_code) {
    failure = error;
    code = exit_code;
    // The backend's idle connections would keep the loop alive.
    context.stop();
  });
  context.run();
  if (failure) std::rethrow_exception(failure);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  io::raise_descriptor_limit();
  // A dtlaunch or an sshd that has gone shows as an error of the write.
  ::signal(SIGPIPE, SIG_IGN);
  po::options_description described("Options");
  auto add = described.add_options();
  add("spec", po::value<std::string>(), "the job, as dtlaunch wrote it (JSON)");
  add("resume", "take up the job where an earlier supervisor left it");
  add("owned", "with --resume: a dtlaunch is there, and the job stops when that goes");
  add("adopt", "with --resume: end a job of which nothing lives, so that it begins anew");
  add("take-over", "take the job folder from a supervisor on a host that is gone");
  add("ready-fd", po::value<int>()->default_value(-1), "tell readiness on this descriptor");
  add("volume-helper", "serve the shared volume on standard input (internal)");
  add("version", "print the version");
  add("help,h", "print this help");
  try {
    po::variables_map given;
    po::store(po::parse_command_line(argc, argv, described), given);
    if (given.count("help")) {
      std::cout << kHelp << described;
      return kExitOk;
    }
    if (given.count("version")) {
      std::cout << version_text("dtsupervisor");
      return kExitOk;
    }
    if (given.count("volume-helper")) return supervisor::volume_helper(STDIN_FILENO);
    if (!given.count("spec")) {
      std::cerr << "dtsupervisor: --spec is missing (dtsupervisor is started by dtlaunch)\n";
      return kExitUsage;
    }
    auto spec = load_spec(given["spec"].as<std::string>());
    if (!spec) {
      std::cerr << "dtsupervisor: " << spec.error().message << "\n";
      return kExitUsage;
    }
    supervisor::SupervisorOptions options;
    options.spec = std::move(*spec);
    options.resume = given.count("resume") > 0;
    options.owned = !options.spec.detached && (!options.resume || given.count("owned") > 0);
    options.take_over = given.count("take-over") > 0;
    options.adopt = options.take_over || given.count("adopt") > 0;
    options.ready_fd = given["ready-fd"].as<int>();
    options.volume_helper = {"/proc/self/exe", "--volume-helper"};
    return run_job(std::move(options));
  } catch (const po::error& e) {
    std::cerr << "dtsupervisor: " << e.what() << " (see --help)\n";
    return kExitUsage;
  } catch (const std::exception& e) {
    std::cerr << "dtsupervisor: " << e.what() << "\n";
    return kExitFailure;
  }
}
