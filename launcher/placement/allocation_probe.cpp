#include "launcher/placement/allocation_probe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include "core/launch/starter.h"
#include "io/fd.h"
#include "io/line_prefixer.h"
#include "io/subprocess.h"
#include "launcher/placement/scheduler_program.h"

namespace dt::launcher {
namespace {

/// "Unable to contact slurm controller (connect failure)", and the like.
bool is_controller_away(const std::string& words) {
  return words.find("nable to contact slurm controller") != std::string::npos;
}

constexpr std::size_t kMostHostfile = std::size_t{16} << 20;

Answer read_hostfile(const std::string& path) {
  const io::Fd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::string text;
  if (!file || !io::read_rest(file.get(), text, kMostHostfile + 1))
    return {false, std::strerror(errno)};
  if (text.size() > kMostHostfile) return {false, "it is larger than 16 MiB"};
  return {true, std::move(text)};
}

/// A batch job that waited for hours does not end because Slurm's controller restarts just then.
Answer ask_squeue(const std::string& job) {
  constexpr int kTries = 4;
  constexpr auto kPause = std::chrono::seconds(5);
  for (int left = kTries - 1;; --left) {
    Answer answer = ask_scheduler("squeue", {"-h", "-j", job, "-o", kSqueueFormat});
    if (answer.is_there || left == 0 || !is_controller_away(answer.text)) return answer;
    fmt::print(stderr, "squeue: {}; asked again in {} s\n", answer.text, kPause.count());
    std::this_thread::sleep_for(kPause);  // tidy: allow (this loop is the condition wait)
  }
}

Result<std::optional<Allocation>> find_allocation(std::optional<StarterKind> kind,
                                                  const VariableOf& variable) {
  std::vector<Result<Allocation>> found;
  const auto slurm = slurm_job(variable);
  if (slurm && kind.value_or(StarterKind::kSlurm) == StarterKind::kSlurm)
    found.push_back(slurm_allocation(variable, ask_squeue(*slurm)));
  const auto hostfile = sge_hostfile(variable);
  if (hostfile && kind.value_or(StarterKind::kSge) == StarterKind::kSge)
    found.push_back(sge_allocation(variable, read_hostfile(*hostfile)));
  return only_one(found);
}

std::vector<NodeFacts> ask_nodes(const Allocation& allocation) {
  if (allocation.kind != StarterKind::kSlurm) return {};
  const Answer nodes = ask_scheduler("scontrol", {"show", "node", "-o", allocation.nodes});
  return nodes.is_there ? parse_nodes(nodes.text) : std::vector<NodeFacts>();
}

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

Surroundings surroundings(VariableOf variable) {
  const auto allocation = [variable](std::optional<StarterKind> kind) {
    return find_allocation(kind, variable);
  };
  return {std::move(variable), allocation, ask_nodes};
}

std::string forget_ended_jobs(const VariableOf& variable) {
  std::string gone;
  const auto forget = [&gone, &variable](const char* name) {
    gone +=
        fmt::format("{}{}={}", gone.empty() ? "" : " and ", name, io::printable(*variable(name)));
    ::unsetenv(name);
  };
  const auto slurm = slurm_job(variable);
  if (slurm && is_over(ask_scheduler("squeue", {"-h", "-j", *slurm, "-o", kSqueueFormat})))
    forget("SLURM_JOB_ID");
  const auto hostfile = sge_hostfile(variable);
  if (hostfile && ::access(hostfile->c_str(), F_OK) != 0 && errno == ENOENT) forget("PE_HOSTFILE");
  if (gone.empty()) return gone;
  return fmt::format("{} in this shell is of a scheduler's job that is over: it is ignored", gone);
}

Result<void> check_starts(const Allocation& allocation, const VariableOf& variable) {
  const std::string environment = variable("PE").value_or("");
  if (allocation.kind != StarterKind::kSge || environment.empty()) return {};
  return check_sge_environment(allocation, environment,
                               ask_scheduler("qconf", {"-sp", environment}));
}

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
