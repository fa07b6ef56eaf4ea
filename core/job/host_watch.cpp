#include "core/job/host_watch.h"

#include <algorithm>

namespace dt {

std::vector<HostWatch::Lost> HostWatch::tick() {
  std::vector<Lost> lost;
  const bool alone = hosts_.cut_off();
  const bool blind = servers_.are_unseen();
  for (const auto& [host, down_since] : hosts_.liveness().down()) {
    const HostState& h = hosts_.at(host);
    if (!h.is_attached()) continue;
    const Duration down = job_.now() - down_since;
    const bool serves = servers_.serves(host);
    // With no link at all, or no report from any server, it is this supervisor that is cut off:
    // nothing is decided until the agents have certainly stopped everything by themselves.
    const bool spared = (alone || (blind && !serves)) && down < job_.options.orphan_timeout;
    if (spared) hosts_.spare(host);
    if (spared || (serves && servers_keep(host, down))) continue;
    // Once the first host is reached again, the others get time to follow.
    if (h.spared_at && *h.spared_at >= down_since && job_.now() - *h.spared_at < kReattachGrace)
      continue;
    if (auto why = why_lost(host, down)) lost.push_back({host, std::move(*why), down_since});
  }
  return lost;
}

bool HostWatch::servers_keep(const Host& host, Duration down) const {
  const auto patience = servers_.patience_with(host, workers_.hears_a_contributor());
  if (down < patience.value_or(servers_.watch().patience())) return true;
  const bool waits_for_it =
      down >= job_.options.liveness.dead_after && boundary_waits_for_unsupervised(host);
  return !patience && !waits_for_it;
}

std::optional<std::string> HostWatch::why_lost(const Host& host, Duration down) const {
  if (all_dead(host)) return fmt::format("no sign of life for {:.1f} s", seconds(down));
  if (down >= job_.options.liveness.dead_after && boundary_waits_for_unsupervised(host))
    return "unsupervised, and out at this boundary";
  return std::nullopt;
}

bool HostWatch::all_dead(const Host& host) const {
  const Liveness& liveness = hosts_.liveness();
  return liveness.life(host, std::nullopt, job_.now()) == Life::kDead &&
         std::ranges::all_of(workers_.membership().workers_on(host), [&](WorkerId id) {
           if (!may_run(workers_.find(id)->state)) return true;
           // A worker that is not released does nothing for the epoch, whatever data flows.
           const auto seen = job_.boundary.awaits_release(id) ? std::nullopt : std::optional(id);
           return liveness.life(host, seen, job_.now()) == Life::kDead;
         });
}

bool HostWatch::boundary_waits_for_unsupervised(const Host& host) const {
  const std::vector<WorkerId> missing = job_.boundary.missing();
  const auto host_of = [this](WorkerId id) -> const Host& { return workers_.find(id)->host; };
  return !job_.boundary.arrivals().empty() && std::ranges::count(missing, host, host_of) > 0 &&
         std::ranges::all_of(missing, [&](WorkerId id) {
           return hosts_.liveness().life(host_of(id), id, job_.now()) == Life::kUnsupervised;
         });
}

}  // namespace dt
