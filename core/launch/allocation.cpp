#include "core/launch/allocation.h"

#include <algorithm>
#include <array>
#include <set>

#include "core/base/number.h"
#include "core/files/host_names.h"

namespace dt {
namespace {

using host_names::kMostSlots;
using host_names::mistake;
using host_names::number;
using host_names::Parsed;
using host_names::shown;
using host_names::take_until;
using Text = std::string_view;

/// Above it a list of names for people ends with "...".
constexpr std::size_t kNamesShown = 4;

constexpr const char* kHereOnly = "--launcher local: this machine only";

/// A variable that is set and not empty.
std::optional<std::string> given(const VariableOf& variable, const char* name) {
  auto value = variable(name);
  return value && !value->empty() ? std::move(value) : std::nullopt;
}

tl::unexpected<Error> at_column(Text where, const host_names::Mistake& m, Text remedy) {
  return fail(ErrorKind::kInvalid, "{}:{}: {} ({})", where, m.at + 1, m.why, remedy);
}

/// "5(x3),2": the tasks of each of `nodes` nodes.
Parsed<std::vector<std::uint32_t>> parse_tasks(Text text, std::size_t nodes) {
  std::vector<std::uint32_t> tasks;
  for (std::size_t begin = 0; begin <= text.size();) {
    const Text part = text.substr(begin, std::min(text.find(',', begin), text.size()) - begin);
    const std::size_t open = std::min(part.find("(x"), part.size());
    const auto count = number(part.substr(0, open), kMostSlots);
    if (!count || *count == 0)
      return mistake(begin, "\"{}\" is no number of tasks: 1 to {} was expected, as in 5(x3),2",
                     shown(part.substr(0, open)), kMostSlots);
    std::uint32_t times = 1;
    if (open < part.size()) {
      const Text rest = part.substr(open + 2);
      const auto repeated = rest.ends_with(')') ? number(rest.substr(0, rest.size() - 1), ~0U)
                                                : std::optional<std::uint32_t>();
      if (!repeated || *repeated == 0)
        return mistake(begin + open, "\"{}\" is no repetition: (x3) was expected",
                       shown(part.substr(open)));
      times = *repeated;
    }
    if (times > nodes - tasks.size())
      return mistake(begin, "it counts more nodes than SLURM_JOB_NODELIST has, {}", nodes);
    tasks.insert(tasks.end(), times, *count);
    begin += part.size() + 1;
  }
  if (tasks.size() < nodes)
    return mistake(text.size(), "it counts {} nodes, SLURM_JOB_NODELIST has {}", tasks.size(),
                   nodes);
  return tasks;
}

/// Tasks were asked for, and the variables give the job's, not those of a step within it.
bool has_tasks(const VariableOf& variable) {
  const auto tasks = given(variable, "SLURM_TASKS_PER_NODE");
  const bool is_step = given(variable, "SLURM_STEP_ID").has_value() &&
                       tasks == given(variable, "SLURM_STEP_TASKS_PER_NODE");
  return tasks && !is_step && (given(variable, "SLURM_NTASKS") || given(variable, "SLURM_NPROCS"));
}

/// One answer line of squeue.
struct JobLine {
  std::string state;
  std::string ends;
  std::string nodes;
};

std::vector<JobLine> parse_squeue(Text text) {
  std::vector<JobLine> lines;
  while (!text.empty()) {
    Text line = take_until(text, '\n');
    JobLine job;
    job.state = take_until(line, '|');
    job.ends = take_until(line, '|');
    job.nodes = line;
    if (!job.state.empty()) lines.push_back(std::move(job));
  }
  return lines;
}

bool is_time(Text text) { return !text.empty() && host_names::is_digit(text.front()); }

/// The line of squeue that shows the job running on these nodes; an array has other lines as well.
Result<JobLine> living(const std::string& job, const std::vector<std::string>& nodes,
                       const Answer& squeue) {
  constexpr const char* kRemedy =
      "unset SLURM_JOB_ID in this shell, or --launcher local for this machine only";
  if (!squeue.is_there)
    return fail(ErrorKind::kInvalid,
                "SLURM_JOB_ID is {}, and squeue does not say whether that job lives: {} ({})",
                shown(job), squeue.text, kRemedy);
  const auto lines = parse_squeue(squeue.text);
  if (lines.empty())
    return fail(ErrorKind::kInvalid,
                "SLURM_JOB_ID is {}, a Slurm job that is not running any more: {}", shown(job),
                kRemedy);
  const std::set<std::string> here(nodes.begin(), nodes.end());
  for (const JobLine& line : lines) {
    if (line.state != "RUNNING") continue;
    const auto there = host_names::expand_list(line.nodes);
    if (there && std::set<std::string>(there->begin(), there->end()) == here) return line;
  }
  const JobLine& first = lines.front();
  if (first.state != "RUNNING")
    return fail(ErrorKind::kInvalid, "Slurm job {} is {}, not RUNNING: {}", shown(job),
                shown(first.state), kRemedy);
  const auto left = host_names::expand_list(first.nodes);
  if (left && std::ranges::all_of(*left, [&](const auto& node) { return here.contains(node); }))
    return fail(ErrorKind::kInvalid,
                "Slurm job {} has lost nodes: it runs on {}, and SLURM_JOB_NODELIST in this shell "
                "has more: export SLURM_JOB_NODELIST={}; unset SLURM_TASKS_PER_NODE",
                shown(job), shown(first.nodes), first.nodes);
  return fail(ErrorKind::kInvalid,
              "Slurm job {} runs on {}, and SLURM_JOB_NODELIST in this shell has other nodes: {}",
              shown(job), shown(first.nodes), kRemedy);
}

std::string nodes_for_people(const std::vector<HostLine>& hosts) {
  std::string out;
  for (std::size_t i = 0; i < hosts.size() && i < kNamesShown; ++i)
    out += (i == 0 ? "" : ",") + hosts[i].host.name;
  return hosts.size() > kNamesShown ? out + ",..." : out;
}

/// "n1 4 all.q@n1 UNDEFINED"
Parsed<HostLine> parse_hostfile_line(Text line, std::uint32_t number_of_line) {
  auto words = host_names::split(line);
  words.resize(std::max(words.size(), std::size_t{2}), {line.size(), ""});
  const auto name = host_names::expand(words[0].text, words[0].at, 1);
  if (!name) return tl::unexpected(name.error());
  const auto slots = host_names::parse_slots(words[1].text, words[1].at);
  if (!slots) return tl::unexpected(slots.error());
  return HostLine{Host{"", name->front(), 0}, *slots, number_of_line};
}

}  // namespace

std::optional<LargerStep> larger_step(const VariableOf& variable) {
  struct Launcher {
    const char* rank;
    const char* size;
    const char* name;
  };
  // A batch script has SLURM_PROCID and SLURM_NTASKS, too, and is no step.
  constexpr Launcher kLaunchers[] = {
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun"},
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpirun"},
      {"PMI_RANK", "PMI_SIZE", "mpirun"},
  };
  for (const Launcher& launcher : kLaunchers) {
    const auto rank = parse_number<std::uint64_t>(variable(launcher.rank).value_or(""));
    const auto size = parse_number<std::uint64_t>(variable(launcher.size).value_or(""));
    if (!rank || !size || *size <= 1) continue;
    return LargerStep{
        *rank == 0,
        fmt::format("{0} has started dtlaunch {1} times, and each would start the whole "
                    "job: start it once, without {0}; it reaches the other hosts by "
                    "itself ({2} is {1})",
                    launcher.name, *size, launcher.size)};
  }
  return std::nullopt;
}

std::string name_of(const Allocation& allocation) {
  return fmt::format("{} job {}", allocation.kind == StarterKind::kSge ? "SGE" : "Slurm",
                     shown(allocation.job));
}

std::string_view starter_of(StarterKind kind) {
  constexpr Text kNames[] = {"local", "ssh", "srun", "qrsh", "mpirun", "kubectl", "command"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::uint32_t usual_workers(const Allocation& allocation) {
  std::uint64_t workers = 0;
  for (const HostLine& line : allocation.hosts) workers += line.slots.value_or(1);
  return static_cast<std::uint32_t>(workers);
}

std::optional<std::string> slurm_job(const VariableOf& variable) {
  return given(variable, "SLURM_JOB_ID");
}

std::optional<std::string> sge_hostfile(const VariableOf& variable) {
  return given(variable, "PE_HOSTFILE");
}

std::optional<std::string> sge_job_folder(const VariableOf& variable) {
  const auto job = given(variable, "JOB_ID");
  auto folder = given(variable, "SGE_JOB_SPOOL_DIR");
  if (!job || !folder || !folder->starts_with('/')) return std::nullopt;
  // That of what qrsh starts is a folder in it: .../41.1/1.n2 in .../41.1
  std::string above = folder->substr(0, folder->rfind('/'));
  if (Text(above).substr(above.rfind('/') + 1).starts_with(*job + ".")) return above;
  return folder;
}

bool changes_squeue(std::string_view variable) {
  return variable.starts_with("SQUEUE_") || variable == "SLURM_TIME_FORMAT";
}

bool is_over(const Answer& squeue) {
  if (!squeue.is_there) return squeue.text.find("nvalid job id") != std::string::npos;
  constexpr Text kEnds[] = {"BOOT_FAIL", "CANCELLED", "COMPLETED",     "DEADLINE", "FAILED",
                            "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "TIMEOUT"};
  return std::ranges::all_of(parse_squeue(squeue.text), [&kEnds](const JobLine& line) {
    return std::ranges::find(kEnds, line.state) != std::end(kEnds);
  });
}

Result<Allocation> slurm_allocation(const VariableOf& variable, const Answer& squeue) {
  Allocation found;
  found.kind = StarterKind::kSlurm;
  found.job = slurm_job(variable).value_or("");
  if (!parse_number<std::uint64_t>(found.job))
    return fail(ErrorKind::kInvalid, "SLURM_JOB_ID is \"{}\": a number was expected ({})",
                shown(found.job), kHereOnly);
  if (const auto size = given(variable, "SLURM_HET_SIZE"))
    return fail(
        ErrorKind::kInvalid,
        "Slurm job {} is heterogeneous, of {} components: dtlaunch takes the nodes of a job "
        "of one component (name them with -H for --launcher ssh, or {})",
        found.job, shown(*size), kHereOnly);
  const auto list = given(variable, "SLURM_JOB_NODELIST");
  if (!list)
    return fail(ErrorKind::kInvalid,
                "SLURM_JOB_ID is {}, and SLURM_JOB_NODELIST is not set: run dtlaunch in the batch "
                "script or in salloc's shell, or unset SLURM_JOB_ID ({})",
                found.job, kHereOnly);
  const auto nodes = host_names::expand_list(*list);
  if (!nodes) return at_column("SLURM_JOB_NODELIST", nodes.error(), kHereOnly);
  const auto line = living(found.job, *nodes, squeue);
  if (!line) return tl::unexpected(line.error());
  std::vector<std::uint32_t> tasks;
  if (has_tasks(variable)) {
    auto parsed = parse_tasks(*variable("SLURM_TASKS_PER_NODE"), nodes->size());
    if (!parsed) return at_column("SLURM_TASKS_PER_NODE", parsed.error(), kHereOnly);
    tasks = std::move(*parsed);
    found.slots_from = "--ntasks of the Slurm job";
  }
  for (std::size_t i = 0; i < nodes->size(); ++i)
    found.hosts.push_back(
        {Host{"", (*nodes)[i], 0}, tasks.empty() ? std::nullopt : std::optional(tasks[i]), 1});
  found.nodes = *list;
  if (is_time(line->ends)) found.ends = line->ends;
  return found;
}

Result<Allocation> sge_allocation(const VariableOf& variable, const Answer& hostfile) {
  Allocation found;
  found.kind = StarterKind::kSge;
  found.job = given(variable, "JOB_ID").value_or("?");
  found.slots_from = "the slots of its parallel environment";
  const std::string file = sge_hostfile(variable).value_or("");
  if (!hostfile.is_there)
    return fail(ErrorKind::kInvalid,
                "PE_HOSTFILE is {}, which cannot be read: {}; its SGE job is over, or this is "
                "another machine (unset PE_HOSTFILE in this shell, or {})",
                shown(file), hostfile.text, kHereOnly);
  Text text = hostfile.text;
  for (std::uint32_t number_of_line = 1; !text.empty(); ++number_of_line) {
    const Text line = take_until(text, '\n');
    if (line.find_first_not_of(" \t\r") == Text::npos) continue;
    auto host = parse_hostfile_line(line, number_of_line);
    if (!host)
      return at_column(fmt::format("{}:{}", shown(file), number_of_line), host.error(), kHereOnly);
    if (found.hosts.size() == host_names::kMostHosts)
      return fail(ErrorKind::kInvalid, "{}:{}: more than {} hosts ({})", shown(file),
                  number_of_line, host_names::kMostHosts, kHereOnly);
    found.hosts.push_back(std::move(*host));
  }
  if (found.hosts.empty())
    return fail(ErrorKind::kInvalid, "{} names no host ({})", shown(file), kHereOnly);
  // A host has a line for each of its queues.
  std::vector<HostLine> summed;
  for (HostSlots& sum : sum_slots(found.hosts))
    summed.push_back({std::move(sum.host), sum.slots, 1});
  found.hosts = std::move(summed);
  found.nodes = nodes_for_people(found.hosts);
  return found;
}

Result<void> check_sge_environment(const Allocation& allocation, std::string_view name,
                                   const Answer& environment) {
  if (!environment.is_there || allocation.hosts.size() < 2) return {};
  Text text = environment.text;
  while (!text.empty()) {
    const Text line = take_until(text, '\n');
    constexpr Text kName = "control_slaves";
    if (!line.starts_with(kName) || !line.ends_with(" FALSE")) continue;
    return fail(ErrorKind::kInvalid,
                "{}: its parallel environment {} has control_slaves FALSE, so SGE starts nothing "
                "for it on its other hosts: take another one (qsub -pe; qconf -spl lists them), or "
                "let an administrator set TRUE (qconf -mp {}), or use --launcher ssh ({})",
                name_of(allocation), shown(name), shown(name), kHereOnly);
  }
  return {};
}

Result<std::optional<Allocation>> only_one(const std::vector<Result<Allocation>>& found) {
  std::vector<const Allocation*> alive;
  for (const auto& one : found)
    if (one) alive.push_back(&*one);
  if (alive.size() > 1)
    return fail(ErrorKind::kInvalid,
                "this is inside of {} and of {}: say with --launcher {}, --launcher {} or "
                "--launcher local whose hosts are meant",
                name_of(*alive[0]), name_of(*alive[1]), to_text(alive[0]->kind),
                to_text(alive[1]->kind));
  if (alive.size() == 1) return std::optional(*alive.front());
  if (!found.empty()) return tl::unexpected(found.front().error());
  return std::optional<Allocation>();
}

bool NodeFacts::is_usable() const {
  constexpr std::array<Text, 4> kBad = {"DOWN", "DRAIN", "FAIL", "NOT_RESPONDING"};
  return std::ranges::none_of(kBad,
                              [this](Text word) { return state.find(word) != std::string::npos; });
}

std::vector<NodeFacts> parse_nodes(std::string_view scontrol) {
  std::vector<NodeFacts> nodes;
  while (!scontrol.empty()) {
    const Text line = take_until(scontrol, '\n');
    NodeFacts node;
    // The last field, with blanks inside.
    constexpr Text kReason = " Reason=";
    const std::size_t reason = std::min(line.find(kReason), line.size());
    if (reason < line.size()) node.reason = line.substr(reason + kReason.size());
    Text rest = line.substr(0, reason);
    while (!rest.empty()) {
      const Text word = take_until(rest, ' ');
      for (const auto& [key, to] :
           {std::pair(Text("NodeName="), &node.name), std::pair(Text("NodeAddr="), &node.address),
            std::pair(Text("State="), &node.state)})
        if (word.starts_with(key)) *to = word.substr(key.size());
    }
    if (!node.name.empty()) nodes.push_back(std::move(node));
  }
  return nodes;
}

}  // namespace dt
