#include "core/job/lost_time.h"

#include <variant>

#include "core/job/job.h"
#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

namespace {

/// Three members in epoch 0, and the calls that LostTime gets.
struct Waits {
  Waits() {
    job.boundary.begin({WorkerId(0), WorkerId(1), WorkerId(2)});
    at(0s);
    job.boundary.begin_epoch(Epoch(0));
    time.begin(false);
    for (const WorkerId id : job.boundary.members()) time.released(id);
  }
  void at(Duration then) { job.begin({Time{} + then, 0}); }
  void arrives(std::uint32_t id) { CHECK(time.arrived(WorkerId(id))); }
  Duration lost(const std::string& cause) const {
    const auto sums = time.so_far().by_cause();
    const auto it = sums.find(cause);
    return it == sums.end() ? Duration{} : it->second;
  }
  JobContext job{JobOptions{}, [](const Record&) {}};
  LostTime time{job};
};

}  // namespace

TEST_CASE("lost time: a member waits from its arrival, also before the wait has ended",
          "[lost_time]") {
  Waits w;
  w.at(10s);
  w.arrives(0);
  CHECK_FALSE(w.time.arrived(WorkerId(0)));
  w.at(12s);
  w.arrives(1);
  CHECK(w.lost("boundary") == 2s);
  w.at(13s);
  w.arrives(2);
  w.time.boundary_complete("join");
  w.at(14s);
  for (const WorkerId id : w.job.boundary.members()) w.time.released(id);
  CHECK(w.lost("boundary") == 4s);
  CHECK(w.lost("join") == 3s);
}

TEST_CASE("lost time: a death stops those who have not arrived until the servers know of it",
          "[lost_time]") {
  Waits w;
  w.at(10s);
  w.arrives(0);
  w.at(11s);
  w.time.member_died(w.job.now());
  w.at(12s);
  w.job.boundary.commit({Generation(2), false, Epoch(0), {}, {WorkerId(0), WorkerId(1)}, {}, {}});
  w.time.gone(WorkerId(2));
  w.time.shrunk(false);
  CHECK(w.time.has_open_death());
  w.at(14s);
  w.time.death_is_known();
  CHECK_FALSE(w.time.has_open_death());
  CHECK(w.lost("death") ==
        1s + 3s);                   // worker 0 at the boundary until the commit, worker 1 all of it
  CHECK(w.lost("boundary") == 3s);  // worker 0 before and after that
}

TEST_CASE("lost time: who dies while it waits for a death to be known is counted once",
          "[lost_time]") {
  Waits w;
  w.at(10s);
  w.time.member_died(w.job.now());
  w.job.boundary.commit({Generation(2), false, Epoch(0), {}, {WorkerId(2)}, {}, {}});
  for (const std::uint32_t id : {0U, 1U}) w.time.gone(WorkerId(id));
  w.time.shrunk(false);
  // Worker 2 has said nothing for 4 s when it is given up.
  w.at(18s);
  w.time.member_died(Time{} + 14s);
  w.time.gone(WorkerId(2));
  w.job.boundary.commit({Generation(3), false, Epoch(0), {}, {}, {}, {}});
  w.time.shrunk(true);
  w.at(20s);
  CHECK(w.lost("death") == 10s);
}

TEST_CASE("lost time: with lost servers every contributor waits, each once", "[lost_time]") {
  Waits w;
  w.at(10s);
  w.time.server_silent(Time{} + 7s);
  CHECK(w.lost("server") == 9s);
  w.time.recovery_begins();
  w.at(15s);
  CHECK(w.lost("server recovery") == 15s);
  w.time.server_silent(Time{} + 7s);
  w.time.recovery_is_complete();
  w.at(16s);
  for (const WorkerId id : w.job.boundary.members()) w.time.released(id);
  CHECK(w.lost("server recovery") == 18s);
  CHECK(w.lost("server") == 9s);
}

TEST_CASE("lost time: a group that restarts stands until all processes of the next one run",
          "[lost_time]") {
  JobOptions options;
  options.on_change = OnChange::kRestart;
  JobContext job{options, [](const Record&) {}};
  LostTime time{job};
  const auto at = [&](Duration then) { job.begin({Time{} + then, 0}); };
  const auto lost = [&] { return time.so_far().lost(); };
  at(0s);
  job.boundary.begin({WorkerId(0), WorkerId(1)});
  time.begin(false);
  at(10s);
  CHECK(time.so_far().total() == 0s);
  CHECK(time.group_stands());
  time.group_runs();
  CHECK_FALSE(time.group_stands());
  at(100s);
  time.member_died(Time{} + 97s);
  CHECK(lost() == 0s);
  time.group_stops();
  at(105s);
  time.member_died(job.now());  // ended by the stop
  CHECK(lost() == 2 * 8s);
  time.group_begins();
  job.boundary.begin({WorkerId(2), WorkerId(3), WorkerId(4)});
  at(107s);
  CHECK(lost() == 2 * 8s + 3 * 2s);
  time.group_runs();
  at(200s);
  CHECK(lost() == 22s);
  time.group_stops();  // after an edit
  at(201s);
  CHECK(lost() == 25s);
  CHECK(time.so_far().by_cause().size() == 1);
  time.begin(true);  // another supervisor
  CHECK(time.so_far().total() == 2 * 97s + 3 * 94s);
}

TEST_CASE("lost time: a host that was silent before its group ran stops it from then on only",
          "[lost_time]") {
  JobOptions options;
  options.on_change = OnChange::kRestart;
  JobContext job{options, [](const Record&) {}};
  LostTime time{job};
  job.begin({Time{}, 0});
  job.boundary.begin({WorkerId(0), WorkerId(1)});
  time.begin(false);
  job.begin({Time{} + 10s, 0});
  time.group_runs();
  job.begin({Time{} + 12s, 0});
  time.member_died(Time{} + 9s);
  time.group_stops();
  CHECK(time.so_far().lost() == 2 * 2s);
  CHECK(time.so_far().total() == 2 * 2s);
}

TEST_CASE("lost time: the sums are journalled each half minute", "[lost_time]") {
  Waits w;
  const auto saves = [&w](Duration then) {
    w.at(then);
    w.time.tick();
    return w.job.take().size();
  };
  CHECK(saves(1s) == 0);
  CHECK(saves(30s) == 0);
  CHECK(saves(31s) == 1);
  CHECK(saves(32s) == 0);
  CHECK(saves(61s) == 1);
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
  keep(job.step(FromWorker<Arrive>{WorkerId(0), {Epoch(0), true, {}}}, at(0)));
  for (int s = 0; s <= 100; ++s) keep(job.step(Tick{}, at(s)));
  const Job later(options, records, at(200));
  CHECK(job.goodput().total() == 100s);
  CHECK(later.goodput().total() >= 60s);
  CHECK(later.goodput().total() <= 100s);
}
