#include "core/job/membership.h"

#include <algorithm>

namespace dt {

void Membership::begin(const std::vector<Host>& base, Time now) {
  for (const Host& host : base) {
    ++base_[host];
    ++wanted_[host];
    Worker w;
    w.id = next_id_;
    w.host = host;
    w.base = true;
    w.was_member = true;
    w.since = now;
    workers_.emplace(next_id_, std::move(w));
    next_id_ = next_id_.next();
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
    std::uint32_t more = line.slots > count ? line.slots - count : 0;
    if (limits_.most > 0) {
      const std::uint32_t room = limits_.most > total ? limits_.most - total : 0;
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
  const auto lines = [](const std::vector<HostSlots>& all, const Host& host) {
    const auto it = std::find_if(all.begin(), all.end(),
                                 [&host](const HostSlots& s) { return s.host == host; });
    return it == all.end() ? 0U : it->slots;
  };
  for (auto& [host, empty] : empty_) {
    if (lines(hosts, host) > lines(file_, host)) empty = 0;
    const auto then = next.find(host);
    const std::uint32_t after = then == next.end() ? 0 : then->second;
    const std::uint32_t fewer = wanted_[host] > after ? wanted_[host] - after : 0;
    empty -= std::min(empty, fewer);
  }
  std::erase_if(empty_, [](const auto& e) { return e.second == 0; });
}

void Membership::fill_places(const Host& host, std::uint32_t count) {
  const auto it = empty_.find(host);
  if (it == empty_.end()) return;
  it->second -= std::min(it->second, count);
  if (it->second == 0) empty_.erase(it);
}

std::uint32_t Membership::empty_places(const Host& host) const {
  const auto it = empty_.find(host);
  return it == empty_.end() ? 0 : it->second;
}

void Membership::forget_gone(const std::vector<WorkerId>& view, Time now) {
  std::erase_if(swaps_, [&](const auto& swap) { return now >= swap.second + kSwapWait; });
  std::erase_if(workers_, [&](const auto& w) {
    return w.second.state == WorkerState::kGone && swaps_.count(w.second.edit) == 0 &&
           std::find(view.begin(), view.end(), w.first) == view.end();
  });
}

void Membership::swaps_done(const std::vector<WorkerId>& members,
                            const std::vector<WorkerId>& leavers) {
  std::erase_if(swaps_, [&](const auto& swap) {
    const Edit edit = swap.first;
    return std::any_of(members.begin(), members.end(),
                       [&](WorkerId id) { return workers_.at(id).edit == edit; }) ||
           std::any_of(leavers.begin(), leavers.end(), [&](WorkerId id) {
             const auto removal = removed_by_.find(workers_.at(id).host);
             return removal != removed_by_.end() && removal->second == edit;
           });
  });
}

void Membership::add_worker(WorkerId id, const Host& host, Edit edit, Time now) {
  Worker w;
  w.id = id;
  w.host = host;
  w.edit = edit;
  w.since = now;
  workers_.emplace(id, std::move(w));
  next_id_ = std::max(next_id_, id.next());
}

bool Membership::advance(WorkerId id, WorkerEvent event, Time now) {
  Worker* w = find(id);
  if (!w) return false;
  if (!w->state.advance(event)) return false;
  w->since = now;
  if (w->state == WorkerState::kMember) w->was_member = true;
  return true;
}

Worker* Membership::find(WorkerId id) {
  const auto it = workers_.find(id);
  return it == workers_.end() ? nullptr : &it->second;
}

const Worker* Membership::find(WorkerId id) const {
  const auto it = workers_.find(id);
  return it == workers_.end() ? nullptr : &it->second;
}

std::uint32_t Membership::wanted(const Host& host) const {
  const auto it = wanted_.find(host);
  if (it == wanted_.end()) return 0;
  const std::uint32_t empty = empty_places(host);
  return it->second > empty ? it->second - empty : 0;
}

std::uint32_t Membership::base_count(const Host& host) const {
  const auto it = base_.find(host);
  return it == base_.end() ? 0 : it->second;
}

std::uint32_t Membership::present(const Host& host) const {
  std::uint32_t n = 0;
  for (const auto& [id, w] : workers_)
    if (w.host == host && (w.state == WorkerState::kMember || on_the_way(w.state))) ++n;
  return n;
}

std::vector<Host> Membership::hosts() const {
  std::set<Host> all;
  for (const auto& [host, count] : wanted_)
    if (wanted(host) > 0) all.insert(host);
  for (const auto& [id, w] : workers_)
    if (w.state != WorkerState::kGone) all.insert(w.host);
  return {all.begin(), all.end()};
}

Edit Membership::added_by(const Host& host) const {
  const auto it = added_by_.find(host);
  return it == added_by_.end() ? Edit{} : it->second;
}

std::vector<Host> Membership::refused_removals(const std::vector<HostSlots>& hosts) const {
  std::vector<Host> refused;
  for (const auto& [host, count] : base_) {
    const auto it = std::find_if(hosts.begin(), hosts.end(),
                                 [&h = host](const HostSlots& s) { return s.host == h; });
    if (it == hosts.end() || it->slots < count) refused.push_back(host);
  }
  return refused;
}

std::vector<WorkerId> Membership::surplus(const Host& host,
                                          const std::vector<WorkerId>& members) const {
  std::vector<const Worker*> all;
  for (const auto& [id, w] : workers_)
    if (w.host == host && (w.state == WorkerState::kMember || on_the_way(w.state)))
      all.push_back(&w);
  const std::uint32_t keep = wanted(host);
  if (all.size() <= keep) return {};
  // Newcomers before members, those furthest from ready first, then by the highest rank. Base
  // workers are members from the beginning, even while they still start.
  const auto rank = [&members](const Worker* w) {
    return std::find(members.begin(), members.end(), w->id) - members.begin();
  };
  std::sort(all.begin(), all.end(), [&rank](const Worker* a, const Worker* b) {
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
  return std::any_of(added_by_.begin(), added_by_.end(), [&](const auto& added) {
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
      if (hold) {
        holds = true;
      } else {
        go.insert(id);
      }
    }
  }
  for (const auto& [id, w] : workers_) {
    if (w.state != WorkerState::kWarm || unreachable.count(w.host) || unwanted.count(id)) continue;
    if (std::find(members.begin(), members.end(), id) != members.end()) continue;
    if (!members.empty() && held(w.edit, now, unreachable)) {
      holds = true;
    } else {
      out.joins.push_back(id);
    }
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
