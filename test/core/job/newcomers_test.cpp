#include "core/job/newcomers.h"

#include "test/core/job/machines.h"

using namespace dt;
using namespace dt::test;

namespace {

/// Two members in epoch 0, and a file that asks for a worker on a third host.
struct Grows : Machines {
  explicit Grows(const JobOptions& options = job_on({kHostA, kHostB})) : Machines(options) {
    run();
    workers.file_accepted({{{kHostA, 1}, {kHostB, 1}, {kHostC, 1}}});
    at(1s);
  }
};

}  // namespace

TEST_CASE("newcomers: a worker that is wanted gets one id, on a host that may be tried",
          "[newcomers]") {
  Grows m;
  m.hosts.failed(kHostC, "reach", "no route to host", false);
  m.decide(&Newcomers::fill_gaps);
  CHECK_FALSE(m.workers.find(WorkerId(2)));
  m.at(10s);
  m.decide(&Newcomers::fill_gaps);
  m.decide(&Newcomers::fill_gaps);
  CHECK(m.state(2) == WorkerState::kSeen);
  CHECK_FALSE(m.workers.find(WorkerId(3)));
}

TEST_CASE("newcomers: nobody is added to a command that has opened no store", "[newcomers]") {
  Machines m;
  m.workers.file_accepted({{{kHostA, 1}, {kHostB, 1}, {kHostC, 1}}});
  m.decide(&Newcomers::fill_gaps);
  CHECK_FALSE(m.workers.find(WorkerId(2)));
  m.workers.store_opened(WorkerId(0));
  m.decide(&Newcomers::fill_gaps);
  CHECK(m.workers.find(WorkerId(2)));
}

TEST_CASE("newcomers: a host is reached, then prepared, then a process is started", "[newcomers]") {
  JobOptions options = job_on({kHostA, kHostB});
  options.needs_prepare = true;
  Grows m(options);
  m.decide(&Newcomers::fill_gaps);
  m.decide(&Newcomers::move_on);
  CHECK(m.took<Attach>().size() == 1);
  m.attach(kHostC);
  m.decide(&Newcomers::move_on);
  m.decide(&Newcomers::move_on);
  CHECK(m.took<Prepare>().size() == 1);
  CHECK(m.state(2) == WorkerState::kPreparing);
  m.hosts.prepared(kHostC);
  m.decide(&Newcomers::move_on);
  m.decide(&Newcomers::move_on);
  const auto started = m.took<StartWorker>();
  REQUIRE(started.size() == 1);
  CHECK(started[0].newcomer);
  CHECK(started[0].rank == Rank(2));
  CHECK(started[0].world_size == 3);
  CHECK(started[0].epoch == Epoch(1));
}

TEST_CASE("newcomers: base workers wait for the ports of rank 0's host", "[newcomers]") {
  Machines m;
  m.attach(kHostB);
  m.decide(&Newcomers::move_on);
  CHECK(m.took<StartWorker>().empty());
  m.attach(kHostA);
  m.decide(&Newcomers::move_on);
  CHECK(m.took<StartWorker>().size() == 2);
}

TEST_CASE("newcomers: who is wanted no more is stopped, or gone if it has no process",
          "[newcomers]") {
  Grows m;
  const bool has_process = GENERATE(false, true);
  m.decide(&Newcomers::fill_gaps);
  if (has_process) m.join(2);
  m.workers.file_accepted({{{kHostA, 1}, {kHostB, 1}}});
  m.decide(&Newcomers::stop_unwanted);
  CHECK(m.took<Stop>().size() == (has_process ? 1 : 0));
  CHECK(m.state(2) == (has_process ? WorkerState::kStopping : WorkerState::kGone));
}

TEST_CASE("newcomers: one that an earlier term may have started is not gone unasked",
          "[newcomers]") {
  Grows m;
  m.decide(&Newcomers::fill_gaps);
  m.attach(kHostC);
  m.workers.replayed();
  m.workers.file_accepted({{{kHostA, 1}, {kHostB, 1}}});
  m.decide(&Newcomers::stop_unwanted);
  CHECK(m.state(2) == WorkerState::kSeen);
  m.workers.attached(kHostC, {});
  m.decide(&Newcomers::stop_unwanted);
  CHECK(m.state(2) == WorkerState::kGone);
}
