#include "supervisor/hosts/checkpoint_place.h"

#include <algorithm>
#include <utility>

namespace dt::supervisor {

CheckpointPlace::CheckpointPlace(std::string file, std::string word, std::set<Host> hosts,
                                 bool is_local)
    : file_(std::move(file)),
      word_(std::move(word)),
      hosts_(std::move(hosts)),
      is_local_(is_local) {}

std::optional<StartProcess> CheckpointPlace::ask(const Host& host, std::uint32_t id,
                                                 const std::vector<ProcessReport>& known) {
  if (is_local_ || hosts_.count(host) == 0 || not_written_ != "") return std::nullopt;
  Look& look = looks_[host];
  const ProcessId asked{Role::kPrepare, look.id};
  const bool is_there = std::ranges::count(known, asked, &ProcessReport::process) > 0;
  if (look.is_asked ? is_there : look.why_not && !look.is_due) return std::nullopt;
  look.id = id;
  look.is_asked = true;
  look.is_due = false;
  look.text.clear();
  return StartProcess{
      .process = {Role::kPrepare, id}, .argv = {"/bin/cat", file_}, .env = {}, .cwd = "/"};
}

std::vector<Host> CheckpointPlace::look_again() {
  std::vector<Host> hosts;
  for (auto& [host, look] : looks_) {
    if (look.is_asked || !look.why_not || look.why_not->empty()) continue;
    look.is_due = true;
    hosts.push_back(host);
  }
  return hosts;
}

bool CheckpointPlace::is_ours(ProcessId process) const {
  return process.role == Role::kPrepare &&
         std::ranges::any_of(looks_, [&](const auto& l) { return l.second.id == process.id; });
}

void CheckpointPlace::output(ProcessId process, std::string_view bytes) {
  constexpr std::size_t kMost = 1000;
  for (auto& [host, look] : looks_)
    if (look.id == process.id)
      look.text.append(bytes.substr(0, kMost - std::min(kMost, look.text.size())));
}

Host CheckpointPlace::ended(ProcessId process, ExitStatus status, const std::string& why) {
  const auto it =
      std::ranges::find_if(looks_, [&](const auto& l) { return l.second.id == process.id; });
  if (it == looks_.end()) return {};
  auto& [host, look] = *it;
  look.is_asked = false;
  const std::string said = look.text.substr(0, look.text.find('\n'));
  if (status.clean() && look.text == word_)
    look.why_not = "";
  else
    look.why_not = fmt::format("{} does not see {}: {}", host, file_,
                               !why.empty()     ? why
                               : status.clean() ? "another file of that name is there"
                               : said.empty()   ? to_string(status)
                                                : said);
  return host;
}

void CheckpointPlace::room(std::uint64_t free, std::uint64_t needed) {
  needed = std::max(needed, kLeastRoom);
  no_room_ = free >= needed ? ""
                            : fmt::format("{:.1f} MB are free where {} lies, {:.1f} MB are needed",
                                          static_cast<double>(free) / 1e6, file_,
                                          static_cast<double>(needed) / 1e6);
}

std::optional<std::string> CheckpointPlace::why_not() const {
  if (!not_written_) return std::nullopt;
  if (!not_written_->empty()) return not_written_;
  for (const auto& [host, look] : looks_)
    if (look.why_not && !look.why_not->empty()) return look.why_not;
  const auto has_said = [](const auto& l) { return l.second.why_not.has_value(); };
  const bool all_said = is_local_ || (!looks_.empty() && std::ranges::all_of(looks_, has_said));
  if (!all_said) return std::nullopt;
  return no_room_;
}

}  // namespace dt::supervisor
