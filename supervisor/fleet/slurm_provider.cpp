#include "supervisor/fleet/slurm_provider.h"

#include <chrono>
#include <utility>

#include "io/asio.h"

namespace dt::supervisor {

using io::awaitable;
using namespace std::chrono_literals;

namespace {

/// A replacement waits this many seconds for an agent: at --max-workers its host joins only after
/// the old host has left.
constexpr std::uint32_t kReplacementWaits = 900;

std::string what(const Machine& holder) {
  return holder.host.empty() ? fmt::format("Slurm job {}", holder.id)
                             : fmt::format("Slurm job {} ({})", holder.id, holder.host);
}

Result<std::string> quietly(const Result<void>& done) {
  return done.map([] { return std::string(); });
}

}  // namespace

std::string SlurmProvider::line_of(const std::string& host) const { return host + " via=slurm"; }

/// A queue may take hours.
Duration SlurmProvider::longest_pause() const { return 20s; }

awaitable<Result<std::vector<Machine>>> SlurmProvider::list(std::vector<Machine>) {
  co_return queue_.list();
}

awaitable<Result<std::string>> SlurmProvider::act(FleetAction action, Machine machine,
                                                  HolderOrder order) {
  if (const auto* set = std::get_if<SetMark>(&action)) {
    machine.mark = set->mark;
    co_return quietly(queue_.mark(machine));
  }
  if (const auto* lost = std::get_if<Replace>(&action)) {
    Result<std::string> news;
    if (!lost->is_asked_for) news = replace(machine, std::move(order));
    machine.kept.reset();
    // If that fails, the replacement's comment says it as well.
    if (news && machine.state != MachineState::kEnding) (void)queue_.mark(machine);
    co_return news;
  }
  if (const auto* go = std::get_if<LetGo>(&action)) co_return let_go(std::move(machine), go->why);
  co_return std::string();
}

Result<std::string> SlurmProvider::let_go(Machine holder, const std::string& why) {
  // The notice of a cancelled holder is to ask for no replacement.
  if (std::exchange(holder.kept, std::nullopt))
    if (const auto marked = queue_.mark(holder); !marked) return quietly(marked);
  if (const auto cancelled = queue_.cancel(holder.id); !cancelled) return quietly(cancelled);
  return fmt::format("{} is given back: {}", what(holder), why);
}

Result<std::string> SlurmProvider::replace(const Machine& taken, HolderOrder order) {
  order.job = job_;
  order.slots = taken.slots;
  order.words = *taken.kept;
  order.is_kept = true;
  order.lonely_s = kReplacementWaits;
  order.replaces = taken.id;
  const auto id = queue_.submit(order);
  if (!id) return id;
  return fmt::format("{} is taken away: Slurm job {} asks for another node", what(taken), *id);
}

awaitable<Result<void>> SlurmProvider::give_all_back() {
  const auto holders = queue_.list();
  if (!holders) co_return tl::unexpected(holders.error());
  Result<void> all;
  for (const Machine& holder : *holders)
    if (auto done = queue_.cancel(holder.id); !done) all = std::move(done);
  co_return all;
}

}  // namespace dt::supervisor
