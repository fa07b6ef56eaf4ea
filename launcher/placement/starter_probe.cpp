#include "launcher/placement/starter_probe.h"

#include <unistd.h>

#include <set>

#include "core/launch/starter.h"
#include "io/subprocess.h"
#include "launcher/placement/scheduler_program.h"

namespace dt::launcher {
namespace {

Result<void> check_mpirun_here(const VariableOf& variable) {
  const Answer version = ask_scheduler("mpirun", {"--version"});
  if (!version.is_there) return fail(ErrorKind::kInvalid, "mpirun --version: {}", version.text);
  if (auto usable = check_mpirun(version.text); !usable) return usable;
  const bool may_be_root = variable("OMPI_ALLOW_RUN_AS_ROOT") == "1" &&
                           variable("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM") == "1";
  if (::geteuid() == 0 && !may_be_root)
    return fail(ErrorKind::kInvalid,
                "Open MPI's mpirun refuses to run as root: run dtlaunch as another user, reach the "
                "hosts in another way (ssh, --rsh), or state your will to mpirun by "
                "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
  return {};
}

Result<void> check_starter(const Starter& starter, const Host& host, const VariableOf& variable) {
  const auto command = starter_command(starter, host.name);
  if (!command) return tl::unexpected(command.error());
  const std::string& program = command->argv.front();
  const std::string package = traits_of(starter).package;
  if (!io::in_path(program))
    return fail(ErrorKind::kInvalid, "{}, which reaches {}, is not in PATH{}", program, host,
                package.empty() ? "" : fmt::format(" (Debian: apt-get install {})", package));
  return starter.kind == StarterKind::kMpi ? check_mpirun_here(variable) : Result<void>();
}

}  // namespace

Result<void> check_starters(const io::JobSpec& spec, const VariableOf& variable) {
  std::set<StarterKind> seen;
  for (const auto* hosts : {&spec.workers, &spec.servers})
    for (const Host& host : *hosts) {
      const StarterKind way = io::way_to(spec, host);
      const bool is_program = way != StarterKind::kLocal && way != StarterKind::kSsh;
      if (!is_program) continue;
      const Starter starter = io::starter_for(spec, way);
      if (host.name == starter.here || !seen.insert(way).second) continue;
      if (auto usable = check_starter(starter, host, variable); !usable) return usable;
    }
  return {};
}

}  // namespace dt::launcher
