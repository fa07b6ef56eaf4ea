#include <chrono>
#include <utility>

#include "supervisor/fleet/provider.h"
#include "supervisor/fleet/slurm_queue.h"

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

/// Calls block, each for 15 s at most.
class SlurmProvider final : public Provider {
 public:
  explicit SlurmProvider(std::string job) : job_(job), queue_(std::move(job)) {}

  [[nodiscard]] std::string name() const override { return "Slurm"; }
  [[nodiscard]] FleetRules rules() const override { return kHolderRules; }
  [[nodiscard]] bool needs_marks_file() const override { return false; }
  [[nodiscard]] std::string line_of(const std::string& host) const override {
    return host + " via=slurm";
  }
  /// A queue may take hours.
  [[nodiscard]] Duration longest_pause() const override { return 20s; }

  awaitable<Result<std::vector<Machine>>> list(std::vector<Machine>) override {
    co_return queue_.list();
  }

  awaitable<Result<std::string>> act(FleetAction action, Machine machine,
                                     HolderOrder order) override {
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

  awaitable<Result<void>> give_all_back() override {
    const auto holders = queue_.list();
    if (!holders) co_return tl::unexpected(holders.error());
    Result<void> all;
    for (const Machine& holder : *holders)
      if (auto done = queue_.cancel(holder.id); !done) all = std::move(done);
    co_return all;
  }

 private:
  Result<std::string> let_go(Machine holder, const std::string& why) {
    // The notice of a cancelled holder is to ask for no replacement.
    if (std::exchange(holder.kept, std::nullopt))
      if (const auto marked = queue_.mark(holder); !marked) return quietly(marked);
    if (const auto cancelled = queue_.cancel(holder.id); !cancelled) return quietly(cancelled);
    return fmt::format("{} is given back: {}", what(holder), why);
  }

  /// Asks for a holder in the place of `taken`, whose node Slurm takes.
  Result<std::string> replace(const Machine& taken, HolderOrder order) {
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

  std::string job_;
  SlurmQueue queue_;
};

}  // namespace

std::unique_ptr<Provider> slurm_provider(std::string job) {
  return std::make_unique<SlurmProvider>(std::move(job));
}

}  // namespace dt::supervisor
