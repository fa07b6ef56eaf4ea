#include "core/job/stragglers.h"

#include <set>

#include "core/base/lookup.h"
#include "test/core/job/machines.h"

using namespace dt;
using namespace dt::test;

namespace {

using Notes = std::vector<std::string>;

/// Two members in epoch 0; a hang is 8 s.
struct Rounds : Machines {
  static JobOptions options() {
    JobOptions options = job_on({kHostA, kHostB});
    options.hang_timeout = 8s;
    return options;
  }
  explicit Rounds(JobOptions with = options()) : Machines(std::move(with)) { run(); }
  /// A server's report: rounds wait for `owing`.
  void report(std::vector<WorkerId> owing, std::vector<WorkerId> waiting,
              std::vector<WorkerId> busy = {}) {
    stragglers.traffic_seen(
        {ServerId(0), {{}, {}, std::move(busy), std::move(owing), std::move(waiting), {}}});
  }
  /// A server's report: these workers are alive, and all but those in `idle` wait in a round.
  void all_wait(std::set<std::uint32_t> idle = {}) {
    Traffic seen;
    for (const std::uint32_t id : {0U, 1U}) {
      seen.alive.emplace_back(id);
      if (idle.count(id) == 0) seen.waiting.emplace_back(id);
    }
    stragglers.traffic_seen({ServerId(0), seen});
  }
  /// Ticks each half second, with that report before each.
  std::vector<std::string> pass_waiting(Duration from, Duration until,
                                        const std::set<std::uint32_t>& idle = {}) {
    std::vector<std::string> notes;
    for (Duration then = from; then <= until; then += 500ms) {
      at(then);
      all_wait(idle);
      stragglers.check_boundary_timeout();
      stragglers.check_hangs();
      for (auto& note : noted()) notes.push_back(std::move(note));
    }
    return notes;
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

TEST_CASE("stragglers: members that all wait are told at half of the time, then end the job",
          "[stragglers]") {
  Rounds m;
  CHECK(m.pass_waiting(0s, 3500ms).empty());
  CHECK(m.stragglers.standstill().lasted() == 3500ms);
  CHECK(m.pass_waiting(4s, 7500ms) == Notes{"standstill"});
  CHECK(m.code() == -1);
  m.pass_waiting(8s, 8s);
  CHECK(m.code() == 74);
}

TEST_CASE("stragglers: it is no standstill while one of them does something", "[stragglers]") {
  Rounds m;
  m.pass_waiting(0s, 7s);
  SECTION("it sleeps") { m.pass_waiting(7500ms, 7500ms, {0}); }
  SECTION("a request") { m.report({}, {}, {WorkerId(1)}); }
  SECTION("a step") { m.stragglers.progress({WorkerId(1), {Epoch(0), 5}}); }
  SECTION("a commit") { m.job.record(EpochBegan{Epoch(1)}); }
  m.pass_waiting(8s, 11s);
  CHECK(m.code() == -1);
  CHECK(m.stragglers.standstill().lasted() < 5s);
}

TEST_CASE("stragglers: what may be the reason interrupts a standstill", "[stragglers]") {
  Rounds m;
  m.pass_waiting(0s, 4s);
  Traffic away;
  away.disconnected = {WorkerId(1)};
  SECTION("a host that is not heard") { m.hosts.silent({kHostB, Time{} + 4s}); }
  SECTION("a worker without a connection") { m.stragglers.traffic_seen({ServerId(1), away}); }
  m.pass_waiting(4500ms, 20s);
  CHECK(m.stragglers.standstill().lasted() == 4s);
}

TEST_CASE("stragglers: one waits at the boundary, and --boundary-timeout stops nobody",
          "[stragglers]") {
  JobOptions options = Rounds::options();
  options.boundary_timeout = 2s;
  Rounds m(options);
  m.arrive(1, 1);
  CHECK(m.pass_waiting(0s, 7500ms) == Notes{"standstill"});
  CHECK(m.state(0) == WorkerState::kMember);
  m.pass_waiting(8s, 8s);
  CHECK(m.code() == 74);
}

TEST_CASE("stragglers: a standstill and a hang are lost time, from the last activity",
          "[stragglers]") {
  Rounds m;
  const auto lost = [&m](const char* cause) {
    m.lost_time.tick();
    return seconds(value_in(m.lost_time.so_far().by_cause(), cause));
  };
  SECTION("both members stand") {
    m.pass_waiting(0s, 2500ms);
    CHECK(lost("standstill") == 0);
    m.pass_waiting(3s, 5s);
    CHECK(lost("standstill") == 10);
  }
  SECTION("one waits for one that does nothing") {
    m.at(1s);
    m.report({}, {}, {WorkerId(0), WorkerId(1)});
    m.at(2s);
    m.report({WorkerId(1)}, {WorkerId(0)});
    m.pass(2s, 4s);
    CHECK(lost("hang") == 0);
    m.pass(4500ms, 7s);
    CHECK(lost("hang") == 6);
    m.pass(7500ms, 10s);  // it is stopped: from then on it is a death
    CHECK(lost("hang") == 9);
    CHECK(lost("death") == 0);
  }
}
