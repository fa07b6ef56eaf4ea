#include <algorithm>

#include "core/files/journal.h"
#include "core/job/take_over.h"
#include "test/sim/cluster.h"

namespace dt::sim {

using namespace std::chrono_literals;

namespace {

// supervisor/files/job_files.h and host_links.cpp have these.
constexpr Duration kLockLook = 2s;
constexpr Duration kDoubtAfter = 3 * kLockLook;
constexpr Duration kGivenToNotice = kDoubtAfter + kLockLook;
constexpr Duration kSlack = 10s;
constexpr Duration kTryAgain = 1s;

}  // namespace

void Cluster::plan_take_over() {
  if (!second_rng_.chance(0.15) && !kinds_.two_masters) return;
  after(second_rng_.time(1s, faults_end_ - Time{}), [this] {
    if (over_ || healed_) return;
    trace(50, 0, "!! the volume does not answer the supervisor");
    second_.is_cut_off = true;
    excuse();
    after(second_rng_.time(1s, 60s), [this] { second_.is_cut_off = false; });
  });
  if (!second_rng_.chance(0.7) && !kinds_.two_masters) return;
  after(second_rng_.time(1s, faults_end_ - Time{}), [this] {
    const bool is_dead = second_rng_.chance(0.3);
    if (over_ || healed_ || (!is_dead && !alive_)) return;
    trace(51, 0, "!! another master takes the folder over");
    second_.has_lock = true;
    excuse();
    if (is_dead && alive_) crash();
    after(kGivenToNotice, [this] { end_old_job(); });
  });
}

void Cluster::look_at_lock(std::uint64_t life) {
  if (!alive_ || life != life_ || over_) return;
  if (!second_.is_cut_off) {
    if (second_.has_lock) return stand_down("the lock is another's");
    second_.seen = now_;
  }
  const bool is_doubtful = now_ - second_.seen > kDoubtAfter;
  if (is_doubtful != std::exchange(second_.is_doubtful, is_doubtful)) {
    for (const Machine& m : machines_) {
      checkers_->on_trouble(m.host);
      checkers_->on_doubt(m.host);
    }
    feed(LockDoubtful{is_doubtful});
  }
  after(second_.is_cut_off ? 100ms : kLockLook, [this, life] { look_at_lock(life); });
}

void Cluster::stand_down(const char* why) {
  trace(52, 0, "the old supervisor ends: {}", why);
  alive_ = false;
  job_.reset();
  for (std::size_t i = 0; i < machines_.size(); ++i) {
    const Machine& m = machines_[i];
    const bool is_linked = m.link.id != 0 && m.link.id == m.agent.link;
    if (is_linked && m.control && m.up) agent_ends(i, "its supervisor ends");
    machines_[i].link = Link{};
  }
  end_if_taken_over();
}

void Cluster::end_old_job() {
  std::vector<Host> named = options_.workers;
  named.insert(named.end(), options_.servers.begin(), options_.servers.end());
  for (const std::string& text : {file_.value_or(""), format_host_worker(accepted_)})
    if (const auto lines = parse_hosts(text, "host_worker"))
      for (const HostLine& line : *lines) named.push_back(line.host);
  // Without the copy nobody knows of a host whose lines are gone and whose workers are not.
  const bool all_named = std::ranges::all_of(processes_, [&](const Process& p) {
    return !p.running || std::ranges::count(named, machines_[p.host].host) > 0;
  });
  if (!all_named) second_.copy = journal_;
  if (second_rng_.chance(0.2) && all_named) second_.copy.clear();
  std::vector<Record> known;
  for (const auto& frame : journal::replay(second_.copy).records)
    known.push_back(record_from(frame).value());
  second_.job.emplace(options_, records_to_end(known, named), instant());
  second_.term = Term(term_.value + 1'000'000);
  for (const Effect& effect : second_.job->begin(second_.term, instant()))
    if (const auto* attach = std::get_if<Attach>(&effect)) {
      if (attach->start) checkers_->fail("a job that is taken over starts something");
      second_.awaited.insert(machine(attach->host));
    }
  trace(57, second_.awaited.size(), "the other master knows {} hosts, of {} records",
        second_.awaited.size(), known.size());
  second_.until = now_ + kOrphanTimeout + kSlack;
  for (const std::size_t i : second_.awaited) end_on(i);
  if (second_.awaited.empty()) begin_next_job();
  at(second_.until, [this] { begin_next_job(); });
}

void Cluster::end_on(std::size_t i) {
  if (second_.is_next_there) return;
  after(second_rng_.time(10ms, kTryAgain), [this, i] {
    Machine& m = machines_[i];
    if (!m.up || !m.control) return end_on(i);
    m.taken_over_by = second_.term;
    if (!m.agent.alive) {
      second_.awaited.erase(i);
      if (second_.awaited.empty()) begin_next_job();
      return;
    }
    if (m.agent.term != second_.term) {
      m.agent.term = second_.term;
      m.agent.link = ++links_;  // the old one breaks
      const auto incarnation = m.agent.incarnation;
      const auto old = m.link.id;
      after(second_rng_.time(0s, 500ms), [this, i, old] { break_link(i, old); });
      after(second_rng_.time(0s, options_.stop_grace), [this, i, incarnation] {
        if (machines_[i].agent.incarnation == incarnation) agent_ends(i, "taken over");
      });
    }
    end_on(i);
  });
}

void Cluster::begin_next_job() {
  if (std::exchange(second_.is_next_there, true)) return;
  trace(53, 0, "the next job begins");
  check_end();
  end_if_taken_over();
}

void Cluster::end_if_taken_over() {
  if (over_ || alive_ || !second_.is_next_there) return;
  over_ = true;
  over_at_ = now_;
}

}  // namespace dt::sim
