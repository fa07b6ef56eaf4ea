/// dtfleet's work for one job: again and again it looks at the machines that a provider has and at
/// what the job wishes, and does what FleetMemory (core/fleet/fleet_memory.h) says. A restarted
/// dtfleet works from both; it forgets only kept holders that had left Slurm's queue already.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/fleet/fleet_memory.h"
#include "core/fleet/fleet_word.h"
#include "core/fleet/look_pace.h"
#include "io/asio.h"
#include "io/job/control_client.h"
#include "supervisor/fleet/marks_file.h"
#include "supervisor/fleet/provider.h"

namespace dt::supervisor {

/// A `dtctl grow` or `dtctl shrink` of a job with --fleet.
struct Resize {
  std::int64_t id = 0;
  bool grows = false;
  std::uint64_t count = 0;  ///< Machines.
  std::string host;         ///< shrink: this one; empty: the newest ones.
};
/// The reply to {"op":"fleet"}: what the job wishes.
struct FleetWish {
  JobWish job;
  std::uint64_t number = 0;  ///< The next request waits for another one.
  bool may_rest = false;     ///< There are no holders, and none are to come.
  std::optional<Resize> resize;
  HolderOrder order;  ///< The job's log, agent and excluded nodes, for a replacement.
};
[[nodiscard]] Result<FleetWish> parse_wish(std::string_view reply);
/// The file of a provider's program of ours (FleetWord::ours).
[[nodiscard]] std::string our_provider(std::string_view name);

class FleetRun {
 public:
  /// `folder`: where a provider's program runs; `seed`: of the pauses after trouble.
  FleetRun(std::string job_dir, FleetWord provider, std::string folder, std::uint64_t seed)
      : job_dir_(std::move(job_dir)),
        word_(std::move(provider)),
        folder_(std::move(folder)),
        pace_(seed) {}

  /// Until the job has ended and all that must go back has, or there is nothing to look after: 0.
  /// An error: no job is there.
  io::awaitable<Result<void>> run();

 private:
  /// One look, `wait` after the one before at the latest; whether it was the last one.
  io::awaitable<Result<bool>> look(Duration wait);
  io::awaitable<Result<void>> serve();
  io::awaitable<Result<void>> connect();
  /// ask_wish(), which also ends when the provider has something new.
  io::awaitable<Result<FleetWish>> next_wish(Duration wait);
  io::awaitable<Result<FleetWish>> ask_wish(Duration wait);
  /// The job has ended, and the provider keeps its machines.
  [[nodiscard]] bool is_over(const JobWish& job) const {
    return job.lets_go && has_listed_ && !provider_->rules().returns_at_end;
  }
  /// Whether the host has a line in the host_worker in force, now or within a few seconds.
  io::awaitable<bool> is_in_force(std::string host);
  /// A sentence about it. Machines that are to go get their is_asked in `listed`.
  io::awaitable<Result<std::string>> do_resize(Resize resize, const JobWish& job,
                                               std::vector<Machine>& listed);
  [[nodiscard]] Result<std::vector<Machine>> to_be_asked(const Resize& resize, const JobWish& job,
                                                         const std::vector<Machine>& listed) const;
  io::awaitable<Result<void>> act(FleetAction action, const FleetWish& wish);
  /// The job's own part: host_worker, notices.
  io::awaitable<Result<void>> request(nlohmann::json what);
  void tell(std::string news) { news_.push_back(std::move(news)); }

  std::string job_dir_;
  FleetWord word_;
  std::string folder_;
  std::string job_;
  std::unique_ptr<Provider> provider_;
  std::optional<MarksFile> marks_;
  FleetMemory memory_;
  std::unique_ptr<io::ControlClient> client_;
  std::uint64_t seen_ = 0;  ///< FleetWish::number
  Time listed_at_{};
  bool has_listed_ = false;        ///< The provider has shown its machines.
  std::vector<std::string> news_;  ///< For the job's events.
  std::int64_t resized_ = 0;       ///< The last Resize that was done, or could not be, and
  Result<std::string> resize_said_;
  std::string trouble_;  ///< What keeps it from its work.
  using Look = LookPace::Look;
  Look found_ = Look::kQuiet;  ///< By the last look.
  LookPace pace_;
};

}  // namespace dt::supervisor
