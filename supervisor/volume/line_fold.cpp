#include "supervisor/volume/line_fold.h"

#include <algorithm>
#include <utility>

#include "core/files/ranges.h"

namespace dt::supervisor {
namespace {

constexpr std::size_t kLongestList = 60;  ///< Characters; a longer list becomes its length.
constexpr std::size_t kMemberBytes = 96;  ///< What a member costs, roughly.

std::string list_or_count(const std::string& list, std::string_view before, std::size_t count,
                          std::string_view what) {
  return list.size() <= kLongestList ? fmt::format("[{} {}] ", before, list)
                                     : fmt::format("[{} {}] ", count, what);
}

using Members = std::vector<std::pair<std::uint32_t, Host>>;

/// "[workers 0-7,9] ", "[prepare-data n[1-64]] ".
std::string prefix_of_many(Role role, const Members& members) {
  if (role == Role::kPrepare) {
    std::vector<Host> hosts;
    for (const auto& [id, host] : members) hosts.push_back(Host{"", host.name, 0});
    return list_or_count(in_few_words(std::move(hosts)), "prepare-data", members.size(),
                         "hosts' prepare-data");
  }
  std::vector<std::uint64_t> ids;
  for (const auto& [id, host] : members) ids.push_back(id);
  const std::string_view what = role == Role::kServer ? "servers" : "workers";
  return list_or_count(fold_numbers(std::move(ids)), what, members.size(), what);
}

}  // namespace

std::string line_prefix(ProcessId process, const Host& host) {
  return process.role == Role::kPrepare ? fmt::format("[prepare-data {}] ", host.name)
                                        : fmt::format("[{} {}] ", to_string(process), host.name);
}

void LineFold::add(ProcessId process, const Host& host, bool is_stderr, std::string_view text,
                   Time now) {
  const auto [entry, is_new] = open_.try_emplace(Key{process.role, is_stderr, std::string(text)});
  const auto last = last_of_.find(process);
  // An earlier group would bring the line before others of its process.
  const std::uint64_t after = last == last_of_.end() ? begin_ : last->second + 1;
  auto& numbers = entry->second;
  const auto fits = std::lower_bound(numbers.begin(), numbers.end(), after);
  const std::uint64_t number = fits == numbers.end() ? end() : *fits;
  if (fits == numbers.end()) {
    numbers.push_back(number);
    groups_.push_back({&entry->first, now, {}});
    bytes_ += text.size();
  }
  groups_[number - begin_].members.emplace_back(process.id, host);
  bytes_ += kMemberBytes;
  last_of_[process] = number;
}

LineFold::Line LineFold::take_first() {
  const Group group = std::move(groups_.front());
  groups_.pop_front();
  const auto& [role, is_stderr, text] = *group.key;
  bytes_ -= text.size() + group.members.size() * kMemberBytes;
  const auto& [id, host] = group.members.front();
  const std::string prefix = group.members.size() == 1 ? line_prefix({role, id}, host)
                                                       : prefix_of_many(role, group.members);
  Line line{is_stderr, prefix + text + "\n"};
  for (const auto& member : group.members) {
    const auto last = last_of_.find({role, member.first});
    if (last != last_of_.end() && last->second == begin_) last_of_.erase(last);
  }
  const auto open = open_.find(*group.key);
  open->second.pop_front();
  if (open->second.empty()) open_.erase(open);
  ++begin_;
  return line;
}

std::optional<Time> LineFold::due_at() const {
  return groups_.empty() ? std::nullopt : std::optional(groups_.front().since + kWait);
}

std::vector<LineFold::Line> LineFold::due(Time now) {
  std::vector<Line> lines;
  while (!groups_.empty() && (now - groups_.front().since >= kWait || bytes_ > most_bytes_))
    lines.push_back(take_first());
  return lines;
}

std::vector<LineFold::Line> LineFold::up_to_last_of(ProcessId process) {
  std::vector<Line> lines;
  const auto last = last_of_.find(process);
  if (last == last_of_.end()) return lines;
  for (const std::uint64_t number = last->second; begin_ <= number;) lines.push_back(take_first());
  return lines;
}

}  // namespace dt::supervisor
