#include "core/fleet/discovered_hosts.h"

#include <algorithm>
#include <set>

#include "core/base/words.h"
#include "core/files/host_names.h"

namespace dt {
namespace {

using host_names::take_until;
using Text = std::string_view;

constexpr std::uint32_t kLongestNotice_s = 366 * 24 * 3600;
constexpr Text kLeaveWord = "leave=";

/// "gpu3:4"
Result<Machine> parse_host(Text word) {
  Text name = word;
  Machine machine{.state = MachineState::kReady};
  machine.host = take_until(name, ':');
  machine.id = machine.host;
  const bool is_name = !machine.host.empty() && machine.host.size() <= host_names::kLongestName &&
                       std::ranges::all_of(machine.host, host_names::is_name_char);
  if (!is_name)
    return fail(ErrorKind::kProtocol, "\"{}\" is no host: HOST or HOST:SLOTS was expected",
                host_names::shown(word));
  if (word.find(':') == Text::npos) return machine;
  const auto slots = host_names::number(name, host_names::kMostSlots);
  if (!slots || *slots == 0)
    return fail(ErrorKind::kProtocol, "\"{}\": a number of workers, 1 to {}, was expected",
                host_names::shown(word), host_names::kMostSlots);
  machine.slots = *slots;
  return machine;
}

}  // namespace

Result<std::vector<Machine>> parse_discovered(Text text, double now) {
  std::vector<Machine> machines;
  std::set<std::string> hosts;
  while (!text.empty()) {
    Text line = take_until(text, '\n');
    line = line.substr(0, line.find('#'));
    const Text word = next_word(line);
    if (word.empty()) continue;
    auto machine = parse_host(word);
    if (!machine) return tl::unexpected(machine.error());
    if (const Text more = next_word(line); !more.empty()) {
      const auto left = more.starts_with(kLeaveWord)
                            ? host_names::number(more.substr(kLeaveWord.size()), kLongestNotice_s)
                            : std::nullopt;
      if (!left || !next_word(line).empty())
        return fail(ErrorKind::kProtocol, "behind {}: leave=SECONDS or nothing was expected",
                    machine->host);
      machine->state = MachineState::kEnding;
      machine->deadline = now + *left;
    }
    if (!hosts.insert(machine->host).second)
      return fail(ErrorKind::kProtocol, "{} is named twice", machine->host);
    machine->order = machines.size();
    machines.push_back(std::move(*machine));
  }
  if (machines.empty()) return fail(ErrorKind::kProtocol, "no host is named");
  return machines;
}

}  // namespace dt
