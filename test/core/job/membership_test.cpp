#include "core/job/membership.h"

#include <rapidcheck.h>

#include <algorithm>
#include <random>

#include "test/core/job/ids.h"
#include "test/support/catch.h"

using namespace dt;
using dt::test::ids;
using namespace std::chrono_literals;

namespace {

Host host(const std::string& name) { return {"", name, 0}; }
const Host kA = host("a"), kB = host("b"), kC = host("c"), kD = host("d");
Time at(int seconds) { return Time{} + std::chrono::seconds(seconds); }

/// A job that trains: base workers are members.
struct MembersOfJob {
  explicit MembersOfJob(const std::vector<Host>& base, WorkerLimits limits = {}) : m(limits) {
    m.begin(base, at(0));
    for (const auto& [id, w] : m.workers()) members.push_back(id);
    for (const WorkerId id : members) m.advance(id, WorkerEvent::kCommitted, at(0));
  }
  void file(const std::vector<HostSlots>& hosts, int now = 0) {
    m.take_file(m.last_edit().next(), hosts, at(now));
    for (const Host& h : m.hosts())
      while (m.present(h) < m.wanted(h)) m.add_worker(m.next_id(), h, m.added_by(h), at(now));
  }
  void happens(std::uint32_t id, WorkerEvent event) {
    REQUIRE(m.advance(WorkerId(id), event, at(0)));
  }
  /// As a boundary does it.
  Plan cross(int now) {
    const Plan plan = m.plan(members, at(now));
    for (const WorkerId id : plan.joins) {
      m.advance(id, WorkerEvent::kCommitted, at(now));
      members.push_back(id);
    }
    for (const WorkerId id : plan.leaves) {
      m.advance(id, WorkerEvent::kEnded, at(now));
      std::erase(members, id);
    }
    m.view_began(members, plan.leaves, at(now));
    return plan;
  }
  [[nodiscard]] std::vector<WorkerId> unwanted() const {
    std::vector<WorkerId> out;
    for (const Host& h : m.hosts())
      for (const WorkerId id : m.unwanted_newcomers(h)) out.push_back(id);
    return out;
  }
  Membership m;
  std::vector<WorkerId> members;
};

}  // namespace

TEST_CASE("membership: a host that went away has departed until its places are filled",
          "[membership]") {
  MembersOfJob job({kA});
  job.file({{kA, 1}, {kB, 2}});
  job.m.empty_place(kB);
  CHECK_FALSE(job.m.has_departed(kB));  // its worker left by itself
  job.m.set_leaving(kB, true);
  SECTION("its line went first") {
    job.file({{kA, 1}});
    job.m.departed(kB);
    CHECK_FALSE(job.m.has_departed(kB));
    return;
  }
  job.m.departed(kB);
  CHECK(job.m.has_departed(kB));
  SECTION("one by one") {
    job.m.fill_places(kB, 1);
    CHECK(job.m.has_departed(kB));
    job.m.fill_places(kB, 1);
  }
  SECTION("by its line") {
    job.file({{kA, 1}});
    job.file({{kA, 1}, {kB, 1}});
  }
  CHECK_FALSE(job.m.has_departed(kB));
}

TEST_CASE("membership: the file counts, but never below the base workers", "[membership]") {
  MembersOfJob job({kA, kA, kB});
  CHECK(job.m.wanted(kA) == 2);
  job.m.take_file(Edit(1), {{kA, 1}, {kC, 3}}, at(0));
  CHECK(job.m.wanted(kA) == 2);
  CHECK(job.m.wanted(kB) == 1);
  CHECK(job.m.wanted(kC) == 3);
  CHECK(job.m.added_by(kC) == Edit(1));
  CHECK(job.m.refused_removals({{kA, 1}, {kC, 3}}) == std::vector<Host>{kA, kB});
  CHECK(job.m.refused_removals({{kB, 1}, {kA, 2}}).empty());
}

TEST_CASE("membership: base places go to another host at one boundary, once all are ready",
          "[membership]") {
  MembersOfJob job({kA, kB, kB}, {1, 3});
  job.m.replace_base(kB, kC, false, at(0));
  job.file({{kA, 1}, {kC, 2}});
  CHECK(job.m.wanted(kC) == 2);  // --max-workers is no obstacle
  CHECK(job.m.refused_removals({{kA, 1}}).empty());
  job.happens(3, WorkerEvent::kJoined);
  Plan plan = job.cross(1);
  CHECK(plan.joins.empty());
  CHECK(plan.leaves.empty());
  CHECK(job.m.base_hosts() == std::vector<Host>{kA, kB});

  job.happens(4, WorkerEvent::kJoined);
  CHECK(job.m.plan(job.members, at(70), {kC}).leaves.empty());
  plan = job.cross(70);
  CHECK(plan.joins == ids({3, 4}));
  CHECK(plan.leaves == ids({1, 2}));
  CHECK(job.m.base_hosts() == std::vector<Host>{kA, kC});
  CHECK(job.m.wanted(kB) == 0);
  CHECK(job.m.refused_removals({{kA, 1}}) == std::vector<Host>{kC});
}

TEST_CASE("membership: the heir of a host without members waits for nobody", "[membership]") {
  MembersOfJob job({kA, kB, kB});
  job.m.replace_base(kB, kC, false, at(0));
  job.file({{kA, 1}, {kB, 2}, {kC, 2}});
  for (const std::uint32_t id : {1U, 2U}) job.happens(id, WorkerEvent::kEnded);
  std::erase_if(job.members, [](WorkerId id) { return id.value > 0; });
  job.happens(3, WorkerEvent::kJoined);
  CHECK(job.cross(1).joins == ids({3}));
  CHECK(job.m.base_count(kC) == 0);
  job.happens(4, WorkerEvent::kJoined);
  job.m.add_worker(WorkerId(5), kB, Edit{}, at(1));  // started again, and too late
  job.happens(5, WorkerEvent::kJoined);
  CHECK(job.cross(2).joins == ids({4}));
  CHECK(job.m.base_count(kC) == 2);
  CHECK(job.m.wanted(kB) == 0);  // its lines of before do not count
  job.file({{kA, 1}, {kB, 1}, {kC, 2}});
  CHECK(job.m.wanted(kB) == 1);
}

TEST_CASE("membership: a change that is taken back leaves nothing to do", "[membership]") {
  MembersOfJob job({kA});
  job.file({{kA, 1}, {kB, 1}});
  job.file({{kA, 1}});
  CHECK(job.unwanted() == ids({1}));
  job.happens(1, WorkerEvent::kJoined);
  const Plan plan = job.m.plan(job.members, at(1));
  CHECK(plan.joins.empty());
  CHECK(plan.leaves.empty());
}

TEST_CASE("membership: the furthest from ready goes first, then the highest rank", "[membership]") {
  MembersOfJob job({kA});
  job.file({{kA, 1}, {kB, 4}});
  job.happens(3, WorkerEvent::kJoined);
  job.cross(1);
  job.happens(1, WorkerEvent::kJoined);
  job.cross(2);  // ranks: 0, 3, 1
  job.happens(4, WorkerEvent::kJoined);
  CHECK(job.members == ids({0, 3, 1}));
  job.file({{kA, 1}, {kB, 3}});
  CHECK(job.unwanted() == ids({2}));
  job.happens(2, WorkerEvent::kEnded);
  job.file({{kA, 1}, {kB, 1}}, 100);
  CHECK(job.unwanted() == ids({4}));
  job.happens(4, WorkerEvent::kEnded);
  CHECK(job.m.plan(job.members, at(101)).leaves == ids({1}));
}

TEST_CASE("membership: a swap commits as one", "[membership]") {
  MembersOfJob job({kA});
  job.file({{kA, 1}, {kB, 1}});
  job.happens(1, WorkerEvent::kJoined);
  job.cross(1);
  job.file({{kA, 1}, {kC, 1}, {kD, 1}}, 10);
  SECTION("not before each newcomer is ready") {
    job.happens(2, WorkerEvent::kJoined);
    const Plan plan = job.m.plan(job.members, at(11));
    CHECK(plan.joins.empty());
    CHECK(plan.leaves.empty());
    CHECK(plan.reason == "an edit that swaps hosts waits for its newcomers");
    job.happens(3, WorkerEvent::kJoined);
    const Plan whole = job.cross(12);
    CHECK(whole.joins == ids({2, 3}));
    CHECK(whole.leaves == ids({1}));
  }
  SECTION("a newcomer that could not be told is not ready") {
    job.happens(2, WorkerEvent::kJoined);
    job.happens(3, WorkerEvent::kJoined);
    CHECK(job.m.plan(job.members, at(11), {kD}).joins.empty());
    CHECK(job.m.plan(job.members, at(11), {kD}).leaves.empty());
  }
  SECTION("a newcomer that failed is not waited for") {
    job.happens(2, WorkerEvent::kJoined);
    job.happens(3, WorkerEvent::kEnded);
    job.m.add_worker(WorkerId(4), kD, Edit(2), at(12));
    CHECK(job.m.plan(job.members, at(12)).joins == ids({2}));
    CHECK(job.m.plan(job.members, at(12)).leaves == ids({1}));
  }
  SECTION("nobody is waited for longer than a minute") {
    CHECK(job.m.plan(job.members, at(69)).leaves.empty());
    CHECK(job.m.plan(job.members, at(70)).leaves == ids({1}));
  }
  SECTION("when nobody trains there is nothing to hold a newcomer for") {
    job.happens(0, WorkerEvent::kEnded);
    job.happens(1, WorkerEvent::kEnded);
    job.happens(2, WorkerEvent::kJoined);
    CHECK(job.m.plan({}, at(11)).joins == ids({2}));
  }
}

TEST_CASE("membership: the last member stays until somebody can take over", "[membership]") {
  MembersOfJob job({kA});
  job.file({{kA, 1}, {kB, 1}});
  job.happens(1, WorkerEvent::kJoined);
  job.cross(1);
  job.happens(0, WorkerEvent::kEnded);
  job.members = ids({1});
  job.file({{kA, 1}}, 2);
  const Plan plan = job.m.plan(job.members, at(100));
  CHECK(plan.leaves.empty());
  CHECK(plan.reason == "the last member stays until another worker is ready");
  job.happens(2, WorkerEvent::kJoined);
  CHECK(job.m.plan(job.members, at(101)).leaves == ids({1}));
  CHECK(job.m.plan(job.members, at(101)).joins == ids({2}));
}

TEST_CASE("membership: nobody leaves whom the least number needs", "[membership]") {
  MembersOfJob job({kA, kB}, {2, 0});
  job.file({{kA, 1}, {kB, 1}, {kC, 2}});
  job.happens(2, WorkerEvent::kJoined);
  job.happens(3, WorkerEvent::kJoined);
  CHECK(job.cross(1).joins == ids({2, 3}));
  // b's member dies; c's two are to go, and one of them has to stay until b's is replaced.
  job.happens(1, WorkerEvent::kEnded);
  std::erase(job.members, WorkerId(1));
  job.file({{kA, 1}, {kB, 1}});
  const Plan plan = job.cross(2);
  CHECK(plan.leaves == ids({3}));
  CHECK(plan.reason ==
        "of those that are to leave as many stay as are needed to be 2 (--min-workers)");
  job.happens(4, WorkerEvent::kJoined);
  const Plan last = job.cross(3);
  CHECK(last.joins == ids({4}));
  CHECK(last.leaves == ids({2}));
}

TEST_CASE("membership: beyond the limit the file's first hosts come first", "[membership]") {
  Membership m({0, 4});
  m.begin({kA, kA, kB}, at(0));
  m.take_file(Edit(1), {{kC, 2}, {kA, 3}, {kB, 1}, {kD, 1}}, at(0));
  CHECK(m.wanted(kA) == 2);
  CHECK(m.wanted(kB) == 1);
  CHECK(m.wanted(kC) == 1);
  CHECK(m.wanted(kD) == 0);
  CHECK(m.added_by(kD) == Edit());
  CHECK(m.beyond_limit() == std::vector<HostSlots>{{kC, 1}, {kA, 1}, {kD, 1}});
  // One goes, the next one takes its place: one edit, which commits as one.
  m.take_file(Edit(2), {{kA, 2}, {kB, 1}, {kD, 1}}, at(0));
  CHECK(m.wanted(kC) == 0);
  CHECK(m.wanted(kD) == 1);
  CHECK(m.added_by(kD) == Edit(2));
  CHECK(m.beyond_limit().empty());
}

TEST_CASE("membership: whatever the edits, old - removed + added = wanted and base workers stay",
          "[membership][property]") {
  CHECK(rc::check("members follow the file", [] {
    const std::vector<Host> all{kA, kB, kC, kD};
    const auto base = *rc::gen::resize(4, rc::gen::nonEmpty(rc::gen::container<std::vector<Host>>(
                                              rc::gen::elementOf(std::vector<Host>{kA, kB}))));
    MembersOfJob job(base);
    const auto edits =
        *rc::gen::resize(6, rc::gen::arbitrary<std::vector<std::array<std::uint8_t, 4>>>());
    int now = 0;
    for (const auto& edit : edits) {
      std::vector<HostSlots> file;
      for (std::size_t i = 0; i < all.size(); ++i)
        if (edit[i] % 4 > 0) file.push_back({all[i], edit[i] % 4U});
      if (file.empty()) continue;
      job.file(file, now);
      for (const WorkerId id : job.unwanted()) job.m.advance(id, WorkerEvent::kEnded, at(now));
      const std::vector<WorkerId> before = job.members;
      std::vector<WorkerId> ready;
      for (const auto& [id, w] : job.m.workers())
        if (on_the_way(w.state)) ready.push_back(id);
      for (const WorkerId id : ready) job.m.advance(id, WorkerEvent::kJoined, at(now));
      const Plan plan = job.cross(now += 5);
      // Order is kept, newcomers are last.
      std::vector<WorkerId> expected = before;
      for (const WorkerId id : plan.leaves) std::erase(expected, id);
      expected.insert(expected.end(), plan.joins.begin(), plan.joins.end());
      RC_ASSERT(job.members == expected);
      for (std::uint32_t id = 0; id < base.size(); ++id)
        RC_ASSERT(std::count(job.members.begin(), job.members.end(), WorkerId(id)) == 1);
      for (const Host& h : all) RC_ASSERT(job.m.present(h) == job.m.wanted(h));
      // Nothing is left to do.
      RC_ASSERT(job.m.plan(job.members, at(now)).joins.empty());
      RC_ASSERT(job.m.plan(job.members, at(now)).leaves.empty());
    }
  }));
}

namespace {

/// What happens to the workers of two hosts, from a seed: they are added, die, alone or with
/// their host, and are forgotten.
class SlotTrial {
 public:
  explicit SlotTrial(std::uint32_t seed) : random_(seed) {
    m_.begin(std::vector<Host>(draw(4), kA), at(0));
    for (const auto& [id, w] : m_.workers()) note(w);
  }

  void run() {
    for (std::uint32_t i = draw(9); i-- > 0;) happens();
    // What the journal gives again: each worker that was added, and each that is gone, in order.
    Membership again;
    for (const auto& [id, host, is_gone] : journal_) {
      if (is_gone)
        again.advance(id, WorkerEvent::kEnded, at(0));
      else
        again.add_worker(id, host, Edit{}, at(0));
    }
    for (const auto& [id, w] : m_.workers())
      if (w.state != WorkerState::kGone) is_right_ &= again.find(id)->slot == w.slot;
  }
  [[nodiscard]] bool is_right() const { return is_right_; }
  [[nodiscard]] bool index_holds() const { return m_.index_holds(); }

 private:
  std::uint32_t draw(std::uint32_t below) { return static_cast<std::uint32_t>(random_()) % below; }
  void happens() {
    const Host host = draw(2) == 0 ? kA : kB;
    const std::set<WorkerId> there = m_.workers_on(host);
    switch (draw(5)) {
      case 0:  // the host is lost
        for (const WorkerId id : there) dies(id);
        break;
      case 1:
        m_.forget_gone({}, at(0));
        break;
      case 2:
        if (!there.empty())
          dies(*std::next(there.begin(), draw(static_cast<std::uint32_t>(there.size()))));
        break;
      default:
        note(m_.add_worker(m_.next_id(), host, Edit{}, at(0)));
    }
  }
  void dies(WorkerId id) {
    const Worker& w = *m_.find(id);
    is_right_ &= w.slot == slots_.at(id);  // its own for life
    if (w.state != WorkerState::kGone) --living_[w.host];
    m_.advance(id, WorkerEvent::kEnded, at(0));
    journal_.push_back({id, w.host, true});
  }
  void note(const Worker& added) {
    most_[added.host] = std::max(most_[added.host], ++living_[added.host]);
    is_right_ &= added.slot < most_[added.host];
    for (const WorkerId id : m_.workers_on(added.host)) {
      const Worker& other = *m_.find(id);
      is_right_ &= id == added.id || other.state == WorkerState::kGone || other.slot != added.slot;
    }
    slots_[added.id] = added.slot;
    journal_.push_back({added.id, added.host, false});
  }

  struct Step {
    WorkerId id;
    Host host;
    bool is_gone = false;
  };
  std::minstd_rand random_;
  Membership m_;
  bool is_right_ = true;
  std::map<WorkerId, std::uint32_t> slots_;
  std::map<Host, std::uint32_t> living_;
  std::map<Host, std::uint32_t> most_;
  std::vector<Step> journal_;
};

}  // namespace

TEST_CASE("membership: no two living workers of a host share a slot, and each keeps its own",
          "[membership][property]") {
#ifdef DT_ALL_SEEDS
  constexpr std::uint32_t kTrials = 100'000;
#else
  constexpr std::uint32_t kTrials = 20'000;
#endif
  for (std::uint32_t seed = 1; seed <= kTrials; ++seed) {
    SlotTrial trial(seed);
    trial.run();
    if (trial.is_right() && (seed % 100 != 0 || trial.index_holds())) continue;
    INFO("seed " << seed);
    REQUIRE(trial.is_right());
    REQUIRE(trial.index_holds());
  }
}
