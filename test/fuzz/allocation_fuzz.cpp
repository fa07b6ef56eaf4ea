/// Any bytes as what schedulers say of an allocation: variables, squeue's, scontrol's and the
/// hostfile's text. No crash, bounded memory; hosts that are found are hosts of the hosts grammar.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/launch/allocation.h"
#include "test/fuzz/target.h"

using namespace dt;

namespace {

void check(const Result<Allocation>& found) {
  if (!found) {
    DT_CHECK(found.error().message.find('\n') == std::string::npos, "an error is one line");
    return;
  }
  DT_CHECK(!found->hosts.empty() && usual_workers(*found) >= found->hosts.size(),
           "each host has a worker");
  std::vector<Host> hosts;
  for (const HostLine& line : found->hosts) hosts.push_back(line.host);
  const auto again = parse_hosts(format_host_worker(hosts), "host_worker");
  DT_CHECK(again && again->size() == hosts.size(), "each is a host of host_worker");
  for (std::size_t i = 0; i < hosts.size(); ++i)
    DT_CHECK((*again)[i].host == hosts[i], "and the same one");
}

}  // namespace

/// The input: texts with a NUL behind each. Node list, tasks, squeue, hostfile, scontrol.
DT_FUZZ_TARGET(allocation)
(const std::uint8_t* bytes, std::size_t size) {
  std::string_view in(reinterpret_cast<const char*>(bytes), size);
  std::array<std::string, 5> texts;
  for (std::string& text : texts) {
    const std::size_t end = std::min(in.find('\0'), in.size());
    text = in.substr(0, end);
    in.remove_prefix(std::min(end + 1, in.size()));
  }
  const VariableOf variable = [&](const std::string& name) -> std::optional<std::string> {
    if (name == "SLURM_JOB_NODELIST") return texts[0];
    if (name == "SLURM_TASKS_PER_NODE") return texts[1];
    if (name == "SLURM_JOB_ID" || name == "SLURM_NTASKS" || name == "JOB_ID") return "41";
    if (name == "PE_HOSTFILE") return "/pe";
    // Also as what a launcher gives to its tasks.
    return texts[1];
  };
  check(slurm_allocation(variable, {true, texts[2]}));
  // What squeue would say, so that the rest is reached.
  check(slurm_allocation(variable, {true, "RUNNING|N/A|" + texts[0]}));
  check(slurm_allocation(variable, {false, "no answer"}));
  check(sge_allocation(variable, {true, texts[3]}));
  (void)larger_step(variable);
  for (const NodeFacts& node : parse_nodes(texts[4])) (void)node.is_usable();
  return 0;
}
