#include "launcher/cli/placement.h"

#include <algorithm>
#include <set>

#include "core/files/host_names.h"

namespace dt::launcher {
namespace {

/// A scheduler's kind, as --launcher gives it.
std::optional<StarterKind> scheduler(const Options& options) {
  const auto kind = starter_kind(options.launcher);
  return kind == StarterKind::kSlurm || kind == StarterKind::kSge ? kind : std::nullopt;
}

/// Its hosts are the job's.
bool gives_hosts(const Options& options, const std::optional<Allocation>& allocation) {
  return allocation && options.hostfile.empty() && options.launcher != "local";
}

Result<std::vector<HostLine>> hosts_of_file(const Options& options, std::string_view hosts_text) {
  auto lines = parse_hosts(hosts_text, options.hostfile);
  if (lines && lines->empty())
    return fail(ErrorKind::kInvalid, "{} names no host: one line per host was expected",
                options.hostfile);
  return lines;
}

/// Whether a host that says nothing of its way is a node of the environment's Slurm job.
bool names_a_node(const std::vector<HostLine>& lines, const VariableOf& variable) {
  const auto nodes = host_names::expand_list(variable("SLURM_JOB_NODELIST").value_or(""));
  if (!nodes) return false;
  const std::set<std::string> known(nodes->begin(), nodes->end());
  return std::ranges::any_of(lines, [&](const HostLine& line) {
    return !line.host.via && line.host.user.empty() && line.host.port == 0 &&
           known.contains(line.host.name);
  });
}

std::string counted(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

Result<AllocationWish> allocation_wish(const Options& options, std::string_view hosts_text,
                                       const VariableOf& variable) {
  using How = AllocationWish::How;
  if (const auto kind = scheduler(options)) return AllocationWish{How::kNeeded, kind};
  const bool is_hinted = slurm_job(variable) || sge_hostfile(variable);
  if (!is_hinted || options.launcher == "local") return AllocationWish{};
  if (options.hostfile.empty()) return AllocationWish{How::kNeeded, {}};
  if (!options.launcher.empty()) return AllocationWish{};
  const auto lines = hosts_of_file(options, hosts_text);
  if (!lines) return tl::unexpected(lines.error());
  if (slurm_job(variable) && names_a_node(*lines, variable))
    return AllocationWish{How::kNeeded, {}};
  // The nodes of SGE's job are in a file that may be gone.
  if (sge_hostfile(variable)) return AllocationWish{How::kIfAlive, StarterKind::kSge};
  return AllocationWish{};
}

Error no_allocation(StarterKind kind) {
  const bool is_sge = kind == StarterKind::kSge;
  return {ErrorKind::kInvalid,
          fmt::format(
              "--launcher {}: this is no {} job: run it inside of {}", to_text(kind),
              is_sge ? "SGE" : "Slurm",
              is_sge ? "qsub -pe" : "salloc or sbatch, or ask Slurm for nodes later (dtctl grow)")};
}

Result<std::vector<HostLine>> hosts_to_use(const Options& options, std::string_view hosts_text,
                                           const std::optional<Allocation>& allocation) {
  if (!allocation)
    if (const auto kind = scheduler(options)) return tl::unexpected(no_allocation(*kind));
  if (!options.hostfile.empty()) return hosts_of_file(options, hosts_text);
  if (gives_hosts(options, allocation)) return allocation->hosts;
  return std::vector<HostLine>{{Host{"", "localhost", 0}, std::nullopt, 1}};
}

Result<std::uint32_t> workers_to_use(const Options& options,
                                     const std::optional<Allocation>& allocation) {
  if (!gives_hosts(options, allocation)) return options.num_workers;
  const std::uint32_t usual = usual_workers(*allocation);
  if (options.num_workers == 0) {
    if (usual > io::kMostWorkers)
      return fail(ErrorKind::kInvalid, "{} has {} slots, and a job at most {} workers: give -n",
                  name_of(*allocation), usual, io::kMostWorkers);
    return usual;
  }
  if (!allocation->slots_from.empty() && options.num_workers > usual)
    return fail(ErrorKind::kInvalid,
                "-n {}: {} has {} ({}): ask for fewer workers here, or for more when the "
                "allocation is made",
                options.num_workers, name_of(*allocation), counted(usual, "slot"),
                allocation->slots_from);
  return options.num_workers;
}

std::optional<AllocatedNodes> nodes_to_remember(const Options& options,
                                                const std::optional<Allocation>& allocation,
                                                const std::vector<NodeFacts>& nodes) {
  if (!allocation || (!options.launcher.empty() && !scheduler(options))) return std::nullopt;
  AllocatedNodes out{allocation->kind, allocation->job, {}};
  for (const HostLine& line : allocation->hosts) {
    const auto facts = std::ranges::find(nodes, line.host.name, &NodeFacts::name);
    out.nodes.push_back({line.host.name, facts == nodes.end() ? "" : facts->address});
  }
  return out;
}

std::string placement_line(const Options& options, const io::JobSpec& spec,
                           const Allocation& allocation) {
  const std::string_view starter = starter_of(spec.allocation ? allocation.kind : spec.launcher);
  if (options.hostfile.empty())
    return fmt::format("{}: {}, {}, {}, by {} (--launcher local: this machine only)",
                       name_of(allocation), allocation.nodes,
                       counted(allocation.hosts.size(), "node"),
                       counted(spec.workers.size(), "worker"), starter);
  const auto nodes =
      static_cast<std::size_t>(std::ranges::count_if(spec.known_hosts, [&](const Host& host) {
        return !host.via && node_of(host, spec.allocation);
      }));
  if (nodes == 0) return "";
  const auto ways = static_cast<std::size_t>(std::ranges::count_if(
      spec.known_hosts, [](const Host& host) { return host.via.has_value(); }));
  const std::size_t others = spec.known_hosts.size() - nodes - ways;
  std::string out = fmt::format("{}: {} of {} by {}", name_of(allocation), counted(nodes, "host"),
                                options.hostfile, starter);
  if (others > 0) out += fmt::format(", {} by ssh", counted(others, "other"));
  if (ways > 0) out += fmt::format(", {} by via=", ways);
  return out;
}

Result<void> check_nodes(const io::JobSpec& spec, const Allocation& allocation,
                         const std::vector<NodeFacts>& nodes) {
  for (const NodeFacts& node : nodes) {
    const Host host{"", node.name, 0};
    const bool is_base = std::ranges::count(spec.workers, host) > 0;
    if (!is_base || node.is_usable() || !node_of(host, spec.allocation)) continue;
    return fail(ErrorKind::kUnavailable,
                "{} of {} is {}{}: begin without it (-H with the other nodes), or ask for another "
                "allocation",
                node.name, name_of(allocation), node.state,
                node.reason.empty() ? "" : fmt::format(" ({})", node.reason));
  }
  return {};
}

}  // namespace dt::launcher
