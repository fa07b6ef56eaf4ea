#include "test/sim/checkers.h"

#include <algorithm>
#include <utility>

#include "core/base/number.h"
#include "core/job/group_restart.h"
#include "core/job/membership.h"

namespace dt::sim {
namespace {

/// Longest time that a complete boundary may stay unreleased when nothing is wrong: the servers'
/// slowest acknowledgement and the links' delays.
constexpr Duration kReleaseWithin = std::chrono::seconds(4);
/// Of the servers, with the links' delays.
constexpr Duration kTwoReports = std::chrono::seconds(3);
/// --hang-timeout of the simulated jobs, and until it shows.
constexpr Duration kHangTimeout = std::chrono::seconds(15);
constexpr Duration kHangsAtMost = kHangTimeout + kTwoReports;

/// Until a standstill shows after a late acknowledgement.
constexpr Duration kShows = kTwoReports + std::chrono::seconds(2);

/// --server-dead-after, its last report and the workers' last word of its data.
constexpr Duration kServerHangsAtMost = std::chrono::milliseconds(3000 + 1500 + 1500);

bool contains(const std::vector<WorkerId>& v, WorkerId id) {
  return std::find(v.begin(), v.end(), id) != v.end();
}

std::string ids(const std::vector<WorkerId>& v) { return fmt::format("[{}]", fmt::join(v, ",")); }

}  // namespace

void Checkers::on_record(const Record& record, Instant now) {
  std::visit([&](const auto& r) { check_one(r, now.at); }, record);
}

void Checkers::check_one(const NoticeTaken& r, Time) {
  const auto known = leaving_.find(r.host);
  // A later term only estimates it, until its source says it again.
  const bool is_estimate = estimated_.erase(r.host) > 0;
  if (known != leaving_.end() && r.deadline_ns >= known->second && !is_estimate)
    fail("a notice takes the place of one with an earlier deadline");
  if (r.host && r.host == master && r.deadline_ns != kNoDeadline)
    fail(fmt::format("{} is taken for one host of many, and the supervisor is on it", *r.host));
  leaving_[r.host] = r.deadline_ns;
  if (r.host) {
    on_doubt(*r.host);
    noticed_.insert(*r.host);
  }
  excused_codes.insert(75);
  if (group && group->limits.least > 0) excused_codes.insert(71);
  on_trouble();
}

void Checkers::check_one(const NoticeOver& r, Time) {
  if (leaving_.erase(r.host) == 0) fail("a notice is over that was not given");
  on_trouble();
  if (r.is_cancelled || !r.host) return;
  for (const auto& [id, host] : host_)
    if (host == *r.host && !gone_.count(id))
      fail(fmt::format("{} has left, and worker {} is there", host, id));
}

void Checkers::on_slot(WorkerId worker, std::uint32_t slot) {
  if (const auto known = slots_.emplace(worker, slot).first; known->second != slot)
    fail(fmt::format("worker {} has slot {}, and had {}", worker, slot, known->second));
  for (const auto& [other, its] : slots_)
    if (its == slot && other != worker && !gone_.count(other) &&
        host_.at(other) == host_.at(worker))
      fail(fmt::format("workers {} and {} of {} have slot {}", worker, other, host_.at(other),
                       slot));
}

void Checkers::on_release_sent(WorkerId worker, const Release& r, Instant now) {
  const auto leaves = leaving_.find(host_.at(worker));
  if (leaves != leaving_.end() && now.wall_ns > leaves->second && r.verdict != Verdict::kLeave)
    fail(fmt::format("worker {} is released after its host's deadline", worker));
}

void Checkers::check_one(const JobBegan& r, Time) {
  std::uint32_t next = 0;
  for (const Host& host : r.workers) {
    host_[WorkerId(next)] = host;
    members_.push_back(WorkerId(next++));
    ++wanted_[host];
    ++logged_[host];
  }
  next_server_ = ServerId(static_cast<std::uint32_t>(r.servers.size()));
  contributors_ = members_;
  generation_ = Generation(1);
  sets_[generation_] = views_[generation_] = members_;
}

void Checkers::check_one(const TermBegan& r, Time now) {
  for (const auto& [host, deadline_ns] : leaving_) estimated_.insert(host);
  if (r.term <= term_) fail(fmt::format("term {} begins after term {}", r.term, term_));
  term_ = r.term;
  servers_left_since_.reset();
  // A new supervisor starts its own measurement.
  hanging_since_.clear();
  server_hangs_since_.clear();
  waiting_since_.reset();
  standstill_since_.reset();
  on_trouble();
  if (generation_ <= Generation(1)) group_began_ = now;  // the first group's begin has no record
}

void Checkers::check_one(const WorkerAllotted& r, Time) {
  if (!host_.emplace(r.worker, r.host).second)
    fail(fmt::format("worker id {} was given twice", r.worker));
}

void Checkers::check_one(const FileTaken& r, Time now) {
  file_ = r.hosts;
  std::map<Host, std::uint32_t> next = wanted_now();
  Swap swap;
  swap.taken = now;
  for (const auto& [host, n] : next)
    if (n > wanted_[host]) swap.grown[host] = n;
  for (const auto& [host, n] : wanted_)
    if (const std::uint32_t then = next.count(host) ? next[host] : 0; then < n)
      swap.shrunk[host] = then;
  wanted_ = std::move(next);
  troubled_.clear();
  swap_.reset();
  swap.before = members_per_host();
  // Only a swap between hosts in good order is to be watched: nothing missing, nothing in excess.
  const auto settled = [&](const auto& hosts, bool grows) {
    return std::all_of(hosts.begin(), hosts.end(), [&](const auto& h) {
      const std::uint32_t has = swap.before[h.first];
      return grows ? has < h.second : has > h.second;
    });
  };
  const bool others_on_the_way = std::any_of(host_.begin(), host_.end(), [&](const auto& w) {
    return swap.grown.count(w.second) && !gone_.count(w.first) && !leavers_.count(w.first) &&
           !contains(contributors_, w.first);
  });
  if (!swap.grown.empty() && !swap.shrunk.empty() && !others_on_the_way &&
      settled(swap.grown, true) && settled(swap.shrunk, false))
    swap_ = std::move(swap);
}

std::map<Host, std::uint32_t> Checkers::wanted_now() const {
  std::map<Host, std::uint32_t> out = base_count_;
  for (const auto& [from, to] : heirs_) out[to] += base_count_.at(from);
  for (const HostSlots& s : file_) out[s.host] = std::max(s.slots, out[s.host]);
  return out;
}

void Checkers::check_one(const BaseReplaced& r, Time) {
  heirs_[r.from] = r.to;
  wanted_ = wanted_now();
  swap_.reset();
  if (group) bases_move({}, true);
}

void Checkers::bases_move(const std::vector<WorkerId>& members, bool all) {
  const std::size_t open = heirs_.size();
  std::erase_if(heirs_, [&](const auto& heir) {
    const auto is_there = [&](WorkerId id) { return host_.at(id) == heir.second; };
    if (!all && std::ranges::count_if(members, is_there) < base_count_.at(heir.first)) return false;
    base_count_[heir.second] += base_count_.at(heir.first);
    base_count_.erase(heir.first);
    troubled_.insert({heir.first, heir.second});  // no swap of an edit's
    std::erase_if(file_, [&](const HostSlots& line) { return line.host == heir.first; });
    return true;
  });
  if (heirs_.size() < open) wanted_ = wanted_now();
}

std::map<Host, std::uint32_t> Checkers::members_per_host() const {
  std::map<Host, std::uint32_t> out;
  for (const WorkerId id : contributors_) ++out[host_.at(id)];
  return out;
}

void Checkers::on_sealed(Epoch epoch, Generation generation) {
  const auto& parts = saved_[generation];
  bool whole = parts.size() == servers_;
  for (const auto& [server, saved] : parts) whole &= saved.why.empty() && saved.epoch == epoch;
  if (!whole) fail(fmt::format("the checkpoint of epoch {} counts and is not whole", epoch));
  if (!asked_.count(generation) || asked_.at(generation) != epoch)
    fail(fmt::format("nobody asked for a checkpoint of epoch {}", epoch));
  sealed_[generation] = epoch;
  unusable_.erase(epoch);
}

void Checkers::on_unusable(ServerId server) {
  excused_codes.insert(67);
  unusable_.insert(origins_.at(server));
  ever_unusable_.insert(origins_.at(server));
}

void Checkers::check_one(const CheckpointTaken& r, Time) {
  const auto sealed = sealed_.find(r.generation);
  if (sealed == sealed_.end() || sealed->second != r.epoch)
    fail(fmt::format("a checkpoint of epoch {} is journalled that is not on the volume", r.epoch));
  if (!checkpoints_.empty() && checkpoints_.back() >= r.epoch)
    fail(fmt::format("the checkpoint of epoch {} comes after that of epoch {}", r.epoch,
                     checkpoints_.back()));
  checkpoints_.push_back(r.epoch);
  if (checkpoints_.size() > keep_checkpoints) checkpoints_.erase(checkpoints_.begin());
}

void Checkers::check_one(const CheckpointTimed& r, Time) {
  if (checkpoints_.empty() || checkpoints_.back() != r.epoch)
    fail(fmt::format("the cost of a checkpoint of epoch {} is told, which is not the newest",
                     r.epoch));
}

void Checkers::check_one(const RolledBack& r, Time) {
  const bool may = rolls_back && epoch_ && exited_.empty();
  if (r.damaged && !ever_unusable_.count(r.damaged))
    fail(fmt::format("the checkpoint of epoch {} is passed over, and nobody said why", *r.damaged));
  if (r.damaged) std::erase(checkpoints_, *r.damaged);
  const bool is_own = !checkpoints_.empty();
  const auto checkpoint = is_own ? std::optional(checkpoints_.back()) : first_epoch;
  if (!may || checkpoint != r.epoch || r.is_inherited == is_own)
    fail(fmt::format("the job goes back to epoch {}, which is not its newest checkpoint", r.epoch));
  for (std::uint32_t n = 0; n < servers_; ++n)
    origins_[ServerId(r.first.value + n)] = is_own ? std::optional(r.epoch) : std::nullopt;
  if (r.generation != generation_.next())
    fail(fmt::format("generation {} follows generation {}", r.generation, generation_));
  if (r.first != next_server_ || r.servers.size() != servers_)
    fail(fmt::format("servers from {} on follow server {}", r.first, next_server_));
  next_server_ = ServerId(r.first.value + static_cast<std::uint32_t>(servers_));
  generation_ = rolled_back_ = r.generation;
  returns_to_ = r.epoch;
  sets_[r.generation] = contributors_;
  views_[r.generation] = members_;
  told_.clear();
  hanging_since_.clear();
  on_trouble();
  if (!r.damaged) ++rollbacks_;
}

void Checkers::epoch_begins(Epoch epoch) {
  if (returns_to_ && epoch != *returns_to_)
    fail(fmt::format("epoch {} begins with the values of epoch {}", epoch, *returns_to_));
  if (!returns_to_ && epoch_ && epoch != *epoch_) deaths_ = tries_ = unwanted_ = 0;
  starts_again_ = !returns_to_ && epoch_ == epoch;
  if (!furthest_ || epoch > *furthest_) {
    furthest_ = epoch;
    rollbacks_ = 0;
  }
  returns_to_.reset();
  epoch_ = epoch;
}

void Checkers::check_one(const EpochBegan& r, Time) {
  if (!returns_to_ && epoch_ && r.epoch != epoch_->next())
    fail(fmt::format("epoch {} begins after epoch {}", r.epoch, *epoch_));
  epoch_begins(r.epoch);
}

void Checkers::check_one(const Committed& r, Time now) {
  if (r.generation != generation_.next())
    fail(fmt::format("generation {} follows generation {}", r.generation, generation_));
  waiting_since_.reset();  // the servers have another one to acknowledge
  standstill_since_.reset();
  if (r.boundary) {
    check_view(r, now);
  } else {
    // 2. Between boundaries the contributor set may only shrink.
    if (r.members != members_) fail("ranks changed in mid-epoch");
    std::vector<WorkerId> rest;
    for (const WorkerId id : contributors_)
      if (contains(r.contributors, id)) rest.push_back(id);
    if (rest != r.contributors) fail("the contributor set grew in mid-epoch");
    // That others wait shows in the servers' reports again when those of the new set are there.
    for (auto& [id, since] : hanging_since_) since += kTwoReports;
  }
  // 5. No worker that is gone contributes.
  for (const WorkerId id : r.contributors)
    if (gone_.count(id)) fail(fmt::format("worker {} is gone and contributes", id));
  generation_ = r.generation;
  if (r.saves) asked_[r.generation] = r.epoch;
  members_ = r.members;
  contributors_ = r.contributors;
  sets_[r.generation] = r.contributors;
  views_[r.generation] = r.members;
  for (const LogLine& l : r.log) {
    if (!l.added) fail("a commit logs a removal");
  }
}

void Checkers::check_view(const Committed& r, Time now) {
  // Members keep their order and close gaps; newcomers come last.
  std::vector<WorkerId> stay;
  for (const WorkerId id : contributors_)
    if (!contains(r.leavers, id)) stay.push_back(id);
  if (r.members.size() < stay.size() || !std::equal(stay.begin(), stay.end(), r.members.begin()))
    fail(fmt::format("generation {}: members {} do not continue {}", r.generation, ids(r.members),
                     ids(stay)));
  if (r.members != r.contributors) fail("a new view has members that do not contribute");
  if (r.members.empty()) fail("a view without members");
  std::size_t joined = 0;
  for (const WorkerId id : r.members) {
    if (contains(contributors_, id)) continue;
    ++joined;
    if (!added_.insert(id).second) fail(fmt::format("worker {} joins twice", id));
    if (gone_.count(id) || leavers_.count(id)) fail(fmt::format("worker {} comes back", id));
    due_.emplace_back(true, host_.at(id));
  }
  if (joined != r.log.size()) fail("a commit's log lines are not its joins");
  // 3. The file never removes a base worker, and a notice none of another host.
  bases_move(r.members, false);
  std::map<Host, std::uint32_t> left;
  for (const WorkerId id : stay) ++left[host_.at(id)];
  for (const WorkerId id : r.leavers) {
    leavers_.insert(id);
    const Host& host = host_.at(id);
    if (leaving_.count(host)) continue;
    if (id.value < base_.size() && base_count_.contains(host))
      fail(fmt::format("base worker {} is told to leave", id));
    if (!has_most && left[host] < wanted_[host])
      fail(fmt::format("worker {} leaves {}, which keeps fewer than it should", id,
                       to_string(host)));
  }
  check_swap(r, now);
  if (!returns_to_ && epoch_ && r.epoch != *epoch_ && r.epoch != epoch_->next())
    fail(fmt::format("epoch {} begins after epoch {}", r.epoch, *epoch_));
  if (!returns_to_ && epoch_ && r.epoch == *epoch_ && !contributors_.empty())
    fail(fmt::format("epoch {} begins again though someone trains", r.epoch));
  epoch_begins(r.epoch);
}

void Checkers::check_swap(const Committed& r, Time now) {
  // 4. Additions and removals of one accepted file commit together.
  if (!swap_ || has_most || now - swap_->taken >= kSwapWait) return swap_.reset();
  const auto is_troubled = [this](const auto& change) {
    return troubled_.count(change.first) > 0 || noticed_.count(change.first) > 0;
  };
  if (std::ranges::any_of(swap_->grown, is_troubled) ||
      std::ranges::any_of(swap_->shrunk, is_troubled))
    return swap_.reset();
  std::map<Host, std::uint32_t> has;
  for (const WorkerId id : r.members) ++has[host_.at(id)];
  std::size_t done = 0;
  std::size_t untouched = 0;
  const auto look = [&](const std::map<Host, std::uint32_t>& hosts) {
    for (const auto& [host, n] : hosts) {
      done += has[host] == n;
      untouched += has[host] == swap_->before[host];
    }
  };
  look(swap_->grown);
  look(swap_->shrunk);
  const std::size_t all = swap_->grown.size() + swap_->shrunk.size();
  if (done != all && untouched != all)
    fail(fmt::format("generation {} commits a part of an edit that swaps hosts", r.generation));
  if (done == all) swap_.reset();
}

void Checkers::check_one(const WorkerGone& r, Time now) {
  if (!gone_.insert(r.worker).second) fail(fmt::format("worker {} is gone twice", r.worker));
  if (!host_.count(r.worker)) return fail(fmt::format("worker {} was never allotted", r.worker));
  if (r.why.starts_with("notice:")) {
    left_with_host_.insert(r.worker);
    if (!leaving_.count(host_.at(r.worker)))
      fail(fmt::format("worker {} leaves with its host, which stays", r.worker));
  }
  if (group) return check_group_gone(r, now);
  if (r.why.starts_with("hung") && !hung_.count(r.worker))
    fail(fmt::format("worker {} is taken for hung and is not", r.worker));
  const bool base = r.worker.value < base_.size();
  const bool was_member = added_.count(r.worker) || (base && epoch_);
  const bool told = leavers_.count(r.worker) > 0;
  const auto end = ends_.find(r.worker);
  if (r.status.clean() && end != ends_.end() && !end->second.clean())
    fail(fmt::format("worker {} is said to have ended well", r.worker));
  const bool own_end = !told && r.status.clean() && r.why.empty();
  const bool is_death = !r.status.clean() && !leaving_.count(host_.at(r.worker));
  if (epoch_ && contains(contributors_, r.worker) && is_death) ++deaths_;
  if (contributors_.empty() && !was_member) {
    ++tries_;
    unwanted_ += r.why == "no longer wanted" || stopped_tries_.count(r.worker) > 0;
  }
  stopped_tries_.erase(r.worker);
  if (contains(contributors_, r.worker) && own_end) exited_.insert(r.worker);
  if (was_member && !own_end) due_.emplace_back(false, host_.at(r.worker));
  if (was_member || base) on_trouble(host_.at(r.worker));
  on_trouble(host_.at(r.worker));
  // 7. The line travels with the decision.
  if (r.log.size() != (was_member && !own_end ? 1U : 0U))
    fail(fmt::format("the end of worker {} has {} log lines", r.worker, r.log.size()));
}

void Checkers::check_one(const MemberLeft& r, Time) {
  if (exited_.erase(r.worker) == 0)
    fail(fmt::format("worker {} is said to have left by itself and did not", r.worker));
  if (r.log.size() != 1) fail("who leaves by itself has one line in the log");
  due_.emplace_back(false, host_.at(r.worker));
  on_trouble();
}

void Checkers::check_group_gone(const WorkerGone& r, Time now) {
  const Host& host = host_.at(r.worker);
  const bool own_end = r.status.clean() && r.why.empty();
  const bool is_death = !stops_ && !own_end && group->max_restarts > 0;
  if (r.status == ExitStatus{0, 9} && !r.why.empty()) lost_.insert(r.worker);
  const bool leaves = leaving_.count(host) > 0;
  if (is_death && !leaves && !std::exchange(has_died_, true))
    early_deaths_ = now - group_began_ < kGroupLives ? early_deaths_ + 1 : 0;
  if (r.log.size() != (is_death ? 1U : 0U))
    fail(fmt::format("the end of worker {} has {} log lines", r.worker, r.log.size()));
  if (!is_death) return;
  ++deaths_on_[host];
  due_.emplace_back(false, host);
  if (logged_[host]-- == 0) fail(fmt::format("{} loses a worker that it has not", to_string(host)));
}

void Checkers::check_one(const GroupStops& r, Time now) {
  if (!group) fail("workers stop as a group, and nobody asked for that");
  if (r.futile > group->max_restarts) fail("more restarts in a row than are allowed");
  stops_ = true;
  group_stopped_ = now;
}

void Checkers::check_nobody_is_left_out(const GroupBegan& r, Time now) {
  // --max-workers may want fewer than the file.
  if (group->limits.most > 0 || now - group_stopped_ >= kSwapWait) return;
  for (const WorkerId id : members_) {
    const Host& host = host_.at(id);
    const bool is_given_up = deaths_on_[host] > group->max_restarts;
    const bool is_in = std::ranges::count(r.workers, host) > 0;
    if (wanted_[host] > 0 && !is_in && !doubtful_.count(host) && !is_given_up)
      fail(fmt::format("a group begins without {}, which answers", to_string(host)));
  }
}

void Checkers::check_one(const GroupBegan& r, Time now) {
  if (!stops_) fail("a group begins before the former one has stopped");
  if (r.generation != generation_.next())
    fail(fmt::format("generation {} follows generation {}", r.generation, generation_));
  // All of the former group have ended, or count as ended.
  for (const WorkerId id : members_)
    if (!gone_.count(id)) fail(fmt::format("a group begins while worker {} is there", id));
  const std::size_t least = std::max(1U, group->limits.least);
  const std::size_t most = group->limits.most;
  if (r.workers.size() < least || (most > 0 && r.workers.size() > most))
    fail(fmt::format("a group of {} workers begins", r.workers.size()));
  check_nobody_is_left_out(r, now);
  std::map<Host, std::uint32_t> has;
  members_.clear();
  WorkerId id = r.first;
  for (const Host& host : r.workers) {
    if (!host_.emplace(id, host).second) fail(fmt::format("worker id {} was given twice", id));
    if (++has[host] > wanted_[host])
      fail(fmt::format("{} has more workers than are wanted", to_string(host)));
    members_.push_back(id);
    id = id.next();
  }
  // 7. What the log says of each host is how many workers the group has there.
  for (const LogLine& line : r.log) {
    due_.emplace_back(line.added, line.host);
    logged_[line.host] += line.added ? 1 : -1U;
  }
  std::erase_if(logged_, [](const auto& one) { return one.second == 0; });
  if (logged_ != has) fail(fmt::format("generation {}: the log is of other workers", r.generation));
  generation_ = r.generation;
  contributors_ = members_;
  sets_[r.generation] = views_[r.generation] = members_;
  stops_ = has_died_ = false;
  group_began_ = now;
}

void Checkers::check_group_end(std::int32_t code) {
  if (code == 70 && early_deaths_ <= group->max_restarts)
    fail(fmt::format("the job ends for lack of progress after {} early death(s) in a row",
                     early_deaths_));
  if (code == 0 && stops_) fail("exit code 0 in the middle of a restart");
}

void Checkers::on_process(ProcessId process) {
  // 8. A worker id is started at most once.
  if (!created_.insert(process).second)
    fail(fmt::format("{} was started twice", to_string(process)));
  if (process.role == Role::kWorker && !host_.count(WorkerId(process.id)))
    fail(fmt::format("{} was started before its id was journalled", to_string(process)));
  if (!group || process.role != Role::kWorker) return;
  // Nothing of a former group runs any more, but what is lost with its host or cannot be killed.
  for (const ProcessId former : created_) {
    const WorkerId id(former.id);
    if (former.role != Role::kWorker || contains(members_, id)) continue;
    const bool is_excused = (lost_.count(id) || unkillable_.count(id)) &&
                            host_.at(id) != host_.at(WorkerId(process.id));
    if (!ends_.count(id) && !is_excused)
      fail(fmt::format("worker {} begins while worker {} of a former group runs", process.id, id));
  }
}

void Checkers::on_server_start() {
  if (has_opaque_servers && !knows_ports_)
    fail("a server starts, and the ports of its environment are not known");
}

void Checkers::on_servers_are_left(Time now, bool are_left) {
  if (!are_left) return servers_left_since_.reset();
  if (!servers_left_since_) servers_left_since_ = now;
  if (now - *servers_left_since_ > stop_grace + kTwoReports)
    fail("the workers have ended, and their opaque servers are left alone");
}

void Checkers::on_process_end(ProcessId process, ExitStatus status) {
  if (process.role == Role::kWorker) ends_.emplace(WorkerId(process.id), status);
  if (process.role == Role::kServer && has_opaque_servers && !status.clean())
    excused_codes.insert(status.code == 127 ? 127 : 67);
}

void Checkers::on_release(WorkerId worker, const Release& r) {
  if (r.verdict == Verdict::kLeave) {
    if (!leavers_.count(worker))
      fail(fmt::format("worker {} is told to leave and no commit says so", worker));
    return;
  }
  // 1. Ranks of one view are 0..n-1, each once; all workers get the same view.
  const auto view = views_.find(r.generation);
  if (view == views_.end())
    return fail(fmt::format("generation {} is released and not on the disk", r.generation));
  const auto& members = view->second;
  if (r.world_size != members.size() || r.rank.value >= members.size() ||
      members[r.rank.value] != worker)
    fail(fmt::format("worker {} is told rank {} of {} in generation {}, whose view is {}", worker,
                     r.rank, r.world_size, r.generation, ids(members)));
  const auto [owner, first_owner] = ranks_.emplace(std::pair(r.generation, r.rank), worker);
  if (!first_owner && owner->second != worker)
    fail(fmt::format("rank {} of generation {} was given to two workers", r.rank, r.generation));
  // 2. Ranks and world size change only at a boundary.
  if (r.generation < rolled_back_) return;  // it arrives late
  if (r.verdict == Verdict::kRollback && !epoch_)
    fail(fmt::format("worker {} is rolled back before anything began", worker));
  const Told now{r.rank, r.world_size};
  const auto [before, first] = told_.emplace(std::pair(worker, r.epoch), now);
  if (!first && (before->second.rank != now.rank || before->second.size != now.size))
    fail(fmt::format("worker {} is told two different views for epoch {}", worker, r.epoch));
}

void Checkers::on_server_commit(ServerId server, const ServerCommit& c) {
  // 9. Every server gets the same sets, and a later term never revokes an earlier one's.
  const auto set = sets_.find(c.generation);
  if (set == sets_.end())
    return fail(fmt::format("generation {} reaches server {} and is not on the disk", c.generation,
                            server));
  if (set->second != c.contributors)
    fail(fmt::format("generation {} reaches server {} as {} and was journalled as {}", c.generation,
                     server, ids(c.contributors), ids(set->second)));
  auto& adopted = adopted_[server];
  if (c.term >= adopted.first && c.generation < adopted.second)
    fail(fmt::format("server {} has generation {}; term {} tells it generation {}", server,
                     adopted.second, c.term, c.generation));
  adopted = std::max(adopted, std::pair(c.term, c.generation));
}

void Checkers::on_tick(Instant instant, bool all_wait, const std::set<WorkerId>& hang) {
  const Time now = instant.at;
  for (const auto& [host, deadline_ns] : leaving_) {
    const bool is_unknown = deadline_ns == kNoDeadline && estimated_.count(host) > 0;
    all_wait = all_wait && !is_unknown && instant.wall_ns < deadline_ns - notice_margin.count();
  }
  std::erase_if(hanging_since_, [&hang](const auto& h) { return hang.count(h.first) == 0; });
  for (const WorkerId id : hang)
    if (now - hanging_since_.emplace(id, now).first->second > kHangsAtMost)
      fail(fmt::format("worker {} hangs and is waited for longer than --hang-timeout", id));
  // 5 and 10. A complete boundary is released at once, whatever newcomers do.
  if (!all_wait) return waiting_since_.reset();
  if (!waiting_since_) waiting_since_ = now;
  if (now - *waiting_since_ > kReleaseWithin)
    fail("every member has waited at the boundary for seconds and nothing is wrong");
}

void Checkers::on_standstill(Time now, bool stands, bool shows) {
  if (stands) last_stood_ = now;
  if (!shows) {
    standstill_since_.reset();
    is_standstill_told_ = false;
    return;
  }
  if (!standstill_since_) standstill_since_ = now;
  const Duration stood = now - *standstill_since_;
  if (stood > kHangTimeout / 2 + kShows && !is_standstill_told_)
    fail("all workers wait for each other, and nobody is told");
  if (stood > kHangTimeout + kShows) fail("all workers wait for each other, and the job goes on");
}

void Checkers::on_told_standstill(Time now) {
  is_standstill_told_ = true;
  if (!last_stood_ || now - *last_stood_ > kTwoReports)
    fail("workers are said to wait for each other and do not");
}

void Checkers::on_servers_hang(Time now, const std::set<ServerId>& hang) {
  std::erase_if(server_hangs_since_, [&hang](const auto& h) { return hang.count(h.first) == 0; });
  for (const ServerId id : hang)
    if (now - server_hangs_since_.emplace(id, now).first->second > kServerHangsAtMost)
      fail(fmt::format("server {} hangs and is waited for longer than --server-dead-after", id));
}

void Checkers::on_log_file(const std::string& text, bool whole) {
  // 7. No line is lost, doubled or out of order, whatever happened to the supervisor.
  std::size_t n = 0;
  std::map<std::string, std::int64_t> has;
  for (const Host& h : base_) ++has[h.name];
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) {
      if (whole) fail("host_worker_log ends in half a line");
      return;
    }
    std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (n >= due_.size()) return fail(fmt::format("host_worker_log: line {} is too many", n));
    const auto& [added, host] = due_[n];
    const std::string due = fmt::format("{} {} {} ", n, added ? "ADDED" : "REMOVED", host.name);
    if (!line.starts_with(due) || !parse_number<std::int64_t>(line.substr(due.size())))
      return fail(fmt::format("host_worker_log: \"{}\" instead of \"{}<time>\"", line, due));
    if ((has[host.name] += added ? 1 : -1) < 0)
      return fail(fmt::format("host_worker_log: {} has less than no worker", host.name));
    ++n;
  }
  if (whole && n != due_.size())
    fail(fmt::format("host_worker_log has {} lines, {} changes happened", n, due_.size()));
}

void Checkers::on_events(const std::vector<Note>& told, bool whole) {
  // 7. Each change has one event, too.
  for (std::size_t n = 0; n < told.size(); ++n) {
    const Note& event = told[n];
    if (event.line->seq != n)
      return fail(
          fmt::format("events.jsonl: the event of line {} is line {}'s", n, event.line->seq));
    const char* what = n < due_.size() && due_[n].first ? "worker_added" : "worker_removed";
    if (n >= due_.size() || event.what != what || event.host != due_[n].second)
      return fail(fmt::format("events.jsonl says what did not happen: {}", event.text));
  }
  if (whole && told.size() != due_.size())
    fail(fmt::format("events.jsonl has {} changes, {} happened", told.size(), due_.size()));
}

void Checkers::on_end(std::int32_t code, const std::string& message) {
  if (code == 74) return;  // checked with its record
  constexpr std::uint32_t kLeast = 10;
  const std::uint32_t limit = futile_restarts > 0 ? futile_restarts : kLeast;
  if (group) check_group_end(code);
  const auto tries = tries_ + static_cast<std::uint32_t>(stopped_tries_.size());
  if (!group && code == 70 && deaths_ + tries + 1 <= limit && rollbacks_ <= limit)
    fail(fmt::format("the job ends for lack of progress after {} deaths, {} tries, {} rollbacks",
                     deaths_, tries, rollbacks_));
  if (code == 70) return;
  // A lost server ends only a job without a checkpoint, or without a host for another server.
  if (message.find("no other one is there") != std::string::npos)
    std::erase_if(checkpoints_, [this](Epoch epoch) { return unusable_.count(epoch) > 0; });
  const bool is_inherited_good = first_epoch && !unusable_.count(std::nullopt);
  const bool has_checkpoint = rolls_back && epoch_ && (!checkpoints_.empty() || is_inherited_good);
  if (code == 67 && has_checkpoint && exited_.empty() && !is_adopted &&
      message.find("no other host of the initial launch") == std::string::npos)
    fail(fmt::format("the job ends though it has a checkpoint: {}", message));
  if (futile_restarts > 0 && deaths_ + tries_ - unwanted_ > futile_restarts + 8)
    fail(
        fmt::format("{} deaths and {} failed tries without an epoch between them did not end the "
                    "job",
                    deaths_, tries_));
  if (excused_codes.count(code)) return;
  if (code == 0) {
    for (const WorkerId id : members_) {
      const auto end = ends_.find(id);
      if (end != ends_.end() && !end->second.clean() && gone_.count(id) &&
          !left_with_host_.count(id))
        fail(fmt::format("exit code 0 though worker {} of the last view ended with {}", id,
                         to_string(end->second)));
      if (end == ends_.end() && !gone_.count(id))
        fail(fmt::format("exit code 0 though worker {} still runs", id));
    }
    return;
  }
  const bool somebodys =
      std::any_of(ends_.begin(), ends_.end(),
                  [code](const auto& e) { return e.second.shell_code() == code; }) ||
      (code == 137 && !hung_.empty());
  if (!somebodys) fail(fmt::format("nothing that happened explains exit code {}", code));
}

}  // namespace dt::sim
