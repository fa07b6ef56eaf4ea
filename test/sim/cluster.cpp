#include "test/sim/cluster.h"

#include <algorithm>
#include <exception>

namespace dt::sim {

using namespace std::chrono_literals;

namespace {

/// Once faults have stopped the job has this long to finish.
constexpr Duration kLiveWithin = 600s;

}  // namespace

Cluster::Cluster(std::uint64_t seed, bool trace, bool cuts, Kinds kinds)
    : rng_(seed),
      damage_rng_(~seed),
      group_rng_(seed ^ 0x5deece66d),
      notice_rng_(seed ^ 0x2545f4914f),
      order_rng_(seed ^ 0x3c6ef372fe94f8),
      second_rng_(seed ^ 0x3c6ef372fe),
      mode_rng_(seed ^ 0x1f83d9abfb),
      clock_rng_(seed ^ 0x510e527fad),
      replace_rng_(seed ^ 0x428a2f98d7),
      trace_(trace),
      kinds_(kinds),
      restarts_(kinds.groups),
      cuts_(cuts) {
  plan();
  plan_group();
  plan_modes();
  faults_.notice = notice_rng_.chance(0.3) ? 1 : 0;
  options_.notice_margin = notice_rng_.time(0s, 2s);
  Random master_rng(seed ^ 0x6a09e667f3);
  if (faults_.notice > 0 && master_rng.chance(0.3))
    options_.master = machines_[master_rng.between(0, machines_.size() - 1)].host;
  if (order_rng_.chance(0.15) || kinds.two_orders) {
    faults_.two_orders = 0.1;
    options_.boundary_timeout = order_rng_.time(4s, 25s);
  }
  checkers_.emplace(options_.workers, options_.servers.size());
  checkers_->futile_restarts = options_.max_futile_restarts;
  checkers_->has_most = options_.limits.most > 0;
  checkers_->rolls_back = options_.rolls_back;
  checkers_->is_adopted = options_.is_adopted;
  checkers_->has_opaque_servers = options_.opaque_servers;
  checkers_->stop_grace = options_.stop_grace;
  checkers_->keep_checkpoints = options_.keep_checkpoints;
  checkers_->first_epoch = options_.first_epoch;
  checkers_->notice_margin = options_.notice_margin;
  checkers_->master = options_.master;
  if (restarts_) checkers_->group = options_;
  if (options_.limits.least > 0) checkers_->excused_codes.insert(71);
}

Outcome Cluster::run() {
  file_ = format_host_worker(options_.workers);
  begin_supervisor();
  plan_take_over();
  plan_clocks();
  at(faults_end_, [this] { heal(); });
  after(rng_.time(500ms, 3s), [this] { chaos(); });
  if (faults_.notice > 0) after(notice_rng_.time(500ms, 10s), [this] { give_notices(); });
  if (replace_rng_.chance(0.2)) after(replace_rng_.time(500ms, 10s), [this] { replace_bases(); });
  if (rng_.chance(faults_.stop))
    after(rng_.time(1s, faults_end_ - Time{}), [this] {
      checkers_->excused_codes.insert(130);
      feed(StopAsked{"stop", 130});
    });
  while (!queue_.empty() && !checkers_->failure()) {
    const Item item = queue_.top();
    queue_.pop();
    now_ = item.at;
    try {
      item.act();
    } catch (const std::exception& e) {
      checkers_->fail(fmt::format("an exception: {}", e.what()));
    }
    if (over_ && now_ > over_at_ + kOrphanTimeout + 10s) break;
    if (now_ > faults_end_ + kLiveWithin) {
      if (!over_) checkers_->fail("the job has not ended long after the last fault");
      break;
    }
  }
  if (!over_) checkers_->fail("nothing happens any more and the job has not ended");
  if (over_ && !checkers_->failure()) check_end();
  Outcome out;
  out.failure = checkers_->failure();
  out.hash = hash_;
  if (over_) out.exit_code = exit_code_;
  out.took = now_ - Time{};
  out.crashes = crashes_;
  out.commits = commits_;
  out.log_lines = static_cast<std::uint32_t>(lines_.size());
  out.rollbacks = rollbacks_;
  out.checkpoints = static_cast<std::uint32_t>(sealed_.size());
  out.cuts = cut_count_;
  return out;
}

void Cluster::at(Time when, std::function<void()> act) {
  queue_.push({std::max(when, now_), order_++, std::move(act)});
}

void Cluster::after(Duration d, std::function<void()> act) { at(now_ + d, std::move(act)); }

void Cluster::plan() {
  const auto sometimes = [this](double chance, double p) { return rng_.chance(chance) ? p : 0; };
  faults_.cut = sometimes(0.5, 3);
  faults_.isolate = sometimes(0.3, 1);
  faults_.freeze = sometimes(0.4, 2);
  faults_.kill_worker = sometimes(0.6, 3);
  faults_.kill_agent = sometimes(0.3, 1);
  faults_.kill_host = sometimes(0.2, 1);
  faults_.kill_server = sometimes(0.35, 3);
  faults_.server_fails = sometimes(0.1, 0.3);
  faults_.hang_worker = sometimes(0.15, 1);
  faults_.hang_in_epoch = sometimes(0.15, 1);
  faults_.hang_server = sometimes(0.2, 2);
  faults_.refuse = sometimes(0.4, 2);
  faults_.edit = sometimes(0.85, 4);
  faults_.stop = sometimes(0.1, 0.3);
  faults_.crash_per_effect = sometimes(0.5, rng_.chance(0.5) ? 0.01 : 0.05);
  faults_.duplicate = sometimes(0.5, 0.1);
  faults_.newcomer_fails = sometimes(0.4, 0.4);
  faults_.newcomer_hangs = sometimes(0.3, 0.2);
  faults_.prepare_fails = sometimes(0.4, 0.3);
  faults_.base_fails = sometimes(0.05, 0.1);
  faults_.exits_early = sometimes(0.15, 0.05);
  faults_.leave_ignored = sometimes(0.2, 0.3);
  faults_.late_ack = sometimes(0.3, 0.2);
  faults_.silent_server = sometimes(0.05, 0.2);
  faults_.save_fails = sometimes(0.2, 0.2);
  faults_.save_hangs = sometimes(0.05, 0.1);
  faults_.seal_fails = sometimes(0.2, 0.2);

  for (int i = 1; i <= 6; ++i) machine(Host{"", fmt::format("10.0.0.{}", i), 0});
  const std::size_t hosts = rng_.between(1, 3);
  const std::size_t workers = rng_.between(1, 4);
  for (std::size_t i = 0; i < workers; ++i) options_.workers.push_back(machines_[i % hosts].host);
  const std::size_t servers = rng_.between(0, 9) == 0 ? 0 : rng_.between(1, 2);
  const std::size_t first =
      rng_.chance(0.7) ? 0 : 5;  // on hosts of workers or on hosts of their own
  for (std::size_t i = 0; i < servers; ++i)
    options_.servers.push_back(machines_[(first + i) % machines_.size()].host);
  options_.needs_prepare = rng_.chance(0.3);
  options_.max_restarts = static_cast<std::uint32_t>(rng_.between(0, 5));
  options_.restart_refill = rng_.time(2s, 60s);
  if (rng_.chance(0.3))
    options_.max_futile_restarts = static_cast<std::uint32_t>(rng_.between(1, 4));
  options_.seed = rng_.next();
  options_.start_timeout = 20s;
  options_.leave_timeout = 5s;
  options_.stop_grace = 2s;
  options_.orphan_timeout = kOrphanTimeout;
  options_.boundary_timeout = 25s;
  options_.hang_timeout = 15s;
  options_.checkpoint_every = static_cast<std::uint32_t>(rng_.between(0, 3));
  if (rng_.chance(0.1)) options_.first_epoch = Epoch(1);
  options_.rolls_back = rng_.chance(0.9);
  opaque_ = rng_.chance(0.04);
  epochs_ = Epoch(static_cast<std::uint32_t>(rng_.between(3, 14)));
  first_epoch_ = rng_.chance(0.9) ? Epoch(0) : Epoch(2);
  faults_end_ = Time{} + rng_.time(5s, 40s);
  faults_.damage = damage_rng_.chance(0.25) ? 0.5 : 0;
  if (faults_.damage > 0) faults_.kill_server = 4;  // it is found when servers are lost
  options_.keep_checkpoints = static_cast<std::uint32_t>(damage_rng_.between(1, 4));
  if (damage_rng_.chance(faults_.damage)) damaged_.insert(std::nullopt);
  if (options_.checkpoint_every == 0) options_.checkpoint_interval = damage_rng_.time(1s, 6s);
}

void Cluster::plan_group() {
  restarts_ = restarts_ || (opaque_ && group_rng_.chance(0.6) && !kinds_.opaque_servers);
  if (!restarts_) return;
  opaque_ = true;
  options_.on_change = OnChange::kRestart;
  options_.change_settle = group_rng_.time(0s, 3s);
  options_.servers.clear();
  options_.checkpoint_every = 0;
  options_.checkpoint_interval = {};
  plan_limits(group_rng_, 0.3, 0.3);
  faults_.worker_fails = group_rng_.chance(0.7) ? 0.2 : 0;
  faults_.unkillable = group_rng_.chance(0.2) ? 0.05 : 0;
}

void Cluster::plan_limits(Random& rng, double least, double most) {
  const auto workers = options_.workers.size();
  if (rng.chance(least) || kinds_.limits)
    options_.limits.least = static_cast<std::uint32_t>(rng.between(1, workers));
  if (rng.chance(most) || kinds_.limits)
    options_.limits.most = static_cast<std::uint32_t>(workers + rng.between(0, 2));
  options_.min_workers_timeout = rng.time(20s, 100s);
}

void Cluster::plan_modes() {
  if (restarts_) {
    faults_.never_runs = mode_rng_.chance(0.2) ? 0.05 : 0;
    return;
  }
  plan_limits(mode_rng_, 0.15, 0.1);
  options_.is_adopted = mode_rng_.chance(0.05);
  options_.is_elastic = !mode_rng_.chance(0.05);
  if (mode_rng_.chance(0.05) || kinds_.opaque_servers) plan_opaque_servers();
}

void Cluster::plan_opaque_servers() {
  options_.opaque_servers = opaque_ = true;
  options_.is_elastic = false;
  options_.servers.push_back(options_.workers.front());
}

std::size_t Cluster::machine(const Host& host) {
  for (std::size_t i = 0; i < machines_.size(); ++i)
    if (machines_[i].host == host) return i;
  machines_.emplace_back();
  machines_.back().host = host;
  return machines_.size() - 1;
}

bool Cluster::is_heard(const Machine& m) const {
  constexpr Duration kDelayAtMost = 300ms;
  return m.up && m.control && m.link.up && m.link.last_to_supervisor <= now_ + kDelayAtMost;
}

std::set<ServerId> Cluster::hanging_servers() const {
  std::set<ServerId> out;
  for (const Process& p : processes_)
    if (p.id.role == Role::kServer && p.since == checkers_->servers_since() && p.running &&
        p.hung && p.listens && is_heard(machines_[p.host]))
      out.insert(ServerId(p.id.id));
  return out;
}

bool Cluster::servers_are_well() const {
  const auto n = std::count_if(processes_.begin(), processes_.end(), [this](const Process& p) {
    return p.id.role == Role::kServer && p.since == checkers_->servers_since() && p.running &&
           !p.hung && p.listens && is_heard(machines_[p.host]);
  });
  return static_cast<std::size_t>(n) == options_.servers.size();
}

bool Cluster::everyone_waits() const {
  if (job_ == std::nullopt || checkers_->contributors().empty() || !servers_are_well())
    return false;
  if (options_.limits.least > 0) return false;  // they may wait for more
  for (const WorkerId id : checkers_->contributors()) {
    const auto p = std::find_if(processes_.begin(), processes_.end(), [id](const Process& w) {
      return w.id == ProcessId{Role::kWorker, id.value} && w.running;
    });
    if (p == processes_.end() || !p->waits ||
        p->arrived->message.servers != checkers_->servers_since())
      return false;
    const Machine& m = machines_[p->host];
    const auto heard = heard_.find(id);
    if (!m.link.up || !m.control || heard == heard_.end() || heard->second.life != life_ ||
        heard->second.epoch != p->arrived->message.epoch ||
        heard->second.servers != p->arrived->message.servers)
      return false;
  }
  return true;
}

bool Cluster::servers_have_time() const {
  Time last{};
  bool one_runs = false;
  for (const Process& p : processes_) {
    if (p.id.role == Role::kWorker) last = std::max(last, p.ended);
    one_runs = one_runs || (p.id.role == Role::kServer && p.running);
  }
  return options_.opaque_servers && one_runs && now_ - last < options_.stop_grace;
}

bool Cluster::only_servers_are_left() const {
  if (!options_.opaque_servers || !healed_) return false;
  const bool all_are_heard = std::ranges::all_of(processes_, [this](const Process& p) {
    return is_heard(machines_[p.host]) && (p.exit || p.id.role == Role::kServer);
  });
  return all_are_heard && std::ranges::all_of(checkers_->contributors(), [this](WorkerId id) {
           return worker_of(id) != nullptr;
         });
}

bool Cluster::stands_still() const {
  bool is_crossed = false;
  for (const WorkerId id : checkers_->contributors()) {
    const Process* p = worker_of(id);
    if (!p || !p->running || p->since != checkers_->servers_since()) return false;
    if (!p->waits && !waits_in_round(*p)) return false;
    is_crossed = is_crossed || p->crossed;
  }
  return is_crossed;
}

bool Cluster::standstill_shows() const {
  if (!job_ || !servers_are_well() || !stands_still()) return false;
  for (const WorkerId id : checkers_->contributors()) {
    const Process& p = *worker_of(id);
    if (!is_heard(machines_[p.host]) || !machines_[p.host].data) return false;
    if (!p.waits) continue;
    const auto heard = heard_.find(id);
    const bool is_there = heard != heard_.end() && heard->second.life == life_ &&
                          heard->second.epoch == p.arrived->message.epoch;
    if (!is_there) return false;
  }
  return std::ranges::all_of(processes_, [this](const Process& s) {
    return s.id.role != Role::kServer || machines_[s.host].data;
  });
}

void Cluster::check_end() {
  for (const Process& p : processes_)
    if (p.running)
      checkers_->fail(fmt::format("{} on {} outlives the job", to_string(p.id),
                                  to_string(machines_[p.host].host)));
}

Instant Cluster::instant() const {
  return {room_.job_time(now_), true_wall() + wall_ahead_.count(), now_};
}

Instant Cluster::true_instant() const { return {room_.job_time(now_), true_wall(), now_}; }

std::int64_t Cluster::true_wall() const {
  return 1'700'000'000'000'000'000 + now_.time_since_epoch().count();
}

Outcome simulate(std::uint64_t seed, bool trace, bool cuts, Kinds kinds) {
  return Cluster(seed, trace, cuts, kinds).run();
}

}  // namespace dt::sim
