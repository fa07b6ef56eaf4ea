#include "core/job/membership.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace dt {
namespace {

std::map<Host, std::uint32_t> slots_by_host(const std::vector<HostSlots>& hosts) {
  std::map<Host, std::uint32_t> out;
  for (const HostSlots& line : hosts) out.emplace(line.host, line.slots);
  return out;
}

/// How many of `count` are more than `limit`.
std::uint32_t excess(std::uint32_t count, std::uint32_t limit) {
  return count > limit ? count - limit : 0;
}

/// A member, or on the way to become one.
bool is_present(const Worker& w) { return w.state == WorkerState::kMember || on_the_way(w.state); }

}  // namespace

Membership::Row& Membership::row(const Host& host) {
  if (agenda_) agenda_->add(host);
  return rows_[host];
}

void Membership::count_in(const Worker& worker) {
  ++by_state_[static_cast<std::size_t>(WorkerState(worker.state))];
  Row& r = row(worker.host);
  r.present += is_present(worker);
  if (worker.state != WorkerState::kGone) r.slots.insert(worker.slot);
}

void Membership::count_out(const Worker& worker) {
  --by_state_[static_cast<std::size_t>(WorkerState(worker.state))];
  Row& r = row(worker.host);
  r.present -= is_present(worker);
  if (worker.state != WorkerState::kGone) r.slots.erase(worker.slot);
}

void Membership::begin(const std::vector<Host>& base, Time now) {
  for (const Host& host : base) {
    Row& r = row(host);
    ++r.base;
    ++r.asked;
    Worker& w = add_worker(next_id_, host, Edit{}, now);
    w.base = true;
    w.was_member = true;
  }
  for (const auto& [host, r] : rows_) file_.push_back({host, r.base});
}

std::map<Host, std::uint32_t> Membership::within_limit(const std::vector<HostSlots>& hosts) {
  std::map<Host, std::uint32_t> next;
  std::uint32_t total = 0;
  for (const auto& [host, r] : rows_) {
    if (r.base > 0) next[host] = r.base;
    total += r.base;
  }
  for (const auto& [from, to] : heirs_) next[to] += at(from).base;
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
  const std::map<Host, std::uint32_t> next = within_limit(hosts);
  for (const auto& [host, count] : next) rows_.try_emplace(host);
  std::map<Host, std::uint32_t> before;
  for (const auto& [host, r] : rows_) before[host] = r.wanted();
  adjust_empty_places(slots_by_host(hosts), next);
  bool adds = false;
  bool removes = false;
  for (auto& [host, r] : rows_) {
    r.asked = value_in(next, host);
    const std::uint32_t was = before.at(host);
    if (r.wanted() == was) continue;
    if (agenda_) agenda_->add(host);
    if (r.wanted() > was) {
      r.added_by = edit;
      r.removed_by = {};
      adds = true;
    } else {
      r.removed_by = edit;
      if (r.wanted() == r.base) r.added_by = {};
      removes = true;
    }
  }
  if (adds && removes) swaps_[edit] = now;
  file_ = hosts;
  last_edit_ = edit;
}

void Membership::adjust_empty_places(const std::map<Host, std::uint32_t>& slots,
                                     const std::map<Host, std::uint32_t>& next) {
  const std::map<Host, std::uint32_t> before = slots_by_host(file_);
  for (auto& [host, r] : rows_) {
    if (r.empty == 0) continue;
    if (value_in(slots, host) > value_in(before, host)) r.empty = 0;
    r.empty -= std::min(r.empty, excess(r.asked, value_in(next, host)));
    if (r.empty == 0) r.departed = false;
  }
}

void Membership::fill_places(const Host& host, std::uint32_t count) {
  Row& r = row(host);
  r.empty = excess(r.empty, count);
  if (r.empty == 0) r.departed = false;
}

std::string Membership::replace_objection(const Host& from, const Host& to) const {
  if (base_count(from) == 0)
    return fmt::format("{} is no host of the initial launch: dtctl add {}, dtctl remove {}", from,
                       to, from);
  if (base_count(to) > 0) return fmt::format("{} is a host of the initial launch itself", to);
  for (const auto& [other, heir] : heirs_)
    if (heir == to && other != from) return fmt::format("{} is to replace {} already", to, other);
  return "";
}

void Membership::replace_base(const Host& from, const Host& to, bool at_once, Time now) {
  row(from);
  row(to);
  const auto heir = heirs_.insert_or_assign(from, to).first;
  if (at_once) take_over_base(heir);
  take_file(last_edit_, std::vector(file_), now);
  row(to).added_by = {};  // its workers are part of no edit
}

void Membership::take_over_base(std::map<Host, Host>::iterator heir) {
  Row& from = row(heir->first);
  std::erase_if(file_, [&](const HostSlots& line) { return line.host == heir->first; });
  row(heir->second).base += std::exchange(from.base, 0);
  from.empty = 0;
  from.departed = false;
  heirs_.erase(heir);
}

void Membership::departed(const Host& host) {
  Row& r = row(host);
  r.leaves = false;
  r.empty = r.asked;
  r.departed = r.empty > 0;
  has_anyone_departed_ = true;
}

bool Membership::nobody_stays() const {
  bool any_leaves = false;
  for (const auto& [host, r] : rows_) {
    if (r.wanted() > 0) return false;
    any_leaves = any_leaves || r.leaves;
  }
  return any_leaves;
}

void Membership::forget_gone(const std::vector<WorkerId>& view, Time now) {
  std::erase_if(swaps_, [&](const auto& swap) { return now >= swap.second + kSwapWait; });
  if (count(WorkerState::kGone) == 0) return;
  const std::set<WorkerId> kept(view.begin(), view.end());
  std::erase_if(workers_, [&](const auto& one) {
    const Worker& w = one.second;
    if (w.state != WorkerState::kGone || swaps_.count(w.edit) > 0 || kept.count(w.id) > 0)
      return false;
    count_out(w);
    row(w.host).workers.erase(w.id);
    return true;
  });
}

void Membership::view_began(const std::vector<WorkerId>& members,
                            const std::vector<WorkerId>& leavers, Time now) {
  std::erase_if(swaps_, [&](const auto& swap) {
    const Edit edit = swap.first;
    return std::ranges::any_of(members,
                               [&](WorkerId id) { return workers_.at(id).edit == edit; }) ||
           std::ranges::any_of(
               leavers, [&](WorkerId id) { return at(workers_.at(id).host).removed_by == edit; });
  });
  const std::size_t open = heirs_.size();
  for (auto heir = heirs_.begin(); heir != heirs_.end();) {
    const auto is_there = [&](WorkerId id) {
      return workers_.at(id).host == heir->second && workers_.at(id).state == WorkerState::kMember;
    };
    const auto there = std::ranges::count_if(members, is_there);
    const auto next = std::next(heir);
    if (there >= at(heir->first).base) take_over_base(heir);
    heir = next;
  }
  if (heirs_.size() < open) take_file(last_edit_, std::vector(file_), now);
}

Worker& Membership::add_worker(WorkerId id, const Host& host, Edit edit, Time now) {
  if (const Worker* known = find(id)) {
    count_out(*known);
    row(known->host).workers.erase(id);
  }
  Worker& w = workers_[id];
  w.id = id;
  w.host = host;
  w.edit = edit;
  w.since = now;
  next_id_ = std::max(next_id_, id.next());
  Row& r = row(host);
  r.workers.insert(id);
  w.slot = 0;
  for (const std::uint32_t taken : r.slots) {
    if (taken != w.slot) break;
    ++w.slot;
  }
  count_in(w);
  return w;
}

bool Membership::advance(WorkerId id, WorkerEvent event, Time now) {
  Worker* w = find(id);
  if (!w || !next_state(w->state, event)) return false;
  count_out(*w);
  static_cast<void>(w->state.advance(event));
  count_in(*w);
  w->since = now;
  if (w->state == WorkerState::kMember) w->was_member = true;
  return true;
}

std::uint32_t Membership::wanted() const {
  std::uint32_t sum = 0;
  for (const auto& [host, r] : rows_) sum += r.wanted();
  return sum;
}

std::vector<Host> Membership::hosts() const {
  std::vector<Host> out;
  for (const auto& [host, r] : rows_)
    if (r.wanted() > 0 || !r.slots.empty()) out.push_back(host);
  return out;
}

std::vector<Host> Membership::base_hosts() const {
  std::vector<Host> out;
  for (const auto& [host, r] : rows_)
    if (r.base > 0) out.push_back(host);
  return out;
}

std::vector<Host> Membership::refused_removals(const std::vector<HostSlots>& hosts) const {
  const std::map<Host, std::uint32_t> slots = slots_by_host(hosts);
  std::vector<Host> refused;
  for (const auto& [host, r] : rows_)
    if (value_in(slots, host) < r.base && r.wanted() > 0 && !heirs_.contains(host))
      refused.push_back(host);
  return refused;
}

std::vector<WorkerId> Membership::surplus(const Row& row,
                                          const std::vector<WorkerId>& members) const {
  const std::uint32_t keep = row.wanted();
  if (row.present <= keep) return {};
  std::vector<const Worker*> all;
  for (const WorkerId id : row.workers)
    if (const Worker& w = workers_.at(id); is_present(w)) all.push_back(&w);
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

std::vector<WorkerId> Membership::unwanted_newcomers(const Host& host) const {
  std::vector<WorkerId> out = surplus(at(host), {});
  std::erase_if(out, [this](WorkerId id) { return !on_the_way(workers_.at(id).state); });
  return out;
}

bool Membership::held(Edit edit, Time now, const std::set<Host>& unreachable) const {
  const auto swap = swaps_.find(edit);
  if (swap == swaps_.end() || now >= swap->second + kSwapWait) return false;
  return std::ranges::any_of(rows_, [&](const auto& one) {
    const auto& [host, r] = one;
    if (r.added_by != edit) return false;
    std::uint32_t ready = 0;
    for (const WorkerId id : r.workers) {
      const Worker& w = workers_.at(id);
      const bool has_failed = w.has_failed || w.state == WorkerState::kGone;
      if (w.edit == edit && has_failed && !w.was_member) return false;
      ready += w.state == WorkerState::kMember ||
               (w.state == WorkerState::kWarm && !unreachable.count(host));
    }
    return ready < r.wanted();
  });
}

Plan Membership::plan(const std::vector<WorkerId>& members, Time now,
                      const std::set<Host>& unreachable) const {
  std::map<Edit, bool> known;
  const auto is_held = [&](Edit edit) {
    const auto [at, is_new] = known.try_emplace(edit);
    if (is_new) at->second = held(edit, now, unreachable);
    return at->second;
  };
  Plan out;
  std::set<WorkerId> go;
  std::set<WorkerId> unwanted;
  bool holds = false;
  const bool nobody_else = nobody_stays();
  for (const auto& [host, r] : rows_) {
    for (const WorkerId id : surplus(r, members)) {
      unwanted.insert(id);
      if (workers_.at(id).state != WorkerState::kMember || (r.leaves && nobody_else)) continue;
      if (!r.leaves && is_held(r.removed_by))
        holds = true;
      else
        go.insert(id);
    }
  }
  const auto may_join = [&, present = std::set(members.begin(), members.end())](const Worker& w) {
    return w.state == WorkerState::kWarm && !unreachable.count(w.host) && !unwanted.count(w.id) &&
           !present.count(w.id);
  };
  std::set<Host> waiting;
  for (const auto& [from, to] : heirs_) {
    const auto ready = std::ranges::count_if(at(to).workers, [&](WorkerId id) {
      const Worker& w = workers_.at(id);
      const bool stays = w.state == WorkerState::kMember && !go.contains(id);
      return stays || (may_join(w) && !is_held(w.edit));
    });
    const bool is_whole = ready >= at(from).base;
    for (const WorkerId id : at(from).workers) {
      const bool is_member = workers_.at(id).state == WorkerState::kMember;
      if (is_whole)
        (is_member ? go : unwanted).insert(id);
      else if (is_member)
        waiting.insert(to);
    }
  }
  std::size_t warm = count(WorkerState::kWarm);
  for (auto it = workers_.begin(); warm > 0; ++it) {
    const Worker& w = it->second;
    warm -= w.state == WorkerState::kWarm;
    if (!may_join(w)) continue;
    if (!members.empty() && (is_held(w.edit) || waiting.contains(w.host)))
      holds = true;
    else
      out.joins.push_back(w.id);
  }
  for (const WorkerId id : members)
    if (go.count(id)) out.leaves.push_back(id);
  if (holds) out.reason = "an edit that swaps hosts waits for its newcomers";
  keep_least(out, members.size(), now);
  return out;
}

void Membership::keep_least(Plan& plan, std::size_t members, Time now) const {
  const std::size_t least = std::max(limits_.least, 1U);
  bool keeps = false;
  const auto may_stay = [this](WorkerId id) { return !at(workers_.at(id).host).leaves; };
  while (!plan.leaves.empty() && members + plan.joins.size() - plan.leaves.size() < least) {
    const auto kept = std::ranges::find_if(plan.leaves, may_stay);
    const WorkerId stays = kept == plan.leaves.end() ? plan.leaves.front() : *kept;
    const Edit edit = at(workers_.at(stays).host).removed_by;
    const auto swap = swaps_.find(edit);
    const bool is_swap = swap != swaps_.end() && now < swap->second + kSwapWait;
    // An edit that swaps hosts waits as a whole.
    std::erase_if(plan.leaves, [&](WorkerId id) {
      return id == stays || (is_swap && at(workers_.at(id).host).removed_by == edit);
    });
    std::erase_if(plan.joins, [&](WorkerId id) { return is_swap && workers_.at(id).edit == edit; });
    keeps = true;
  }
  if (!keeps) return;
  plan.reason = least == 1 ? "the last member stays until another worker is ready"
                           : fmt::format(
                                 "of those that are to leave as many stay as are needed to "
                                 "be {} (--min-workers)",
                                 least);
}

bool Membership::index_holds() const {
  Membership counted_again(limits_);
  for (const auto& [id, w] : workers_) {
    counted_again.workers_.emplace(id, w);
    counted_again.row(w.host).workers.insert(id);
    counted_again.count_in(w);
  }
  return counted_again.by_state_ == by_state_ && std::ranges::all_of(rows_, [&](const auto& one) {
           const Row& r = one.second;
           const Row& counted = counted_again.at(one.first);
           return counted.workers == r.workers && counted.present == r.present &&
                  counted.slots == r.slots && std::ranges::count_if(r.workers, [this](WorkerId id) {
                                                return workers_.at(id).state != WorkerState::kGone;
                                              }) == std::ssize(r.slots);
         });
}

}  // namespace dt
