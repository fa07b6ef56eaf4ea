/// dtagent: `--attach` is the bridge a backend runs on a host, `--daemon` the agent behind it.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/number.h"
#include "core/base/version.h"
#include "core/protocol/exit_code.h"
#include "launcher/agent/bridge.h"
#include "launcher/agent/daemon.h"
#include "launcher/agent/gpu_watch.h"

namespace {

constexpr const char* kHelp =
    R"(dtagent: starts, watches and stops the processes of one dtlaunch job on one host.
dtlaunch runs it by itself; nobody has to call it by hand.

  dtagent --attach --job JOB --host HOST [--start [--first]]
           [--socket PATH] [--lonely-timeout SECONDS]
      Connects stdin and stdout to the agent of JOB for HOST (the host as written in the hosts
      file). With --start, starts that agent first if it is not there; without, ends what an agent
      that is there no more has left behind.
  dtagent --gpus [--interval SECONDS]
      What the agent runs beside itself to watch the host's GPUs.
  dtagent --version
  dtagent --help

  --first                    no agent of JOB was ever there: nothing is left of one
  --socket PATH              where the agent is, if that is known; the usual places are tried, too
  --interval SECONDS         the driver is asked so often (5)
  --lonely-timeout SECONDS   a started agent that nobody ever attached to ends after this (60)

Exit codes: 0 either side closed, 1 failure, 2 wrong usage, 3 no agent is there.
)";

struct CommandLine {
  bool attach = false;
  bool daemon = false;
  bool start = false;
  bool first = false;
  bool gpus = false;
  std::string job;
  std::string host;
  std::string lonely_timeout;
  std::string socket;
  std::string interval;
};

int usage(const std::string& why) {
  std::fprintf(stderr, "dtagent: %s (see dtagent --help)\n", why.c_str());
  return dt::kExitUsage;
}

bool parse_seconds(const std::string& text, dt::Duration& into) {
  const auto seconds = dt::parse_number<double>(text);
  if (!seconds || !(*seconds >= 0) || *seconds > 1e6) return false;
  into = dt::from_seconds(*seconds);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line;
  const std::vector<std::string> words(argv + 1, argv + argc);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    std::string* value = word == "--job"              ? &line.job
                         : word == "--host"           ? &line.host
                         : word == "--lonely-timeout" ? &line.lonely_timeout
                         : word == "--socket"         ? &line.socket
                         : word == "--interval"       ? &line.interval
                                                      : nullptr;
    if (value) {
      if (++i == words.size()) return usage(word + " needs a value");
      *value = words[i];
    } else if (word == "--attach") {
      line.attach = true;
    } else if (word == "--daemon") {
      line.daemon = true;
    } else if (word == "--gpus") {
      line.gpus = true;
    } else if (word == "--first") {
      line.first = true;
    } else if (word == "--start") {
      line.start = true;
    } else if (word == "--version") {
      return std::fputs(dt::version_text("dtagent").c_str(), stdout) < 0;
    } else if (word == "--help") {
      return std::fputs(kHelp, stdout) < 0;
    } else {
      return usage("unknown word '" + word + "'");
    }
  }
  if (line.gpus) {
    dt::Duration interval = std::chrono::seconds(5);
    if (!line.interval.empty() && !parse_seconds(line.interval, interval))
      return usage("--interval " + line.interval + " is no number of seconds");
    return dt::launcher::gpu_watch_main(interval);
  }
  if (line.attach == line.daemon) return usage("--attach is missing");
  if (line.job.empty() || line.host.empty()) return usage("--job and --host are needed");
  dt::launcher::AgentOptions options;
  options.job = line.job;
  options.host = line.host;
  options.is_first = line.first;
  if (!line.lonely_timeout.empty() && !parse_seconds(line.lonely_timeout, options.lonely_timeout))
    return usage("--lonely-timeout " + line.lonely_timeout + " is no number of seconds");
  if (line.daemon) return dt::launcher::agent_main(options);
  return dt::launcher::bridge_main(
      {line.job, line.host, line.start, line.first, line.lonely_timeout, line.socket});
}
