#include "core/job/host_table.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/base/quantity.h"
#include "core/protocol/exit_code.h"

namespace dt {

void HostTable::begin(const std::set<Host>& needed) {
  for (const Host& host : needed) {
    HostState& h = change(host);
    h.link = h.has_agent() ? Link::kDown : Link::kAttaching;
    // Its silence counts only after the time it takes to reach it.
    if (h.link == Link::kDown) liveness_.link_down(host, job_.now() + kReattachGrace);
    job_.add(Attach{as_given(host), !h.has_agent()});
  }
}

void HostTable::reach_agents() {
  for (const auto& [host, h] : hosts_)
    if (h.has_agent()) job_.add(Attach{as_given(host), false});
}

// ---------------------------------------------------------------- events

bool HostTable::is_replaced(const AgentAttached& e) const {
  const HostState& h = at(e.host);
  return h.has_agent() && (h.incarnation != e.incarnation || h.boot_id != e.boot_id);
}

void HostTable::attached(const AgentAttached& e) {
  HostState& h = change(e.host);
  const bool is_known = h.incarnation == e.incarnation && h.boot_id == e.boot_id;
  if (is_replaced(e)) h.preparing = false;
  found_an_agent_ = found_an_agent_ || is_known;
  h.link = Link::kUp;
  if (h.check == "reach") {
    h.check.clear();
    h.why.clear();
  }
  start_failures_.made_good(e.host, "reach", job_.now());
  liveness_.link_up(e.host);
  if (!is_known) job_.record(AgentKnown{e.host, e.boot_id, e.incarnation});
  if (h.place != e.place) job_.record(AgentPlaced{e.host, e.place});
}

void HostTable::moved(const AgentMoved& e) {
  const HostState& h = at(e.host);
  if (h.has_agent() && h.place != e.place) job_.record(AgentPlaced{e.host, e.place});
}

void HostTable::detached(const AgentDetached& e) {
  HostState& h = change(e.host);
  if (h.link == Link::kUp)
    job_.note(Note::kFailure, "link_down",
              fmt::format("the link to {} broke ({}): attaching again", e.host, e.why), e.host);
  if (h.link == Link::kNone) return;
  h.link = Link::kDown;
  liveness_.link_down(e.host, job_.now());
}

void HostTable::forget_agent(const Host& host) {
  if (at(host).has_agent()) job_.record(AgentKnown{host, {}, 0});
}

void HostTable::silent(const AgentSilent& e) {
  if (at(e.host).link != Link::kUp || liveness_.is_down(e.host)) return;
  liveness_.link_down(e.host, e.since);
  job_.note(
      Note::kFailure, "host_suspect",
      fmt::format("{} says nothing for {:.1f} s: suspect, and lost after {:.1f} s (--dead-after)",
                  e.host, seconds(job_.now() - e.since), seconds(job_.options.liveness.dead_after)),
      e.host);
}

void HostTable::heard(const AgentHeard& e) {
  const auto since = liveness_.down_since(e.host);
  if (at(e.host).link != Link::kUp || !since) return;
  liveness_.link_up(e.host);
  job_.agenda.add(e.host);
  job_.note(Note::kInfo, "host_heard",
            fmt::format("{} is heard again, after {:.1f} s", e.host, seconds(job_.now() - *since)),
            e.host);
}

bool HostTable::attach_failed(const Host& host) {
  HostState& h = change(host);
  if (h.link != Link::kAttaching) return false;
  h.link = Link::kNone;
  return true;
}

bool HostTable::prepare_ended(const Host& host) {
  return std::exchange(change(host).preparing, false);
}

void HostTable::prepared(const Host& host) {
  start_failures_.made_good(host, "prepare", job_.now());
  if (!at(host).prepared) job_.record(HostPrepared{host});
  change(host).prepared_by = at(host).incarnation;
}

// ---------------------------------------------------------------- what happens to its processes

void HostTable::failed(const Host& host, std::string check, const std::string& why, bool is_start,
                       bool is_final) {
  constexpr std::uint32_t kPrepareTries = 3;
  constexpr std::uint32_t kTold = 3;  ///< Of further failures one a minute is told.
  HostState& h = change(host);
  ++h.attempts;
  h.why = why;
  h.check = std::move(check);
  Duration delay = !is_final  ? delay_before_retry(host, h.attempts)
                   : is_start ? Duration(std::chrono::seconds(2))
                              : final_retry_delay(h.attempts);
  std::string limit;
  if (is_start) {
    start_failures_.failed(host, h.check, why, job_.now(), is_final);
    if (start_failures_.is_hopeless(host)) {
      if (start_has_failed()) return end_failed_start();
      // It is not tried again: the others' words are awaited.
      return cool_for(host, 2 * StartFailures::kLastWords);
    }
    if (start_failures_.prepares(host) >= kPrepareTries ||
        start_failures_.is_too_late(job_.now() + delay))
      return end_failed_start();
    limit = is_final ? " for the last time"
                     : fmt::format(", for {:.0f} s more (--start-timeout)",
                                   seconds(start_failures_.left(host, job_.now())));
    if (h.attempts == 1) limit += "; dtlaunch --check quick looks at all hosts";
  }
  cool_for(host, delay);
  const bool is_told =
      h.attempts <= kTold || !h.told_at || job_.now() - *h.told_at >= std::chrono::minutes(1);
  if (!is_told) return;
  h.told_at = job_.now();
  job_.note(Note::kFailure, "host_failed",
            fmt::format("{}; try {} in {:.1f} s{}", at_host(host, why), h.attempts + 1,
                        seconds(delay), limit),
            host);
}

void HostTable::member_died(const Host& host, Time then, std::uint32_t budget) {
  HostState& h = change(host);
  h.restarts.add(then, job_.options.restart_refill);
  h.given_up = h.restarts.count() > budget;
  if (!h.given_up) ++worker_restarts_;
}

void HostTable::restart_later(const Host& host, WorkerId worker, const std::string& death,
                              std::uint32_t budget, Duration lived) {
  HostState& h = change(host);
  if (lived >= std::min(kLives, job_.options.restart_refill))
    h.futile_restarts = 0;
  else if (!is_cooling(host))  // several at once count as one
    ++h.futile_restarts;
  const Duration delay = delay_before_retry(host, h.futile_restarts);
  if (!h.given_up) cool_for(host, delay);
  note_death(host, worker, death, budget, delay);
}

void HostTable::note_death(const Host& host, WorkerId worker, const std::string& death,
                           std::uint32_t budget, std::optional<Duration> delay) {
  HostState& h = change(host);
  h.why = fmt::format("worker {} {}", worker, death);
  h.last_death = h.why;
  h.check = "run";
  if (h.given_up)
    return job_.note(Note::kFailure, "host_given_up",
                     fmt::format("{} is given up after {}: worker {} {}", host,
                                 count_text(budget, "restart"), worker, death),
                     host, worker);
  const std::string when = delay ? fmt::format("in {:.1f} s", seconds(*delay)) : "with the group";
  job_.note(Note::kFailure, "worker_died",
            fmt::format("worker {} on {} {}; started again {} ({} of {})", worker, host, death,
                        when, h.restarts.count(), budget),
            host, worker);
}

void HostTable::group_began(const Host& host) {
  HostState& h = change(host);
  h.attempts = 0;
  if (h.check != "run") h.why.clear();  // that its last worker died remains worth knowing
}

void HostTable::member_joined(const Host& host) {
  HostState* h = find_in(hosts_, host);
  if (!h) return;
  h->attempts = 0;
  h->why.clear();
}

void HostTable::member_left(const Host& host, std::string why) {
  HostState& h = change(host);
  h.why = std::move(why);
  h.check = "run";
}

void HostTable::wanted_less(const Host& host) {
  HostState& h = change(host);
  h.attempts = 0;
  h.restarts = {};
  h.futile_restarts = 0;
  h.given_up = false;
  h.last_death.clear();
  h.cooling_until.reset();
}

void HostTable::cool(const Host& host, std::uint32_t attempt) {
  cool_for(host, delay_before_retry(host, attempt));
}

// ---------------------------------------------------------------- what it does

void HostTable::reach(const Host& host) {
  if (job_.is_doubtful || at(host).link != Link::kNone) return;
  change(host).link = Link::kAttaching;
  job_.add(Attach{as_given(host), true});
}

void HostTable::reach_first() {
  const Host& host = job_.options.workers.front();
  if (usable(host)) reach(host);
}

void HostTable::prepare(const Host& host) {
  if (at(host).preparing) return;
  change(host).preparing = true;
  job_.add(Prepare{as_given(host)});
}

void HostTable::lost(const Host& host) {
  change(host).link = Link::kNone;
  liveness_.forget(host);
}

void HostTable::let_go(const Host& host) {
  lost(host);
  if (at(host).has_agent()) job_.record(AgentKnown{host, at(host).boot_id, 0});
  job_.add(ReleaseHost{host});
}

bool HostTable::start_has_failed() const {
  if (start_failures_.is_too_late(job_.now())) return true;
  const auto since = start_failures_.hopeless_since();
  if (!since) return false;
  const auto has_spoken = [this](const Host& host) {
    return is_up(host) || start_failures_.has_spoken(host);
  };
  return job_.now() - *since >= StartFailures::kLastWords ||
         (std::ranges::all_of(job_.options.workers, has_spoken) &&
          std::ranges::all_of(job_.options.servers, has_spoken));
}

void HostTable::end_failed_start() { job_.end(kExitUnreachable, start_failures_.text()); }

void HostTable::apply(const JobBegan& r) {
  for (const auto* hosts : {&r.workers, &r.servers}) given_.insert(hosts->begin(), hosts->end());
}

void HostTable::apply(const FileTaken& r) {
  for (const HostSlots& line : r.hosts) {
    if (line_of(line.host) == line_of(as_given(line.host)) && given_.contains(line.host)) continue;
    given_.erase(line.host);
    given_.insert(line.host);
    // What failed in one way need not fail in the other.
    if (hosts_.contains(line.host)) wanted_less(line.host);
  }
}

void HostTable::apply(const AgentKnown& r) {
  HostState& h = change(r.host);
  h.boot_id = r.boot_id;
  h.incarnation = r.incarnation;
  h.had_agent = h.had_agent || h.has_agent();
  if (!h.has_agent()) h.preparing = false;
}

// ---------------------------------------------------------------- questions

const Host& HostTable::as_given(const Host& host) const {
  const auto known = given_.find(host);
  return known == given_.end() ? host : *known;
}

bool HostTable::is_cooling(const Host& host) const {
  const HostState& h = at(host);
  return h.cooling_until && job_.now() < *h.cooling_until;
}

bool HostTable::usable(const Host& host) const {
  return !job_.is_doubtful && !is_given_up(host) && !is_cooling(host);
}

std::set<Host> HostTable::unreachable() const {
  std::set<Host> out;
  for (const auto& [host, h] : hosts_)
    if (!is_heard(host, h)) out.insert(host);
  return out;
}

bool HostTable::cut_off() const {
  bool any = false;
  for (const auto& [host, h] : hosts_) {
    if (is_heard(host, h)) return false;
    any = any || h.is_attached();
  }
  return any;
}

bool HostTable::knows_ports() const {
  const auto& base = job_.options.workers;
  return base.empty() || at(base.front()).has_agent();
}

HostState& HostTable::change(const Host& host) {
  job_.agenda.add(host);
  return hosts_[host];
}

void HostTable::cool_for(const Host& host, Duration delay) {
  const Time until = job_.now() + delay;
  change(host).cooling_until = until;
  job_.agenda.add_at(host, until);
}

Duration HostTable::delay_before_retry(const Host& host, std::uint32_t attempt) const {
  return retry_delay(attempt, std::hash<std::string>{}(to_string(host)) ^ job_.options.seed);
}

}  // namespace dt
