#include "core/job/views.h"

#include "test/core/job/ids.h"
#include "test/core/job/machines.h"

using namespace dt;
using namespace dt::test;

namespace {

/// Two members in epoch 0, at least two wanted, and two servers.
struct Least2 : Machines {
  static JobOptions options() {
    JobOptions options = job_on({kHostA, kHostB}, {kHostA, kHostB});
    options.limits.least = 2;
    return options;
  }
  Least2() : Machines(options()) { run(); }
};

}  // namespace

TEST_CASE("views: a death makes the contributors fewer, and ranks stay until the boundary",
          "[views]") {
  Machines m(job_on({kHostA, kHostB, kHostC}));
  m.run();
  m.workers.ended(m.worker_ends(1));
  m.at(1s);
  m.views.shrink();
  const auto informed = m.took<SendToWorker<Shrunk>>();
  CHECK(informed.size() == 2);
  CHECK(m.job.boundary.contributors() == ids({0, 2}));
  CHECK(m.job.boundary.rank_of(WorkerId(2)) == Rank(2));
  m.arrive(0, 1);
  m.arrive(2, 1);
  m.views.cross_boundary();
  CHECK(m.job.boundary.members() == ids({0, 2}));
  CHECK(m.job.boundary.rank_of(WorkerId(2)) == Rank(1));
}

TEST_CASE("views: a boundary waits for --min-workers, and not for ever", "[views]") {
  Least2 m;
  m.workers.ended(m.worker_ends(1));
  m.views.shrink();
  m.arrive(0, 1);
  m.at(1s);
  m.views.cross_boundary();
  m.views.cross_boundary();
  CHECK(m.noted() == std::vector<std::string>{"below_min_workers"});
  CHECK(m.job.boundary.epoch() == Epoch(0));
  m.at(m.job.options.min_workers_timeout);
  m.views.check_least();
  CHECK(m.code() == -1);
  m.at(1s + m.job.options.min_workers_timeout);
  m.views.check_least();
  CHECK(m.code() == 71);
}

TEST_CASE("views: workers are released when all servers know the commit, where a link is up",
          "[views]") {
  Least2 m;
  m.job.record(WorkerAllotted{WorkerId(2), kHostC, Edit{}});
  m.workers.file_accepted({{{kHostA, 1}, {kHostB, 1}, {kHostC, 1}}});
  m.attach(kHostC);
  m.join(2);
  m.arrive(0, 1);
  m.arrive(1, 1);
  m.hosts.detached({kHostB, "reset"});
  const auto released = [&m] {
    m.at(1s);
    m.views.release();
    return m.took<SendToWorker<Release>>();
  };
  m.views.cross_boundary();
  CHECK(m.job.boundary.members() == ids({0, 1, 2}));
  m.servers.acked({ServerId(0), {m.job.boundary.generation()}});
  CHECK(released().empty());
  m.ack();
  const auto first = released();
  REQUIRE(first.size() == 2);
  CHECK(first[0].worker == WorkerId(0));
  CHECK(first[1].worker == WorkerId(2));
  CHECK(first[1].message.newcomer);
  CHECK(first[1].message.rank == Rank(2));
  CHECK(first[1].message.world_size == 3);
  m.attach(kHostB);
  CHECK(released().size() == 1);
}

TEST_CASE("views: a boundary without a change is no commit", "[views]") {
  Least2 m;
  const Generation before = m.job.boundary.generation();
  m.arrive(0, 1);
  m.views.cross_boundary();
  CHECK(m.views.pending_reason() == "worker 1 has not come to it");
  m.arrive(1, 1);
  m.at(1s);
  m.views.cross_boundary();
  CHECK(m.views.pending_reason().empty());
  CHECK(m.job.boundary.epoch() == Epoch(1));
  CHECK(m.job.boundary.generation() == before);
  CHECK(m.took<SendCommit>().empty());
}

TEST_CASE("views: base workers that begin with other epochs end the job", "[views]") {
  Machines m;
  m.join(0, 3);
  m.join(1, 4);
  m.views.cross_boundary();
  CHECK(m.code() == 1);
}

TEST_CASE("views: after the last death the epoch begins again with the first that is ready",
          "[views]") {
  Machines m;
  m.run();
  m.workers.ended(m.worker_ends(0));
  m.workers.ended(m.worker_ends(1));
  m.views.shrink();
  const Generation empty = m.job.boundary.generation();
  m.views.cross_boundary();
  CHECK(m.job.boundary.generation() == empty);
  m.job.record(WorkerAllotted{WorkerId(2), kHostA, Edit{}});
  m.join(2);
  m.views.cross_boundary();
  CHECK(m.job.boundary.members() == ids({2}));
  CHECK(m.job.boundary.epoch() == Epoch(0));
}
