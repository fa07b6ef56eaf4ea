#include "launcher/agent/machine.h"

#include <sched.h>
#include <unistd.h>

#include <fstream>

namespace dt::launcher {
namespace {

/// Empty when the file cannot be read.
std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::uint32_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    return static_cast<std::uint32_t>(CPU_COUNT(&set));
  const long n = ::sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? static_cast<std::uint32_t>(n) : 1;
}

}  // namespace

AgentState this_machine() {
  AgentState state;
  state.boot_id = first_line("/proc/sys/kernel/random/boot_id");
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  // The same for "hosts" that are one machine.
  state.machine = fmt::format("{}/{}/{}", first_line("/etc/machine-id"), state.boot_id, host);
  state.cores = usable_cores();
  return state;
}

}  // namespace dt::launcher
