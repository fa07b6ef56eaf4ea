#include "supervisor/control/job_figures.h"

#include "core/job/boundary.h"
#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;
using supervisor::JobFigures;

TEST_CASE(
    "job figures: a worker's rate is that of the last seconds, across epochs that begin at step 0",
    "[status]") {
  JobFigures figures;
  const WorkerId worker(3);
  const ProcessId process{Role::kWorker, 3};
  CHECK_FALSE(figures.of(process).steps_per_s);
  figures.progress(worker, 10, Time(0s));
  figures.progress(worker, 30, Time(4s));
  CHECK_FALSE(figures.of(process).steps_per_s);  // the time is too short
  figures.progress(worker, 5, Time(6s));         // a new epoch: 20 + 5 steps in 6 s
  REQUIRE(figures.of(process).steps_per_s);
  CHECK(*figures.of(process).steps_per_s == Approx(25.0 / 6));
  figures.progress(worker, 105, Time(16s));
  CHECK(*figures.of(process).steps_per_s == Approx(10));
  figures.forget(process);
  CHECK_FALSE(figures.of(process).steps_per_s);
}

TEST_CASE("job figures: memory and last output of a process, until it is forgotten", "[status]") {
  JobFigures figures;
  const ProcessId process{Role::kWorker, 1};
  CHECK_FALSE(figures.of(process).output_at);
  figures.output(process, Time(2s));
  figures.resident(process, 812'000'000);
  CHECK(figures.of(process).output_at == Time(2s));
  CHECK(figures.of(process).resident == 812'000'000U);
  CHECK_FALSE(figures.of({Role::kServer, 1}).resident);
  figures.forget(process);
  CHECK_FALSE(figures.of(process).output_at);
}

TEST_CASE("job figures: samples per second are those of the last ten seconds", "[status]") {
  JobFigures figures;
  const WorkerId worker(3);
  const ProcessId process{Role::kWorker, 3};
  CHECK_FALSE(figures.samples_per_s(process, Time(0s)));
  for (int s = 0; s <= 20; ++s) {
    Figures report;
    report.samples = s <= 10 ? 0 : static_cast<std::uint64_t>(s - 10) * 64;
    figures.figures(worker, report, Time(std::chrono::seconds(s)));
  }
  CHECK(figures.of(process).figures->samples == 640);
  REQUIRE(figures.samples_per_s(process, Time(20s)));
  CHECK(*figures.samples_per_s(process, Time(20s)) == Approx(64));
  CHECK(*figures.samples_per_s(process, Time(25s)) == Approx(32));  // half of them without a sample
  CHECK_FALSE(figures.samples_per_s(process, Time(31s)));
}

TEST_CASE("job figures: a boundary lasts from the first arrival to the last release", "[status]") {
  JobFigures figures;
  Boundary view;
  const auto arrives = [&](std::uint32_t worker, std::uint32_t epoch, Duration at) {
    static_cast<void>(view.arrive(WorkerId(worker), Epoch(epoch)));
    figures.look_at_boundary(view, Time(at));
  };
  const auto begins = [&](std::uint32_t epoch, Duration at) {
    for (const auto& [worker, named] : std::map(view.arrivals())) view.await_release(worker);
    view.begin_epoch(Epoch(epoch));
    figures.look_at_boundary(view, Time(at));
  };
  const auto released = [&](std::uint32_t worker, Duration at) {
    view.released(WorkerId(worker));
    figures.look_at_boundary(view, Time(at));
  };
  view.begin({WorkerId(0), WorkerId(1)});
  // The start is no boundary between epochs.
  arrives(0, 0, 1s);
  begins(0, 9s);
  released(0, 9s);
  CHECK(figures.crossings().count == 0);
  arrives(0, 1, 20s);
  arrives(1, 1, 22s);
  begins(1, 23s);
  released(0, 24s);
  CHECK(figures.crossings().count == 0);
  released(1, 25s);
  CHECK(figures.crossings().count == 1);
  CHECK(figures.crossings().last == 5s);
  // Arrival and commit as one event.
  static_cast<void>(view.arrive(WorkerId(0), Epoch(2)));
  begins(2, 40s);
  released(0, 41s);
  CHECK(figures.crossings().count == 2);
  CHECK(figures.crossings().last == 1s);
  CHECK(figures.crossings().all == 6s);
  // A return to a checkpoint is none.
  view.roll_back(Generation(7), Epoch(3));
  arrives(0, 3, 50s);
  begins(3, 60s);
  released(0, 61s);
  CHECK(figures.crossings().count == 2);
}
