#include <algorithm>
#include <chrono>
#include <map>

#include "core/fleet/discovered_hosts.h"
#include "io/clock.h"
#include "io/last_words.h"
#include "io/program_output.h"
#include "supervisor/fleet/provider.h"

namespace dt::supervisor {

using io::awaitable;
using namespace std::chrono_literals;

namespace {

constexpr Duration kPause = 5s;
constexpr Duration kLongestRun = 10s;
constexpr std::size_t kMostOutput = std::size_t{4} << 20;
constexpr int kOutputsToBelieve = 2;

class CommandProvider final : public Provider {
 public:
  CommandProvider(std::string words, std::string folder)
      : words_(std::move(words)), folder_(std::move(folder)) {}

  [[nodiscard]] std::string name() const override { return words_; }
  [[nodiscard]] FleetRules rules() const override { return {}; }
  [[nodiscard]] Duration longest_pause() const override { return kPause; }

  [[nodiscard]] std::string text(const std::vector<Machine>& machines) const override {
    const auto going = std::ranges::count_if(machines, [](const Machine& machine) {
      return machine.is_asked || machine.state == MachineState::kEnding;
    });
    return fmt::format("{} named{}", machines.size() - static_cast<std::size_t>(going),
                       going > 0 ? fmt::format(", {} to be left", going) : "");
  }

  awaitable<Result<std::vector<Machine>>> list(std::vector<Machine> known) override {
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

 private:
  std::string words_;
  std::string folder_;
  std::map<std::string, int> lacks_;  ///< By id: outputs in a row that lack it.
};

}  // namespace

std::unique_ptr<Provider> command_provider(std::string words, std::string folder) {
  return std::make_unique<CommandProvider>(std::move(words), std::move(folder));
}

}  // namespace dt::supervisor
