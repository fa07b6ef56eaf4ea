#include "core/job/membership.h"

#include <algorithm>

namespace dt {
namespace {

std::uint32_t slots_of(const std::vector<HostSlots>& hosts, const Host& host) {
  const auto it = std::ranges::find(hosts, host, &HostSlots::host);
  return it == hosts.end() ? 0 : it->slots;
}

/// How many of `count` are more than `limit`.
std::uint32_t excess(std::uint32_t count, std::uint32_t limit) {
  return count > limit ? count - limit : 0;
}

/// A member, or on the way to become one.
bool is_present(const Worker& w) { return w.state == WorkerState::kMember || on_the_way(w.state); }

}  // namespace

void Membership::begin(const std::vector<Host>& base, Time now) {
  for (const Host& host : base) {
    ++base_[host];
    ++wanted_[host];
    Worker& w = add_worker(next_id_, host, Edit{}, now);
    w.base = true;
    w.was_member = true;
  }
  for (const auto& [host, count] : base_) file_.push_back({host, count});
}

std::map<Host, std::uint32_t> Membership::within_limit(const std::vector<HostSlots>& hosts) {
  std::map<Host, std::uint32_t> next = base_;
  std::uint32_t total = 0;
  for (const auto& [host, count] : base_) total += count;
  beyond_limit_.clear();
  for (const auto& line : hosts) {
    auto& count = next[line.host];
    std::uint32_t more = excess(line.slots, count);
    if (limits_.most > 0) {
      const std::uint32_t room = excess(limits_.most, total);
      if (more > room) beyond_limit_.push_back({line.host, more - room});
      more = std::min(more, room);
    }
    count += more;
    total += more;
  }
  return next;
}

void Membership::take_file(Edit edit, const std::vector<HostSlots>& hosts, Time now) {
  std::map<Host, std::uint32_t> next = within_limit(hosts);
  std::map<Host, std::uint32_t> before;
  for (const auto& [host, count] : wanted_) before[host] = wanted(host);
  adjust_empty_places(hosts, next);
  wanted_ = std::move(next);
  bool adds = false;
  bool removes = false;
  for (const auto& [host, count] : wanted_) {
    if (wanted(host) > before[host]) {
      added_by_[host] = edit;
      removed_by_.erase(host);
      adds = true;
    }
  }
  for (const auto& [host, count] : before) {
    if (wanted(host) < count) {
      removed_by_[host] = edit;
      if (wanted(host) == base_count(host)) added_by_.erase(host);
      removes = true;
    }
  }
  if (adds && removes) swaps_[edit] = now;
  file_ = hosts;
  last_edit_ = edit;
}

void Membership::adjust_empty_places(const std::vector<HostSlots>& hosts,
                                     const std::map<Host, std::uint32_t>& next) {
  for (auto& [host, empty] : empty_) {
    if (slots_of(hosts, host) > slots_of(file_, host)) empty = 0;
    empty -= std::min(empty, excess(wanted_[host], value_in(next, host)));
  }
  std::erase_if(empty_, [](const auto& e) { return e.second == 0; });
}

void Membership::fill_places(const Host& host, std::uint32_t count) {
  const std::uint32_t left = excess(empty_places(host), count);
  if (left == 0)
    empty_.erase(host);
  else
    empty_[host] = left;
}

void Membership::forget_gone(const std::vector<WorkerId>& view, Time now) {
  std::erase_if(swaps_, [&](const auto& swap) { return now >= swap.second + kSwapWait; });
  std::erase_if(workers_, [&](const auto& w) {
    return w.second.state == WorkerState::kGone && swaps_.count(w.second.edit) == 0 &&
           std::ranges::count(view, w.first) == 0;
  });
}

void Membership::swaps_done(const std::vector<WorkerId>& members,
                            const std::vector<WorkerId>& leavers) {
  std::erase_if(swaps_, [&](const auto& swap) {
    const Edit edit = swap.first;
    return std::ranges::any_of(members,
                               [&](WorkerId id) { return workers_.at(id).edit == edit; }) ||
           std::ranges::any_of(leavers, [&](WorkerId id) {
             return value_in(removed_by_, workers_.at(id).host) == edit;
           });
  });
}

Worker& Membership::add_worker(WorkerId id, const Host& host, Edit edit, Time now) {
  Worker& w = workers_[id];
  w.id = id;
  w.host = host;
  w.edit = edit;
  w.since = now;
  next_id_ = std::max(next_id_, id.next());
  return w;
}

bool Membership::advance(WorkerId id, WorkerEvent event, Time now) {
  Worker* w = find(id);
  if (!w || !w->state.advance(event)) return false;
  w->since = now;
  if (w->state == WorkerState::kMember) w->was_member = true;
  return true;
}

std::uint32_t Membership::wanted(const Host& host) const {
  return excess(value_in(wanted_, host), empty_places(host));
}

std::uint32_t Membership::present(const Host& host) const {
  return static_cast<std::uint32_t>(std::ranges::count_if(workers_, [&host](const auto& entry) {
    return entry.second.host == host && is_present(entry.second);
  }));
}

std::vector<Host> Membership::hosts() const {
  std::set<Host> all;
  for (const auto& [host, count] : wanted_)
    if (wanted(host) > 0) all.insert(host);
  for (const auto& [id, w] : workers_)
    if (w.state != WorkerState::kGone) all.insert(w.host);
  return {all.begin(), all.end()};
}

std::vector<Host> Membership::refused_removals(const std::vector<HostSlots>& hosts) const {
  std::vector<Host> refused;
  for (const auto& [host, count] : base_)
    if (slots_of(hosts, host) < count) refused.push_back(host);
  return refused;
}

std::vector<WorkerId> Membership::surplus(const Host& host,
                                          const std::vector<WorkerId>& members) const {
  std::vector<const Worker*> all;
  for (const auto& [id, w] : workers_)
    if (w.host == host && is_present(w)) all.push_back(&w);
  const std::uint32_t keep = wanted(host);
  if (all.size() <= keep) return {};
  // Newcomers before members, those furthest from ready first, then by the highest rank. Base
  // workers are members from the beginning, even while they still start.
  const auto rank = [&members](const Worker* w) {
    return std::ranges::find(members, w->id) - members.begin();
  };
  std::ranges::sort(all, [&rank](const Worker* a, const Worker* b) {
    if (a->base != b->base) return b->base;
    if (a->state != b->state) return a->state < b->state;
    return rank(a) != rank(b) ? rank(a) > rank(b) : a->id > b->id;
  });
  std::vector<WorkerId> out;
  for (std::size_t i = 0; i + keep < all.size(); ++i) out.push_back(all[i]->id);
  return out;
}

std::vector<WorkerId> Membership::unwanted_newcomers() const {
  std::vector<WorkerId> out;
  for (const Host& host : hosts())
    for (const WorkerId id : surplus(host, {}))
      if (on_the_way(workers_.at(id).state)) out.push_back(id);
  return out;
}

bool Membership::held(Edit edit, Time now, const std::set<Host>& unreachable) const {
  const auto swap = swaps_.find(edit);
  if (swap == swaps_.end() || now >= swap->second + kSwapWait) return false;
  return std::ranges::any_of(added_by_, [&](const auto& added) {
    if (added.second != edit) return false;
    std::uint32_t ready = 0;
    for (const auto& [id, w] : workers_) {
      if (w.host != added.first) continue;
      const bool has_failed = w.has_failed || w.state == WorkerState::kGone;
      if (w.edit == edit && has_failed && !w.was_member) return false;
      ready += w.state == WorkerState::kMember ||
               (w.state == WorkerState::kWarm && !unreachable.count(w.host));
    }
    return ready < wanted(added.first);
  });
}

Plan Membership::plan(const std::vector<WorkerId>& members, Time now,
                      const std::set<Host>& unreachable) const {
  Plan out;
  std::set<WorkerId> go;
  std::set<WorkerId> unwanted;
  bool holds = false;
  for (const Host& host : hosts()) {
    const auto removal = removed_by_.find(host);
    const bool hold = removal != removed_by_.end() && held(removal->second, now, unreachable);
    for (const WorkerId id : surplus(host, members)) {
      unwanted.insert(id);
      if (workers_.at(id).state != WorkerState::kMember) continue;
      holds = holds || hold;
      if (!hold) go.insert(id);
    }
  }
  for (const auto& [id, w] : workers_) {
    if (w.state != WorkerState::kWarm || unreachable.count(w.host) || unwanted.count(id)) continue;
    if (std::ranges::count(members, id) > 0) continue;
    if (!members.empty() && held(w.edit, now, unreachable))
      holds = true;
    else
      out.joins.push_back(id);
  }
  for (const WorkerId id : members)
    if (go.count(id)) out.leaves.push_back(id);
  if (holds) out.reason = "an edit that swaps hosts waits for its newcomers";
  keep_least(out, members.size());
  return out;
}

void Membership::keep_least(Plan& plan, std::size_t members) const {
  const std::size_t least = std::max(limits_.least, 1U);
  bool keeps = false;
  while (!plan.leaves.empty() && members + plan.joins.size() - plan.leaves.size() < least) {
    plan.leaves.erase(plan.leaves.begin());
    keeps = true;
  }
  if (!keeps) return;
  plan.reason = least == 1 ? "the last member stays until another worker is ready"
                           : fmt::format(
                                 "of those that are to leave as many stay as are needed to "
                                 "be {} (--min-workers)",
                                 least);
}

}  // namespace dt
