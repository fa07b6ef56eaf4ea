#include "core/job/stragglers.h"

#include "core/base/lookup.h"
#include "test/core/job/machines.h"

using namespace dt;
using namespace dt::test;

namespace {

/// Two members in epoch 0; a hang is 8 s.
struct Rounds : Machines {
  static JobOptions options() {
    JobOptions options = job_on({kHostA, kHostB});
    options.hang_timeout = 8s;
    return options;
  }
  Rounds() : Machines(options()) { run(); }
  /// A server's report: rounds wait for `owing`.
  void report(std::vector<WorkerId> owing, std::vector<WorkerId> waiting,
              std::vector<WorkerId> busy = {}) {
    stragglers.traffic_seen(
        {ServerId(0), {{}, {}, std::move(busy), std::move(owing), std::move(waiting), {}}});
  }
  /// Ticks each half second, in one step; its effects are kept.
  void pass(Duration from, Duration until) {
    std::vector<Effect> effects;
    for (Duration then = from; then <= until; then += 500ms) {
      at(then);
      stragglers.check_hangs();
      for (Effect& effect : job.take()) effects.push_back(std::move(effect));
    }
    for (Effect& effect : effects) job.add(std::move(effect));
  }
  Duration stalled(std::uint32_t id) { return value_in(stragglers.stalls(), WorkerId(id)).lasted; }
};

}  // namespace

TEST_CASE("stragglers: who keeps a round waiting is named at half of the time, then fenced",
          "[stragglers]") {
  Rounds m;
  m.report({WorkerId(0), WorkerId(1)}, {WorkerId(0)});
  m.pass(0s, 3500ms);
  CHECK(m.took<Note>().empty());
  m.pass(4s, 7500ms);
  CHECK(m.noted() == std::vector<std::string>{"worker_stalls"});
  m.pass(8s, 8s);
  const auto stopped = m.took<Stop>();
  REQUIRE(stopped.size() == 1);
  CHECK(stopped[0].process.id == 1);
  CHECK(m.state(1) == WorkerState::kGone);
  CHECK(m.state(0) == WorkerState::kMember);
}

TEST_CASE("stragglers: any sign of work begins the count again", "[stragglers]") {
  Rounds m;
  m.report({WorkerId(1)}, {});
  m.pass(0s, 7s);
  CHECK(m.stalled(1) == 7s);
  SECTION("a request") { m.report({WorkerId(1)}, {}, {WorkerId(1)}); }
  SECTION("a step") { m.stragglers.progress({WorkerId(1), {Epoch(0), 5}}); }
  SECTION("an epoch") { m.job.record(EpochBegan{Epoch(1)}); }
  m.pass(7500ms, 8s);
  CHECK(m.stalled(1) == 1s);
}

TEST_CASE("stragglers: a host that is not heard stalls nobody", "[stragglers]") {
  Rounds m;
  m.report({WorkerId(1)}, {});
  m.pass(0s, 2s);
  m.hosts.silent({kHostB, Time{} + 2s});
  m.pass(2500ms, 6s);
  m.hosts.heard({kHostB});
  m.pass(6500ms, 7s);
  CHECK(m.stalled(1) == 3s);
}

TEST_CASE("stragglers: the boundary stops who is late, not who waits for it in a round",
          "[stragglers]") {
  JobOptions options = job_on({kHostA, kHostB, kHostC});
  Machines m(options);
  m.run();
  m.stragglers.traffic_seen({ServerId(0), {{}, {}, {}, {WorkerId(2)}, {WorkerId(1)}, {}}});
  m.arrive(0, 1);
  const auto stops = [&m](Duration then) {
    m.at(then);
    m.stragglers.check_boundary_timeout();
    return m.took<Stop>();
  };
  CHECK(stops(0s).empty());
  CHECK(stops(m.job.options.boundary_timeout - 1s).empty());
  const auto late = stops(m.job.options.boundary_timeout);
  REQUIRE(late.size() == 1);
  CHECK(late[0].process.id == 2);
  CHECK(stops(m.job.options.boundary_timeout + 1s).empty());
  CHECK(stops(2 * m.job.options.boundary_timeout).size() == 1);  // it may have got lost
}
