/// What a job of many hosts costs its supervisor. The supervisor is the real one, in a process of
/// its own, with its journal, its volume helper and its control socket; the hosts are a swarm
/// (swarm.h) in this process. Prints its share of a core while nothing happens, in training and at
/// boundaries; how long a boundary takes; a join and a loss of many hosts at once; memory, journal
/// and `dtctl status`. It asserts nothing. dtctl has to be in this program's folder.
///
///     swarm_bench [--hosts N] [--servers N] [--join N] [--lose N] [--epoch S] [--epochs K]
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>

#include "core/base/version.h"
#include "io/descriptor_limit.h"
#include "io/flags.h"
#include "supervisor/volume/helper.h"
#include "test/bench/swarm/supervisor_run.h"
#include "test/bench/swarm/trial.h"

namespace {

using namespace dt;

constexpr const char* kHelp =
    "Usage: swarm_bench [OPTION]...\n"
    "\n"
    "Runs the real supervisor with a swarm of hosts that are none, and prints what it costs.\n";

struct CommandLine {
  swarm::TrialOptions trial;
  bool supervisor = false;
  bool volume_helper = false;
  std::string spec;
  std::string swarm_socket;
};

io::Flags flags_of(CommandLine& line) {
  // clang-format off
  return {{"Options", {
      {.name = "hosts", .value = "N", .to = &line.trial.hosts, .least = 1, .most = 20'000,
       .help = "hosts, with a worker each ({})"},
      {.name = "servers", .value = "N", .to = &line.trial.servers,
       .help = "kvstore servers, on the first hosts (as dtlaunch: one a host up to 64)"},
      {.name = "join", .value = "N", .to = &line.trial.join,
       .help = "hosts that join at once (a tenth of them)"},
      {.name = "lose", .value = "N", .to = &line.trial.lose,
       .help = "hosts that are lost at once (a twentieth)"},
      {.name = "epoch", .value = "S", .to = &line.trial.epoch, .help = "length of an epoch ({})"},
      {.name = "epochs", .value = "K", .to = &line.trial.epochs, .least = 1,
       .help = "epochs of each kind that is measured ({})"},
      {.name = "spread", .value = "S", .to = &line.trial.spread,
       .help = "between the first and the last arrival, where they are spread ({})"},
      {.name = "folder", .value = "DIR", .to = &line.trial.folder,
       .help = "a new folder for the job, which stays (a temporary one)"},
      {.name = "supervisor", .to = &line.supervisor},
      {.name = "volume-helper", .to = &line.volume_helper},
      {.name = "spec", .value = "FILE", .to = &line.spec},
      {.name = "swarm-socket", .value = "PATH", .to = &line.swarm_socket},
      {.name = "help", .letter = 'h', .help = "print this help"},
  }}};
  // clang-format on
}

}  // namespace

int main(int argc, char** argv) {
  io::raise_descriptor_limit();
  ::signal(SIGPIPE, SIG_IGN);
  CommandLine line;
  const io::Flags flags = flags_of(line);
  const io::Program program{
      .name = "swarm_bench", .version = version_text("swarm_bench"), .usage = kHelp};
  const auto given = io::parse(program, flags, {argv + 1, argv + argc});
  if (!given) return io::refuse(program, given.error());
  if (const auto text = io::answer(program, flags, *given))
    return std::fputs(text->c_str(), stdout) < 0;
  try {
    if (line.volume_helper) return supervisor::volume_helper(STDIN_FILENO);
    if (line.supervisor) return swarm::run_supervisor(line.spec, line.swarm_socket);
    return swarm::run_trial(line.trial);
  } catch (const std::exception& e) {
    std::fputs((std::string("swarm_bench: ") + e.what() + "\n").c_str(), stderr);
    return 1;
  }
}
