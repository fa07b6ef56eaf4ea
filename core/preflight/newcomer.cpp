#include "core/preflight/newcomer.h"

#include <algorithm>

namespace dt::preflight {
namespace {

HostFindings as_findings(const Reference& reference) {
  HostFindings found;
  found.host = reference.host;
  if (!reference.command.path.empty() || !reference.command.files.empty())
    found.command = reference.command;
  if (reference.cores != 0) {
    MachineFacts machine;
    machine.cores = reference.cores;
    found.machine = machine;
  }
  found.gpus = reference.gpus;
  return found;
}

}  // namespace

Reference reference_of(const Findings& findings, const Verdict& verdict) {
  std::vector<std::size_t> remarks(findings.hosts.size(), 0);
  for (const Remark& remark : verdict.remarks) ++remarks[remark.host];
  const auto best = std::ranges::min_element(remarks) - remarks.begin();
  const HostFindings& host = findings.hosts[static_cast<std::size_t>(best)];
  Reference reference;
  reference.host = host.host;
  if (host.command && *host.command) reference.command = **host.command;
  if (host.gpus && *host.gpus) reference.gpus = **host.gpus;
  if (host.machine && *host.machine) reference.cores = (*host.machine)->cores;
  return reference;
}

NewcomerVerdict judge_newcomer(const Reference& reference, Findings found) {
  // Of two kinds the first is the usual one.
  found.hosts.insert(found.hosts.begin(), as_findings(reference));
  for (Way& way : found.ways) {
    ++way.from;
    ++way.to;
  }
  constexpr std::size_t kNewcomer = 1;
  // What keeps another host from listening is its own trouble.
  for (std::size_t i = kNewcomer + 1; i < found.hosts.size(); ++i)
    if (auto& listening = found.hosts[i].listening;
        listening && (!*listening || !(*listening)->why.empty()))
      listening.reset();
  NewcomerVerdict verdict;
  for (const Remark& remark : judge(found).remarks) {
    // A way from another host is one to the newcomer.
    if (remark.host != kNewcomer && (remark.host == 0 || remark.row != Row::kNetwork)) continue;
    auto& all = remark.mark == Mark::kFail ? verdict.failed : verdict.warnings;
    all.push_back(
        fmt::format("{}: {} (remedy: {})", to_text(remark.row), remark.what, remark.remedy));
  }
  return verdict;
}

}  // namespace dt::preflight
