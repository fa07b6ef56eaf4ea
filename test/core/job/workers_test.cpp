#include "core/job/workers.h"

#include "test/core/job/machines.h"

using namespace dt;
using namespace dt::test;

TEST_CASE("workers: a file that asks for the same is no edit", "[workers]") {
  Machines m;
  const HostsAccepted file{{{kHostA, 1}, {kHostB, 1}, {kHostC, 1}}};
  m.at(1s);
  m.workers.file_accepted(file);
  CHECK(m.took<Append>().size() == 1);
  m.workers.file_accepted(file);
  CHECK(m.took<Append>().empty());
  CHECK(m.workers.membership().wanted(kHostC) == 1);
}

TEST_CASE("workers: a base worker arrives with its first boundary, a newcomer only gets warm",
          "[workers]") {
  Machines m;
  m.join(0);
  CHECK(m.job.boundary.arrivals().size() == 1);
  m.job.record(WorkerAllotted{WorkerId(2), kHostC, Edit(1)});
  m.join(2);
  CHECK(m.state(2) == WorkerState::kWarm);
  CHECK(m.job.boundary.arrivals().size() == 1);
}

TEST_CASE("workers: an arrival with lost servers does not count", "[workers]") {
  Machines m;
  m.run();
  CHECK_FALSE(m.workers.arrived({WorkerId(0), {Epoch(1), false, Generation(7)}}));
  CHECK(m.job.boundary.arrivals().empty());
  CHECK(m.arrive(0, 1));
  CHECK(m.job.boundary.arrivals().size() == 1);
}

TEST_CASE("workers: a member's death is made good on its host, and only a failure is one",
          "[workers]") {
  Machines m;
  m.run();
  m.at(1s);
  m.workers.ended(m.worker_ends(0));
  CHECK(m.noted() == std::vector<std::string>{"worker_died"});
  CHECK(m.hosts.is_cooling(kHostA));
  CHECK(m.workers.failure().code == 137);
  CHECK(m.hosts.worker_restarts() == 1);
  CHECK_FALSE(m.job.finishing());
  m.workers.ended(m.worker_ends(1, {0, 0}));
  CHECK_FALSE(m.hosts.is_cooling(kHostB));
  CHECK(m.hosts.worker_restarts() == 1);
  CHECK(m.job.finishing());
}

TEST_CASE("workers: who ends with 0 has left once another one arrives", "[workers]") {
  Machines m;
  m.run();
  m.workers.ended(m.worker_ends(1, {0, 0}));
  m.workers.decide_exits();
  CHECK(m.job.finishing());
  m.arrive(0, 1);
  m.workers.decide_exits();
  CHECK_FALSE(m.job.finishing());
  CHECK(m.workers.membership().wanted(kHostB) == 0);  // its place stays empty
  CHECK(m.job.log_lines == 1);
}

TEST_CASE("workers: one that the job knows no more is stopped, and forgotten when it ends",
          "[workers]") {
  Machines m;
  m.run();
  m.workers.fence(WorkerId(1), "hung");
  m.at(1s);
  m.workers.attached(kHostB, {{{Role::kWorker, 1}, 7, {}, {}}});
  CHECK(m.took<Stop>().size() == 1);
  m.workers.attached(kHostB, {{{Role::kWorker, 9}, 7, {}, {}}});  // never an id of this job
  CHECK(m.took<Stop>().empty());
  m.workers.ended(m.worker_ends(1));
  CHECK(m.took<Acknowledge>().size() == 1);
}

TEST_CASE("workers: a newcomer that is late is stopped, a leaver that stays as well, once",
          "[workers]") {
  Machines m;
  m.run();
  m.job.record(WorkerAllotted{WorkerId(2), kHostC, Edit{}});
  m.workers.file_accepted({{{kHostA, 1}, {kHostB, 1}, {kHostC, 1}}});
  m.workers.advance(WorkerId(2), WorkerEvent::kHostChosen);
  m.workers.advance(WorkerId(2), WorkerEvent::kStartSent);
  m.workers.advance(WorkerId(1), WorkerEvent::kRemoved);
  const auto stops = [&m](Duration then) {
    m.at(then);
    m.workers.check_timeouts();
    return m.took<Stop>().size();
  };
  CHECK(stops(m.job.options.leave_timeout - 1s) == 0);
  CHECK(stops(m.job.options.leave_timeout) == 1);
  CHECK(stops(m.job.options.leave_timeout + 1s) == 0);
  CHECK(stops(m.job.options.start_timeout) == 1);
  CHECK(m.hosts.is_cooling(kHostC));
  CHECK(m.state(2) == WorkerState::kStopping);
}
