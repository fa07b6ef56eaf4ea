#include "supervisor/hosts/folder_checks.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstring>

namespace dt::supervisor {
namespace {

constexpr Duration kAnswersWithin = std::chrono::seconds(30);
constexpr const char* kRemedy =
    "where hosts share no folder: --sync-dst-dir, or --no-shared-folder for programs that need "
    "none";

}  // namespace

bool FolderChecks::begin(const Host& host, const AgentState& state, Time now) {
  const auto before = passed_.find(host);
  const bool is_known = before != passed_.end() && before->second == state.incarnation;
  // Processes that already run there were started in the folder.
  if (folder_.empty() || is_known || !state.processes.empty()) return false;
  asked_.insert_or_assign(host, Asked{state, now});
  return true;
}

std::optional<AgentState> FolderChecks::take(const Host& host) {
  const auto asked = asked_.find(host);
  if (asked == asked_.end()) return std::nullopt;
  AgentState state = std::move(asked->second.state);
  asked_.erase(asked);
  return state;
}

void FolderChecks::passed(const Host& host, const AgentState& state) {
  passed_[host] = state.incarnation;
}

std::vector<Host> FolderChecks::overdue(Time now) const {
  std::vector<Host> late;
  for (const auto& [host, asked] : asked_)
    if (now - asked.at > kAnswersWithin) late.push_back(host);
  return late;
}

std::string FolderChecks::trouble(int error) const {
  if (error == ENOENT || error == ENOTDIR)
    return fmt::format("{} is not there (is the volume mounted? {})", folder_, kRemedy);
  return fmt::format("{} cannot be entered: {} ({})", folder_, std::strerror(error), kRemedy);
}

std::string FolderChecks::silence() const {
  return fmt::format("{} does not answer there (is the volume stalled?)", folder_);
}

}  // namespace dt::supervisor
