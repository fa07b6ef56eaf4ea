#include "core/job/take_over.h"

#include <set>

#include "core/protocol/exit_code.h"

namespace dt {
namespace {

/// More terms than can have begun since `known` was written.
constexpr std::uint64_t kTermsUnknown = 1'000'000;
/// Of an agent that may be there; at the job's end none is compared.
constexpr std::uint64_t kAnyIncarnation = 1;

}  // namespace

std::vector<Record> records_to_end(const std::vector<Record>& known,
                                   const std::vector<Host>& named) {
  std::vector<Record> out;
  std::set<Host> hosts;
  Term term;
  for (const Record& record : known) {
    if (std::holds_alternative<JobEnding>(record)) break;
    if (const auto* began = std::get_if<TermBegan>(&record)) term = began->term;
    const auto* agent = std::get_if<AgentKnown>(&record);
    if (!agent)
      out.push_back(record);
    else if (agent->is_let_go())
      hosts.erase(agent->host);
    else  // one that was given up as lost may still have processes
      hosts.insert(agent->host);
  }
  hosts.insert(named.begin(), named.end());
  for (const Host& host : hosts) out.emplace_back(AgentKnown{host, {}, kAnyIncarnation});
  out.emplace_back(TermBegan{Term(term.value + kTermsUnknown)});
  out.emplace_back(JobEnding{kExitInterrupted, "another master takes it over"});
  return out;
}

}  // namespace dt
