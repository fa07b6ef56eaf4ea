#include "launcher/placement/placement.h"

#include <algorithm>
#include <set>

#include "core/base/quantity.h"
#include "core/files/host_names.h"

namespace dt::launcher {
namespace {

/// Whether a host that says nothing of its way is a node of the environment's Slurm job.
bool names_a_node(const std::vector<HostLine>& lines, const VariableOf& variable) {
  if (!slurm_job(variable)) return false;
  const auto nodes = host_names::expand_list(variable("SLURM_JOB_NODELIST").value_or(""));
  if (!nodes) return false;
  const std::set<std::string> known(nodes->begin(), nodes->end());
  return std::ranges::any_of(lines, [&](const HostLine& line) {
    return !line.host.via && line.host.user.empty() && line.host.port == 0 &&
           known.contains(line.host.name);
  });
}

/// Nothing where the variables hint at none, or another way is meant.
Result<std::optional<Allocation>> allocation_for(const PlacementWish& wish,
                                                 const Surroundings& around) {
  if (const auto kind = starter_kind(wish.launcher); is_scheduler(kind))
    return around.allocation(kind);
  const bool has_slots = sge_hostfile(around.variable).has_value();
  if (wish.launcher == "local" || (!has_slots && !slurm_job(around.variable))) return std::nullopt;
  if (wish.list.empty()) return around.allocation({});
  if (!wish.launcher.empty()) return std::nullopt;
  if (names_a_node(wish.lines, around.variable)) return around.allocation({});
  if (!has_slots) return std::nullopt;
  // The nodes of SGE's job are in a file that may be gone, with a job that then does not matter.
  return around.allocation(StarterKind::kSge).value_or(std::nullopt);
}

AllocatedNodes to_remember(const Allocation& allocation, const std::vector<NodeFacts>& nodes) {
  AllocatedNodes out{allocation.kind, allocation.job, {}};
  for (const HostLine& line : allocation.hosts) {
    const auto facts = std::ranges::find(nodes, line.host.name, &NodeFacts::name);
    out.nodes.push_back({line.host.name, facts == nodes.end() ? "" : facts->address});
  }
  return out;
}

}  // namespace

Result<Placement> find_placement(const PlacementWish& wish, const Surroundings& around) {
  Placement found;
  found.list = wish.list;
  found.lines = wish.lines;
  auto allocation = allocation_for(wish, around);
  if (!allocation) return tl::unexpected(allocation.error());
  found.allocation = std::move(*allocation);
  if (wish.list.empty()) found.lines = {{Host{"", "localhost", 0}, std::nullopt, 1}};
  if (!found.allocation) return found;
  found.nodes = around.nodes(*found.allocation);
  found.gives_hosts = wish.list.empty();
  if (found.gives_hosts) found.lines = found.allocation->hosts;
  if (wish.launcher.empty() || is_scheduler(starter_kind(wish.launcher)))
    found.remembered = to_remember(*found.allocation, found.nodes);
  return found;
}

Error no_allocation(StarterKind kind) {
  const bool is_sge = kind == StarterKind::kSge;
  return {ErrorKind::kInvalid,
          fmt::format(
              "--launcher {}: this is no {} job: run it inside of {}", to_text(kind),
              is_sge ? "SGE" : "Slurm",
              is_sge ? "qsub -pe" : "salloc or sbatch, or ask Slurm for nodes later (dtctl grow)")};
}

Result<std::uint32_t> workers_to_use(const Placement& placement, std::uint32_t wanted) {
  if (!placement.gives_hosts) return wanted;
  const Allocation& allocation = *placement.allocation;
  const std::uint32_t usual = usual_workers(allocation);
  if (wanted == 0 && usual > io::kMostWorkers)
    return fail(ErrorKind::kInvalid, "{} has {} slots, and a job at most {} workers: give -n",
                name_of(allocation), usual, io::kMostWorkers);
  if (!allocation.slots_from.empty() && wanted > usual)
    return fail(ErrorKind::kInvalid,
                "-n {}: {} has {} ({}): ask for fewer workers here, or for more when the "
                "allocation is made",
                wanted, name_of(allocation), count_text(usual, "slot"), allocation.slots_from);
  return wanted == 0 ? usual : wanted;
}

std::string placement_line(const Placement& placement, const io::JobSpec& spec) {
  if (!placement.allocation) return "";
  const Allocation& allocation = *placement.allocation;
  const std::string_view starter = starter_of(spec.allocation ? allocation.kind : spec.launcher);
  if (placement.gives_hosts)
    return fmt::format("{}: {}, {}, {}, by {} (--launcher local: this machine only)",
                       name_of(allocation), allocation.nodes,
                       count_text(allocation.hosts.size(), "node"),
                       count_text(spec.workers.size(), "worker"), starter);
  const auto is_by_via = [](const Host& host) { return host.via.has_value(); };
  const auto is_node = [&](const Host& host) {
    return !host.via && node_of(host, spec.allocation) != nullptr;
  };
  const auto nodes = std::ranges::count_if(spec.known_hosts, is_node);
  if (nodes == 0) return "";
  const auto ways = std::ranges::count_if(spec.known_hosts, is_by_via);
  const auto others = std::ssize(spec.known_hosts) - nodes - ways;
  std::string out =
      fmt::format("{}: {} of {} by {}", name_of(allocation),
                  count_text(static_cast<std::uint64_t>(nodes), "host"), placement.list, starter);
  if (others > 0)
    out += fmt::format(", {} by ssh", count_text(static_cast<std::uint64_t>(others), "other"));
  if (ways > 0) out += fmt::format(", {} by via=", ways);
  return out;
}

Result<void> check_nodes(const Placement& placement, const io::JobSpec& spec) {
  for (const NodeFacts& node : placement.nodes) {
    const Host host{"", node.name, 0};
    const bool is_base = std::ranges::count(spec.workers, host) > 0;
    if (!is_base || node.is_usable() || !node_of(host, spec.allocation)) continue;
    return fail(ErrorKind::kUnavailable,
                "{} of {} is {}{}: begin without it (-H with the other nodes), or ask for another "
                "allocation",
                node.name, name_of(*placement.allocation), node.state,
                node.reason.empty() ? "" : fmt::format(" ({})", node.reason));
  }
  return {};
}

}  // namespace dt::launcher
