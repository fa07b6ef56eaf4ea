/// dtagent: `--attach` is the bridge a backend runs on a host, `--daemon` the agent behind it,
/// `--hold` what keeps a scheduler's node for it, `--pod` the first process of a pod.
#include <chrono>
#include <cstdio>

#include "core/base/version.h"
#include "core/protocol/exit_code.h"
#include "io/flags.h"
#include "launcher/agent/gpu_watch.h"
#include "launcher/agent/programs.h"

namespace {

using namespace dt;

constexpr const char* kUsage =
    R"(dtagent: starts, watches and stops the processes of one dtlaunch job on a host.
dtlaunch runs it by itself; nobody has to call it by hand.

  dtagent --attach --job JOB --host HOST [--start [--first] [--stay]]
           [--term N [--take-over]] [--socket PATH] [--lonely-timeout TIME]
           [--notice-grace TIME] [--lines] [--aside]
      Connects stdin and stdout to the agent of JOB for HOST (the host as in the
      hosts file). With --start, starts that agent first if it is not there;
      without, ends what an agent that is there no more has left behind.
  dtagent --check [--lines]
      Answers what dtlaunch --check asks of this host.
  dtagent --clean [--only JOB]... [--spare JOB]... [--left JOB]... [--dry-run]
           [--force] [--lines]
      Ends what jobs of this user left here, for dtctl clean.
  dtagent --hold --job JOB --host HOST [--lonely-timeout TIME]
      Keeps a scheduler's node for JOB (dtctl grow): waits for the agent of
      HOST, hands the scheduler's signals on to it, and ends when it has ended.
  dtagent --pod
      The command of a pod of Kubernetes that jobs use: reaps processes; TERM is
      a notice for the agents here, and it ends when they have ended.
  dtagent --gpus [--interval TIME]
      What the agent runs beside itself to watch the host's GPUs.
  dtagent --version
  dtagent --help
)";

struct CommandLine {
  bool attach = false;
  bool daemon = false;
  bool hold = false;
  bool pod = false;
  bool gpus = false;
  bool check = false;
  bool clean = false;
  launcher::CleanOptions cleaning;
  Duration interval = std::chrono::seconds(5);
  launcher::BridgeOptions bridge;
};

io::Flags flags_of(CommandLine& line) {
  // clang-format off
  return {{"Options", {
      {.name = "attach", .to = &line.attach},
      {.name = "daemon", .to = &line.daemon},
      {.name = "hold", .to = &line.hold},
      {.name = "pod", .to = &line.pod},
      {.name = "start", .to = &line.bridge.start},
      {.name = "stay", .to = &line.bridge.stay,
       .help = "with --start: end after the agent that was started"},
      {.name = "aside", .to = &line.bridge.aside,
       .help = "leave the process group, and end when it is killed"},
      {.name = "lines", .to = &line.bridge.lines,
       .help = "stdin and stdout pass whole lines only: what is sent is framed"},
      {.name = "gpus", .to = &line.gpus},
      {.name = "check", .to = &line.check},
      {.name = "clean", .to = &line.clean},
      {.name = "only", .value = "JOB", .to = &line.cleaning.jobs},
      {.name = "spare", .value = "JOB", .to = &line.cleaning.spare},
      {.name = "left", .value = "JOB", .to = &line.cleaning.left},
      {.name = "dry-run", .to = &line.cleaning.dry_run},
      {.name = "force", .to = &line.cleaning.force},
      {.name = "job", .value = "JOB", .to = &line.bridge.agent.job},
      {.name = "host", .value = "HOST", .to = &line.bridge.agent.host},
      {.name = "first", .to = &line.bridge.agent.is_first,
       .help = "no agent of JOB was ever there: nothing is left of one"},
      {.name = "term", .value = "N", .to = &line.bridge.term.value, .help = "the supervisor's"},
      {.name = "take-over", .to = &line.bridge.takes_over,
       .help = "supervisors of lower terms start no agent here any more"},
      {.name = "socket", .value = "PATH", .to = &line.bridge.socket,
       .help = "where the agent is, if that is known; the usual places are tried, too"},
      {.name = "interval", .value = "TIME", .to = &line.interval,
       .help = "the driver is asked so often ({})"},
      {.name = "lonely-timeout", .value = "TIME", .to = &line.bridge.agent.lonely_timeout,
       .help = "a started agent that nobody ever attached to ends after this ({}); with --hold: so "
           "does the wait for an agent"},
      {.name = "notice-grace", .value = "TIME", .to = &line.bridge.agent.notice_grace,
       .help = "in an allocation of a scheduler: TERM, USR1, USR2 and XCPU say that the host goes "
           "away after that"},
      {.name = "version"},
      {.name = "help"},
  }}};
  // clang-format on
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line;
  const io::Flags flags = flags_of(line);
  const io::Program program{
      .name = "dtagent",
      .version = version_text("dtagent"),
      .usage = kUsage,
      .more = "\nExit codes: 0 either side closed, 1 failure, 2 wrong usage, 3 no agent there.\n"};
  const auto given = io::parse(program, flags, {argv + 1, argv + argc});
  if (!given) return io::refuse(program, given.error());
  if (const auto text = io::answer(program, flags, *given))
    return std::fputs(text->c_str(), stdout) < 0;
  const auto refused = [&program](const char* why) {
    return io::refuse(program, {ErrorKind::kInvalid, why});
  };
  if (line.clean) {
    line.cleaning.lines = line.bridge.lines;
    return launcher::clean_main(line.cleaning);
  }
  if (line.gpus) return launcher::gpu_watch_main(line.interval);
  if (line.pod) return launcher::pod_main();
  if (line.check) return launcher::check_main(line.bridge.lines);
  if (line.attach + line.daemon + line.hold != 1)
    return refused("one of --attach, --hold, --pod, --check, --clean and --gpus is needed");
  const launcher::AgentOptions& agent = line.bridge.agent;
  if (agent.job.empty()) return refused("--job is missing");
  if (agent.host.empty()) return refused("--host is missing");
  if (line.hold) return launcher::hold_main(agent);
  return line.daemon ? launcher::agent_main(agent) : launcher::bridge_main(line.bridge);
}
