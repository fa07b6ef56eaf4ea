#include "core/launch/holder_plan.h"

#include <algorithm>
#include <set>

namespace dt {
namespace {

class Planner {
 public:
  Planner(const std::vector<Holder>& holders, const JobWish& wish)
      : wish_(wish), wanted_(wish.wanted), lines_(wish.lines) {
    for (const Holder& holder : holders) replaced_.insert(holder.replaces);
  }

  void look_at(const Holder& holder) {
    if (holder.kept && !wish_.lets_go) look_at_kept(holder, host_of(holder.node));
    if (holder.state == HolderState::kEnding) {
      held_.insert(holder.node);
      return;
    }
    if (wish_.lets_go) return cancel(holder, "the job has ended");
    if (holder.state == HolderState::kPending) return;
    const bool is_second = !running_.insert(holder.node).second;
    held_.insert(holder.node);
    const JobHost host = host_of(holder.node);
    const bool is_own = host.in_file + host.empty > 0 && !host.needs_holder;
    if (is_second || is_own)
      return cancel(holder, "that node is the job's already: another holder asks for another node");
    if (holder.is_joined) return look_at_joined(holder, host);
    if (host.in_file > host.empty) return act(MarkJoined{holder.id, holder.slots});
    // Places of workers that left with an earlier holder of the node.
    if (host.in_file > 0) return act(DropHost{holder.node});
    if (host.is_running) return;
    if (wish_.max_workers > 0 && wanted_ + holder.slots > wish_.max_workers)
      return cancel(holder, fmt::format("nobody is wanted: host_worker has {} workers, and "
                                        "--max-workers is {}",
                                        wanted_, wish_.max_workers));
    // Leaving workers count until their host's lines are dropped.
    if (wish_.max_workers > 0 && lines_ + holder.slots > wish_.max_workers) return;
    wanted_ += holder.slots;
    lines_ += holder.slots;
    act(AddHost{holder.node, holder.slots});
  }

  HolderPlan finish(const std::vector<std::string>& unheld_before) {
    if (wish_.lets_go) return std::move(plan_);
    for (const auto& [node, host] : wish_.hosts) {
      if (!host.needs_holder || host.in_file == 0 || held_.contains(node)) continue;
      plan_.unheld.push_back(node);
      if (std::ranges::find(unheld_before, node) != unheld_before.end()) act(DropHost{node});
    }
    return std::move(plan_);
  }

 private:
  void look_at_kept(const Holder& holder, const JobHost& host) {
    // If the holder has not joined, the notice belonged to an earlier holder of the node.
    if (!host.is_leaving || host.in_file == 0 || !holder.is_joined) return;
    const bool is_asked_for = replaced_.contains(holder.id);
    if (!is_asked_for || holder.state != HolderState::kEnding)
      act(ReplaceHolder{holder.id, is_asked_for});
  }

  void look_at_joined(const Holder& holder, const JobHost& host) {
    const bool is_wanted = host.in_file > host.empty && !host.is_given_up;
    if (!is_wanted && !host.is_running) cancel(holder, "its workers are gone");
  }

  [[nodiscard]] JobHost host_of(const std::string& node) const {
    const auto at = wish_.hosts.find(node);
    return at == wish_.hosts.end() ? JobHost{} : at->second;
  }

  void act(HolderAction action) { plan_.actions.push_back(std::move(action)); }
  void cancel(const Holder& holder, std::string why) {
    act(CancelHolder{holder.id, std::move(why)});
  }

  const JobWish& wish_;
  std::uint32_t wanted_;  ///< With those that are added.
  std::uint32_t lines_;   ///< With those that are added.
  std::set<std::uint32_t> replaced_;
  std::set<std::string> running_;
  std::set<std::string> held_;
  HolderPlan plan_;
};

}  // namespace

HolderPlan plan_holders(const std::vector<Holder>& holders, const JobWish& wish,
                        const std::vector<std::string>& unheld_before) {
  Planner planner(holders, wish);
  for (const Holder& holder : holders) planner.look_at(holder);
  return planner.finish(unheld_before);
}

std::vector<Holder> newest_holders(const std::vector<Holder>& holders, std::size_t count) {
  std::vector<Holder> chosen;
  for (const HolderState state : {HolderState::kPending, HolderState::kRunning})
    for (auto holder = holders.rbegin(); holder != holders.rend() && chosen.size() < count;
         ++holder)
      if (holder->state == state) chosen.push_back(*holder);
  return chosen;
}

}  // namespace dt
