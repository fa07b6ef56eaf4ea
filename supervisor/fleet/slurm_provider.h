/// Slurm's holders (core/launch/holders.h) as a provider: `dtctl grow` asks for them.
#pragma once

#include "supervisor/fleet/provider.h"
#include "supervisor/fleet/slurm_queue.h"

namespace dt::supervisor {

/// Calls block, each for 15 s at most.
class SlurmProvider : public Provider {
 public:
  explicit SlurmProvider(std::string job) : job_(job), queue_(std::move(job)) {}

  [[nodiscard]] std::string name() const override { return "Slurm"; }
  [[nodiscard]] FleetRules rules() const override { return kHolderRules; }
  [[nodiscard]] bool needs_marks_file() const override { return false; }
  [[nodiscard]] std::string line_of(const std::string& host) const override;
  [[nodiscard]] Duration longest_pause() const override;
  io::awaitable<Result<std::vector<Machine>>> list(std::vector<Machine> known) override;
  io::awaitable<Result<std::string>> act(FleetAction action, Machine machine,
                                         HolderOrder order) override;
  io::awaitable<Result<void>> give_all_back() override;

 private:
  /// Asks for a holder in the place of `taken`, whose node Slurm takes.
  Result<std::string> replace(const Machine& taken, HolderOrder order);
  Result<std::string> let_go(Machine holder, const std::string& why);

  std::string job_;
  SlurmQueue queue_;
};

}  // namespace dt::supervisor
