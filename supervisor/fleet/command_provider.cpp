#include "supervisor/fleet/command_provider.h"

#include <algorithm>
#include <chrono>

#include "core/fleet/discovered_hosts.h"
#include "io/asio.h"
#include "io/clock.h"
#include "io/last_words.h"
#include "io/program_output.h"

namespace dt::supervisor {

using io::awaitable;
using namespace std::chrono_literals;

namespace {

constexpr Duration kPause = 5s;
constexpr Duration kLongestRun = 10s;
constexpr std::size_t kMostOutput = std::size_t{4} << 20;
constexpr int kOutputsToBelieve = 2;

}  // namespace

Duration CommandProvider::longest_pause() const { return kPause; }

std::string CommandProvider::text(const std::vector<Machine>& machines) const {
  const auto going = std::ranges::count_if(machines, [](const Machine& machine) {
    return machine.is_asked || machine.state == MachineState::kEnding;
  });
  return fmt::format("{} named{}", machines.size() - static_cast<std::size_t>(going),
                     going > 0 ? fmt::format(", {} to be left", going) : "");
}

awaitable<Result<std::vector<Machine>>> CommandProvider::list(std::vector<Machine> known) {
  // timeout ends what a killed dtfleet cannot.
  io::ProgramCall call{
      .argv = {"/bin/sh", "-c", R"(cd -- "$1" && exec timeout -s KILL 11 /bin/sh -c "$2")", "sh",
               folder_, words_},
      .name = words_,
      .most = kMostOutput,
      .deadline = kLongestRun};
  const auto output = co_await io::awaited_output(std::move(call));
  if (!output) co_return tl::unexpected(output.error());
  if (!output->status.clean())
    co_return fail(ErrorKind::kUnavailable, "{}: {}{}", words_, to_string(output->status),
                   output->words.empty() ? "" : ": " + io::on_one_line(output->words));
  const std::int64_t now = io::wall_now();
  auto machines = parse_discovered(output->out, static_cast<double>(now) / 1e9);
  if (!machines) co_return fail(ErrorKind::kProtocol, "{}: {}", words_, machines.error().message);
  // A host that was let go and is named again is another machine.
  for (Machine& machine : *machines) {
    const auto at = std::ranges::find(known, machine.host, &Machine::host);
    machine.id = at == known.end() ? fmt::format("{}@{}", machine.host, now) : at->id;
    lacks_.erase(machine.id);
    if (at != known.end()) known.erase(at);
  }
  for (Machine& machine : known) {
    if (++lacks_[machine.id] >= kOutputsToBelieve) machine.is_asked = true;
    machines->push_back(std::move(machine));
  }
  co_return machines;
}

}  // namespace dt::supervisor
