#include "core/job/server_watch.h"

#include <algorithm>
#include <utility>

namespace dt {
namespace {

/// Reports come twice a second. After this a server counts as silent.
constexpr Duration kFresh = std::chrono::milliseconds(1500);
/// Workers report once a second from which servers they get data.
constexpr Duration kDataFresh = std::chrono::seconds(2);

std::string stuck_text(const StuckLoop& loop) {
  return fmt::format("its loop {} has not turned for {:.1f} s{}{}", loop.loop,
                     loop.milliseconds / 1000.0, loop.state.empty() ? "" : ": ", loop.state);
}

}  // namespace

void ServerWatch::reported(ServerId server, std::vector<StuckLoop> stuck, Time now) {
  Server& s = servers_[server];
  s.reported = now;
  s.silent = Duration{};
  if (stuck.empty() && s.warned) s.warned = false;
  if (stuck.empty()) s.process.clear();
  s.stuck = std::move(stuck);
}

std::vector<ServerWatch::Finding> ServerWatch::tick(const std::vector<Sight>& servers, Time now) {
  const Duration passed = time_.advance(now);
  all_well_ = true;
  silent_since_.reset();
  std::vector<Finding> findings;
  for (const Sight& sight : servers) {
    Server& s = servers_[sight.id];
    const bool is_fresh = s.reported && now - *s.reported <= kFresh;
    if (!sight.is_heard || !is_fresh || !s.stuck.empty() || !sight.has_acked) all_well_ = false;
    if (s.reported && (!is_fresh || !s.stuck.empty()))
      silent_since_ = std::min(silent_since_.value_or(*s.reported), *s.reported);
    if (sight.is_heard && sight.listens) s.silent += passed;
    if (sight.is_heard && sight.is_started && !sight.listens) s.starting += passed;
    if (sight.listens) s.starting = Duration{};
    if (sight.has_acked) s.unacked = Duration{};
    if (sight.listens && !sight.has_acked && (sight.is_heard || gives_data(sight.id, now)))
      s.unacked += passed;
    if (auto found = look_at(sight, s, now)) findings.push_back(std::move(*found));
  }
  std::ranges::stable_partition(findings, &Finding::is_lost);
  return findings;
}

std::optional<ServerWatch::Finding> ServerWatch::look_at(const Sight& sight, Server& s, Time now) {
  const Duration limit = patience();
  const auto lost = [&](std::string why) { return Finding{sight.id, true, std::move(why)}; };
  if (s.unacked >= limit)
    return lost(fmt::format("has not acknowledged a commit for {:.1f} s", seconds(s.unacked)));
  if (s.starting >= limit)
    return lost(fmt::format("does not listen {:.1f} s after its start", seconds(s.starting)));
  if (!sight.is_heard) return std::nullopt;
  const auto oldest = std::ranges::max_element(s.stuck, {}, &StuckLoop::milliseconds);
  if (oldest != s.stuck.end() && std::chrono::milliseconds(oldest->milliseconds) >= limit)
    return lost(stuck_text(*oldest));
  const bool has_data = gives_data(sight.id, now);
  const std::string process = s.process.empty() ? "" : fmt::format(" ({})", s.process);
  if (s.silent >= dead_after_ && !has_data)
    return lost(fmt::format("says nothing for {:.1f} s (--server-dead-after){}", seconds(s.silent),
                            process));
  // Even while workers get data: its process's state is to be known when it is lost.
  const bool is_silent = s.silent >= std::max(dead_after_ / 2, kFresh);
  if (s.warned || (!is_silent && oldest == s.stuck.end())) return std::nullopt;
  s.warned = true;
  if (is_silent)
    return Finding{sight.id, false,
                   fmt::format("says nothing for {:.1f} s: it is lost after {:.1f} s "
                               "(--server-dead-after), unless workers get data from it",
                               seconds(s.silent), seconds(dead_after_))};
  return Finding{
      sight.id, false,
      fmt::format("hangs: {}; it is lost after {:.0f} s", stuck_text(*oldest), seconds(limit))};
}

std::optional<Duration> ServerWatch::silence(ServerId server) const {
  const Server* s = find_in(servers_, server);
  if (!s || !s->reported || !time_.last()) return std::nullopt;
  const Duration age = *time_.last() - *s->reported;
  return age > kFresh ? std::optional(age) : std::nullopt;
}

bool ServerWatch::gives_data(ServerId server, Time now) const {
  const Server* s = find_in(servers_, server);
  return s && s->data && now - *s->data < kDataFresh;
}

}  // namespace dt
