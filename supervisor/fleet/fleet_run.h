/// dtfleet's work for one job: again and again it looks at Slurm's queue and at what the job
/// wishes, and does what plan_holders() (core/launch/holder_plan.h) says. A restarted dtfleet
/// works from both; it forgets only kept holders that had left the queue already.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/launch/holder_plan.h"
#include "io/asio.h"
#include "io/job/control_client.h"
#include "supervisor/fleet/slurm_queue.h"

namespace dt::supervisor {

/// The reply to {"op":"fleet"}: what the job wishes.
struct FleetWish {
  JobWish job;
  std::uint64_t number = 0;  ///< The next request waits for another one.
  bool may_rest = false;     ///< There are no holders, and none are to come.
  HolderOrder order;         ///< The job's log, agent and excluded nodes, for a replacement.
};
[[nodiscard]] Result<FleetWish> parse_wish(std::string_view reply);

class FleetRun {
 public:
  explicit FleetRun(std::string job_dir) : job_dir_(std::move(job_dir)) {}

  /// Until the job has ended and all holders are given back, or it has none: 0. An error: no job is
  /// there.
  io::awaitable<Result<void>> run();

 private:
  /// One look, `wait` after the one before at the latest; whether it was the last one.
  io::awaitable<Result<bool>> look(Duration wait);
  io::awaitable<Result<FleetWish>> ask_wish(Duration wait);
  io::awaitable<Result<void>> act(HolderAction action, HolderOrder order);
  Result<void> act_in_queue(const HolderAction& action, HolderOrder order);
  /// Asks for a holder in the place of `taken`, whose node Slurm takes.
  Result<void> replace(const Holder& taken, HolderOrder order);
  io::awaitable<Result<void>> request(std::string op, std::string host, std::uint32_t slots);
  Result<void> give_all_back();

  std::string job_dir_;
  std::string job_;
  std::unique_ptr<io::ControlClient> client_;
  std::uint64_t seen_ = 0;       ///< FleetWish::number
  std::vector<Holder> holders_;  ///< Slurm's queue at the last poll.
  bool has_listed_ = false;      ///< Slurm has shown its queue.
  std::vector<Holder> gone_;     ///< Kept holders that left the queue and have no replacement yet.
  std::set<std::uint32_t> replaced_;  ///< Holders for which a replacement was submitted.
  std::vector<std::string> unheld_;   ///< HolderPlan::unheld
  std::vector<std::string> news_;     ///< For the job's events.
  std::string trouble_;               ///< What keeps it from its work.
  bool is_changed_ = false;           ///< The last look found or did something.
};

}  // namespace dt::supervisor
