#include "core/launch/holders.h"

#include <algorithm>
#include <optional>

#include "core/base/number.h"
#include "core/files/host_names.h"

namespace dt {
namespace {

using host_names::take_until;
using Text = std::string_view;

constexpr Text kSlotsWord = "slots=";
constexpr Text kJoinedWord = "joined";
constexpr Text kForWord = "for=";
constexpr Text kKeepWord = "keep=";

MachineState state_of(Text state) {
  if (state == "RUNNING" || state == "SUSPENDED" || state == "STOPPED") return MachineState::kReady;
  constexpr Text kWaiting[] = {"PENDING",      "CONFIGURING",   "REQUEUED", "REQUEUE_FED",
                               "REQUEUE_HOLD", "RESV_DEL_HOLD", "RESIZING", "SPECIAL_EXIT"};
  const bool waits = std::ranges::find(kWaiting, state) != std::end(kWaiting);
  return waits ? MachineState::kPending : MachineState::kEnding;
}

/// In a shell's single quotes.
std::string quoted(Text word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// Words in one word of a comment: "-p,gpu,--comment=a%20b".
std::string encoded(const std::vector<std::string>& words) {
  constexpr Text kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._/=:@+[]";
  std::string out;
  for (const std::string& word : words) {
    if (&word != &words.front()) out += ',';
    for (const char c : word) {
      if (kPlain.find(c) != Text::npos)
        out += c;
      else
        out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::vector<std::string> decoded(Text text) {
  constexpr std::size_t kByteSize = 3;  // "%2C"
  std::vector<std::string> words;
  while (!text.empty()) {
    Text coded = take_until(text, ',');
    std::string& word = words.emplace_back();
    while (!coded.empty()) {
      const bool is_byte = coded.front() == '%' && coded.size() >= kByteSize;
      const auto byte = is_byte ? parse_number<std::uint8_t>(coded.substr(1, 2), 16) : std::nullopt;
      word += byte ? static_cast<char>(*byte) : coded.front();
      coded.remove_prefix(byte ? kByteSize : 1);
    }
  }
  return words;
}

std::optional<Machine> parse_line(Text line, Text job) {
  Machine holder;
  holder.id = take_until(line, '|');
  const auto number = parse_number<std::uint32_t>(holder.id);
  if (!number) return std::nullopt;
  holder.order = *number;
  holder.state = state_of(take_until(line, '|'));
  holder.host = take_until(line, '|');
  holder.why = host_names::shown(take_until(line, '|'));
  if (holder.why == "None") holder.why.clear();
  Text comment = line;
  if (take_until(comment, ' ') != fmt::format("dtlaunch:{}", job)) return std::nullopt;
  while (!comment.empty()) {
    const Text word = take_until(comment, ' ');
    if (word == kJoinedWord) holder.mark = Mark::kAdded;
    if (word.starts_with(kKeepWord)) holder.kept = decoded(word.substr(kKeepWord.size()));
    if (word.starts_with(kForWord)) holder.replaces = word.substr(kForWord.size());
    if (word.starts_with(kSlotsWord))
      holder.slots =
          host_names::number(word.substr(kSlotsWord.size()), host_names::kMostSlots).value_or(1);
  }
  if (holder.state == MachineState::kPending) holder.host.clear();
  return holder;
}

}  // namespace

std::string holders_name(Text job) { return fmt::format("dt+{}", job); }

std::string holder_comment(Text job, const Machine& holder) {
  std::string comment = fmt::format("dtlaunch:{}", job);
  if (holder.slots != 1) comment += fmt::format(" {}{}", kSlotsWord, holder.slots);
  if (holder.mark != Mark::kNone) comment += fmt::format(" {}", kJoinedWord);
  if (!holder.replaces.empty()) comment += fmt::format(" {}{}", kForWord, holder.replaces);
  if (holder.kept) comment += fmt::format(" {}{}", kKeepWord, encoded(*holder.kept));
  return comment;
}

std::vector<std::string> list_holders_words(Text job) {
  return {"-h", "--me", "-n", holders_name(job), "-o", "%A|%T|%N|%r|%k"};
}

Result<std::vector<Machine>> parse_holders(Text squeue, Text job) {
  std::vector<Machine> holders;
  while (!squeue.empty()) {
    const Text line = take_until(squeue, '\n');
    if (line.empty()) continue;
    auto holder = parse_line(line, job);
    if (!holder)
      return fail(ErrorKind::kProtocol, "squeue shows a job named {} that is no holder: {}",
                  holders_name(job), host_names::shown(line));
    holders.push_back(std::move(*holder));
  }
  std::ranges::sort(holders, {}, &Machine::order);
  return holders;
}

const Machine* holder_on(const std::vector<Machine>& holders, Text node) {
  const auto found = std::ranges::find_if(holders, [node](const Machine& h) {
    return h.state == MachineState::kReady && h.host == node;
  });
  return found == holders.end() ? nullptr : &*found;
}

std::vector<std::string> submit_words(const HolderOrder& order) {
  // Another job on the node would have its share of the cores that the workers count on. A holder
  // that Slurm began again would find its host's line gone.
  std::vector<std::string> words = {"--exclusive", "--no-requeue", "--output=" + order.log};
  if (!order.excluded.empty())
    words.push_back(fmt::format("--exclude={}", fmt::join(order.excluded, ",")));
  words.insert(words.end(), order.words.begin(), order.words.end());
  Machine holder;
  holder.slots = order.slots;
  holder.replaces = order.replaces;
  if (order.is_kept) holder.kept = order.words;
  words.insert(words.end(), {"--parsable", "--nodes=1", "--job-name=" + holders_name(order.job),
                             "--comment=" + holder_comment(order.job, holder)});
  return words;
}

std::string holder_script(const HolderOrder& order) {
  // Where backend/bundle.h puts them.
  const std::string copies = fmt::format(
      "\"${{XDG_CACHE_HOME:-$HOME/.cache}}\"/dtlaunch/{0}/dtagent "
      "\"$HOME\"/.cache/dtlaunch/{0}/dtagent "
      "/var/tmp/dtlaunch-$u/{0}/dtagent /tmp/dtlaunch-$u/{0}/dtagent",
      std::string(32, '?'));
  return fmt::format(
      "#!/bin/sh\n"
      "# Holds this node for dtlaunch job {0} for as long as its agent is here.\n"
      "trap 'exit 0' TERM USR1 USR2\n"
      "i=0 u=$(id -u)\n"
      "while [ $i -lt {1} ]; do\n"
      "  for p in {2} {3}; do\n"
      "    case $p in /var/tmp/dtlaunch-$u/*|/tmp/dtlaunch-$u/*) [ -O \"${{p%/*/*}}\" ] || "
      "continue;; esac\n"
      "    \"$p\" --help 2>/dev/null | grep -q -e --hold || continue\n"
      "    exec \"$p\" --hold --job {4} --host \"$SLURMD_NODENAME\" --lonely-timeout {1}\n"
      "  done\n"
      "  sleep 1\n"
      "  i=$((i + 1))\n"
      "done\n"
      "echo \"no dtagent has come here within {1} s: the job did not want this node\"\n",
      order.job, order.lonely_s, quoted(order.agent), copies, quoted(order.job));
}

}  // namespace dt
