#include "supervisor/control/pulse.h"

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;
using supervisor::Pulse;

TEST_CASE("pulse: a worker's rate is that of the last seconds, across epochs that count anew",
          "[status]") {
  Pulse pulse;
  const WorkerId worker(3);
  CHECK_FALSE(pulse.steps_per_s(worker));
  pulse.progress(worker, 10, Time(0s));
  pulse.progress(worker, 30, Time(4s));
  CHECK_FALSE(pulse.steps_per_s(worker));  // the time is too short
  pulse.progress(worker, 5, Time(6s));     // a new epoch: 20 + 5 steps in 6 s
  REQUIRE(pulse.steps_per_s(worker));
  CHECK(*pulse.steps_per_s(worker) == Approx(25.0 / 6));
  pulse.progress(worker, 105, Time(16s));
  CHECK(*pulse.steps_per_s(worker) == Approx(10));
  pulse.forget({Role::kWorker, 3});
  CHECK_FALSE(pulse.steps_per_s(worker));
}

TEST_CASE("pulse: memory and last output of a process, until it is forgotten", "[status]") {
  Pulse pulse;
  const ProcessId process{Role::kWorker, 1};
  CHECK_FALSE(pulse.output_age_s(process, Time(1s)));
  pulse.output(process, Time(2s));
  pulse.resident(process, 812'000'000);
  CHECK(*pulse.output_age_s(process, Time(10s)) == 8);
  CHECK(*pulse.resident(process) == 812'000'000);
  CHECK_FALSE(pulse.resident({Role::kServer, 1}));
  pulse.forget(process);
  CHECK_FALSE(pulse.output_age_s(process, Time(10s)));
}
