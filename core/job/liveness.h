/// Whether a host and its workers are alive, by two kinds of signs: the agent's link and the data
/// connections that servers see. Pure; core/job/host_watch.h decides on lost hosts by it.
///
///     link up                                  alive
///     link down, data flows                    unsupervised: trains on to the boundary
///     link down, no data for suspect_after     suspect
///     link down, no data for dead_after        dead
///
/// An open link without messages counts as down from its last message on.
#pragma once

#include <map>
#include <optional>

#include "core/base/by_id.h"
#include "core/base/id.h"
#include "core/base/lookup.h"
#include "core/base/time.h"
#include "core/files/hosts.h"

namespace dt {

enum class Life { kAlive, kUnsupervised, kSuspect, kDead };

class Liveness {
 public:
  struct Limits {
    Duration suspect_after = std::chrono::seconds(1);
    Duration dead_after = std::chrono::seconds(3);
  };
  explicit Liveness(Limits limits) : limits_(limits) {}

  void link_up(const Host& host) { down_since_.erase(host); }
  /// Keeps the first moment if it was down already.
  void link_down(const Host& host, Time now) { down_since_.emplace(host, now); }
  void forget(const Host& host) { down_since_.erase(host); }
  /// A server sees the worker of the job.
  void traffic(WorkerId worker, Time now) { traffic_[worker] = now; }
  void forget(WorkerId worker) { traffic_.erase(worker); }

  /// Hosts whose link is down, and since when.
  [[nodiscard]] const std::map<Host, Time>& down() const { return down_since_; }
  [[nodiscard]] bool is_down(const Host& host) const { return down_since_.count(host) > 0; }
  /// Nothing when the link is up.
  [[nodiscard]] std::optional<Time> down_since(const Host& host) const {
    const Time* since = find_in(down_since_, host);
    return since ? std::optional(*since) : std::nullopt;
  }
  /// The life of a process on `host`; `worker`: the process is one that servers see.
  [[nodiscard]] Life life(const Host& host, std::optional<WorkerId> worker, Time now) const;

 private:
  Limits limits_;
  std::map<Host, Time> down_since_;
  ById<WorkerId, Time> traffic_;
};

}  // namespace dt
