#include "core/job/lost_time.h"

#include <variant>

#include "core/job/job.h"
#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

TEST_CASE("lost time: members' seconds by cause, as a share of all they had", "[lost_time]") {
  LostTime time;
  const auto at = [](int seconds) { return Time{} + std::chrono::seconds(seconds); };
  CHECK_FALSE(time.goodput());
  CHECK(time.summary() == "no time yet");
  time.pass(3, at(100));
  time.pass(2, at(110));
  time.pass(2, at(120));
  CHECK(time.total() == 50s);
  CHECK(time.goodput() == 1.0);
  time.lose("boundary", 2s);
  time.lose("boundary", 500ms);
  time.lose("death", 5s);
  CHECK(time.lost() == 7500ms);
  CHECK(time.goodput() == Approx(0.85));
  CHECK(time.summary() == "85.0 % of 50 worker-seconds; lost: boundary 2.5 s, death 5.0 s");
  time.lose("death", 1000s);
  CHECK(time.goodput() == 0.0);
}

TEST_CASE("lost time: it is saved each half minute, and a later count goes on from there",
          "[lost_time]") {
  LostTime time;
  const auto at = [](int seconds) { return Time{} + std::chrono::seconds(seconds); };
  CHECK_FALSE(time.is_save_due(at(0)));
  time.pass(2, at(0));
  time.pass(2, at(29));
  CHECK_FALSE(time.is_save_due(at(29)));
  CHECK(time.is_save_due(at(30)));
  CHECK_FALSE(time.is_save_due(at(31)));
  LostTime later;
  later.resume(time.total(), {{"death", 8s}});
  later.pass(1, at(1000));  // between two supervisors nobody counts
  later.pass(1, at(1010));
  CHECK(later.summary() == "88.2 % of 68 worker-seconds; lost: death 8.0 s");
}

TEST_CASE("lost time: the sums survive the supervisor", "[lost_time]") {
  JobOptions options;
  const Host host{"", "a", 0};
  options.workers = {host};
  std::vector<Record> records;
  const auto keep = [&](const std::vector<Effect>& effects) {
    for (const Effect& effect : effects)
      if (const auto* append = std::get_if<Append>(&effect)) records.push_back(append->record);
  };
  const auto at = [](int seconds) {
    return Instant{Time{} + std::chrono::seconds(seconds), seconds};
  };
  Job job(options, {}, at(0));
  keep(job.begin(Term(1), at(0)));
  keep(job.step(AgentAttached{host, "boot", 1, {}}, at(0)));
  keep(job.step(WorkerStarted{WorkerId(0)}, at(0)));
  keep(job.step(WorkerArrived{WorkerId(0), Epoch(0), true, {}}, at(0)));
  for (int s = 0; s <= 100; ++s) keep(job.step(Tick{}, at(s)));
  const Job later(options, records, at(200));
  CHECK(job.lost_time().total() == 100s);
  CHECK(later.lost_time().total() >= 60s);
  CHECK(later.lost_time().total() <= 100s);
}
