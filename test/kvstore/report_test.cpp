// A server's report to the supervisor: it is sent whatever its loops do.

#include <future>
#include <set>

#include "test/kvstore/cluster.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::test;

namespace report {

TEST_CASE("report: a loop that does not turn is named, and reports and commits go on", "[report]") {
  Cluster cluster(1, 1, true, false, false,
                  [](kv::ServerOptions& options) { options.stuck_after = 100ms; });
  kv::Server& server = cluster.server();
  std::promise<void> gate;
  std::promise<void> entered;
  ServerCommit commit;
  commit.generation = Generation(2);
  commit.contributors = {WorkerId(0)};
  server.commit(commit, [&](bool) {  // on a loop's thread
    entered.set_value();
    gate.get_future().wait();
  });
  entered.get_future().wait();
  Traffic seen;
  auto reports = std::async(std::launch::async, [&] {
    return eventually([&] {
      seen = server.traffic();
      return !seen.stuck.empty();
    });
  });
  const bool returned = reports.wait_for(25s) == std::future_status::ready;
  commit.generation = Generation(3);
  std::promise<bool> adopted;
  server.commit(commit, [&](bool is_adopted) { adopted.set_value(is_adopted); });
  gate.set_value();
  REQUIRE(returned);
  CHECK(reports.get());
  REQUIRE(seen.stuck.size() == 1);
  CHECK(seen.stuck[0].loop < 2);
  CHECK(seen.stuck[0].milliseconds >= 100);
  CHECK(seen.stuck[0].state.find("kv-loop-") != std::string::npos);
  CHECK(seen.stuck[0].state.find("sleeping (S)") != std::string::npos);
  CHECK(adopted.get_future().get());
  CHECK(eventually([&] { return server.traffic().stuck.empty(); }));
}

TEST_CASE("report: idle loops turn, and only contributors are missed", "[report]") {
  Cluster cluster(1, 1, true, false, false,
                  [](kv::ServerOptions& options) { options.stuck_after = 100ms; });
  kv::Server& server = cluster.server();
  {
    const auto member = cluster.open(0);
    const auto newcomer = cluster.open(7, "dist_sync", true);
    std::set<WorkerId> alive;  // each report has the workers since the last one
    CHECK(eventually([&] {
      for (const WorkerId worker : server.traffic().alive) alive.insert(worker);
      return alive.size() == 2;
    }));
  }
  // If idle loops counted as stuck, they would stay so.
  const auto end = std::chrono::steady_clock::now() + 300ms;
  CHECK(eventually([&] {
    const Traffic seen = server.traffic();
    return std::chrono::steady_clock::now() > end && seen.stuck.empty() &&
           seen.disconnected == std::vector<WorkerId>{WorkerId(0)};
  }));
}

}  // namespace report
