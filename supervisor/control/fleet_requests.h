/// The supervisor's side of a fleet: keeps dtfleet, a process of its own, alive while the job has
/// --fleet or Slurm holds nodes for it (core/launch/holders.h), and answers what that asks. dtfleet
/// decides; here is no state of it but what dtfleet reported last.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "core/base/time.h"
#include "io/asio.h"
#include "io/job/status.h"
#include "supervisor/context/supervisor_context.h"
#include "supervisor/control/changes.h"
#include "supervisor/control/control_request.h"

namespace dt::supervisor {

/// One thread. The context outlives it.
class FleetRequests {
 public:
  explicit FleetRequests(SupervisorContext& context);

  /// Starts dtfleet for a job with --fleet; otherwise where `is_resumed`: an earlier supervisor of
  /// this job may have had holders. dtfleet looks, and ends if there are none. A queue that does
  /// not answer is trouble only for a job that has nodes of it.
  void begin(bool is_resumed);
  /// {"op":"grow"}, {"op":"shrink"}. The provider of a job with --fleet does it, or says why not,
  /// within 30 s. For Slurm grow only says whether so many more workers may be asked for, and
  /// starts dtfleet: the reply has what a holder needs to know.
  io::awaitable<std::string> resize(ControlAsk ask);
  /// {"op":"fleet"}: dtfleet's report; the reply, at once or when there is something to look at, is
  /// what the job wishes.
  io::awaitable<std::string> answer(ControlAsk ask);
  /// Something may have changed that holders depend on.
  void look() { looks_.note(); }
  /// The job has ended: dtfleet gives all holders back. Returns when it has, after 15 s in any
  /// case.
  io::awaitable<void> let_go();

  [[nodiscard]] std::optional<io::FleetStatus> status() const;

 private:
  /// Throws json::exception: a part of dtfleet's report has another type.
  void take(const nlohmann::json& report);
  [[nodiscard]] bool is_slurm() const {
    return context_.spec.fleet.empty() || context_.spec.fleet == "slurm";
  }
  /// One at a time is with dtfleet.
  struct Resize {
    std::int64_t id = 0;  ///< No other one of the job has it.
    ControlAsk ask;
    std::string reply;  ///< Empty: none yet.
  };

  /// Why the job cannot have so many more workers; empty: it can.
  [[nodiscard]] std::string why_not_more(const ControlAsk& ask, std::uint64_t asked) const;
  void reply_resize(std::string reply);
  void start();
  io::awaitable<void> keep();
  [[nodiscard]] std::string wish(std::uint64_t number) const;

  SupervisorContext& context_;
  Changes looks_;
  Changes replies_;  ///< To resize_.
  std::optional<Resize> resize_;
  bool is_kept_ = false;         ///< keep() runs.
  bool lets_go_ = false;         ///< The job has ended.
  bool may_rest_ = false;        ///< dtfleet was allowed to end.
  bool is_guess_ = false;        ///< Nothing shows that the job has holders.
  Time grown_at_{};              ///< The last time dtfleet was asked for.
  io::FleetStatus reported_;     ///< By dtfleet the last time, or why it has failed.
  std::uint64_t asked_ = 0;      ///< And workers for whose hosts it waits.
  io::asio::steady_timer over_;  ///< Cancelled when keep() ends.
};

}  // namespace dt::supervisor
