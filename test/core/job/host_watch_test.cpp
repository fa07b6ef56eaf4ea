#include "core/job/host_watch.h"

#include "test/core/job/machines.h"

using namespace dt;
using namespace dt::test;

namespace {

/// Members in epoch 0; a host is lost after 3 s, and servers have 3 s, or 30 s where no worker
/// could see their data.
struct Silence : Machines {
  explicit Silence(std::vector<Host> on = {})
      : Machines(job_on({kHostA, kHostB, kHostC}, std::move(on))) {
    run();
  }
  void silent(const Host& host) { hosts.silent({host, Time{}}); }
  /// The hosts that are lost at this time.
  std::string lost(Duration then) {
    at(then);
    std::string names;
    for (const auto& one : host_watch.tick()) names += one.host.name;
    return names;
  }
};

}  // namespace

TEST_CASE("host watch: a silent host is lost after --dead-after", "[host_watch]") {
  Silence m;
  m.silent(kHostB);
  CHECK(m.lost(2900ms) == "");
  CHECK(m.lost(3s) == "b");
}

TEST_CASE("host watch: its workers' data keep it, but for one that waits for its release",
          "[host_watch]") {
  Silence m;
  m.silent(kHostB);
  m.hosts.liveness().traffic(WorkerId(1), Time{} + 2s);
  CHECK(m.lost(4s) == "");
  SECTION("it waits") {
    m.job.boundary.await_release(WorkerId(1));
    CHECK(m.lost(4s) == "b");
  }
  SECTION("its data end") { CHECK(m.lost(5s) == "b"); }
}

TEST_CASE("host watch: a boundary does not wait for a worker that has only its data to show",
          "[host_watch]") {
  Silence m;
  m.silent(kHostB);
  m.hosts.liveness().traffic(WorkerId(1), Time{} + 2s);
  m.arrive(0, 1);
  CHECK(m.lost(4s) == "");
  m.arrive(2, 1);
  CHECK(m.lost(4s) == "b");
}

TEST_CASE("host watch: with no link at all nothing is lost until the agents have stopped all",
          "[host_watch]") {
  Silence m;
  for (const Host& host : {kHostA, kHostB, kHostC}) m.silent(host);
  CHECK(m.lost(m.job.options.orphan_timeout - 1s) == "");
  SECTION("the first one is back: the others get time to follow") {
    m.hosts.heard({kHostA});
    CHECK(m.lost(m.job.options.orphan_timeout + 13s) == "");
    CHECK(m.lost(m.job.options.orphan_timeout + 14s) == "bc");
  }
  SECTION("none is back") { CHECK(m.lost(m.job.options.orphan_timeout + 14s) == "abc"); }
}

TEST_CASE("host watch: a host with the only server has patience, and others stay unjudged",
          "[host_watch]") {
  Silence m({kHostB});
  m.silent(kHostB);
  m.silent(kHostC);
  CHECK(m.lost(29s) == "");
  CHECK(m.lost(30s) == "b");
}

TEST_CASE("host watch: with other servers one is lost at --server-dead-after without data",
          "[host_watch]") {
  Silence m({kHostB, kHostC});
  m.silent(kHostB);
  m.at(2s);
  m.servers.data_seen({WorkerId(0), {{ServerId(0)}}});
  CHECK(m.lost(3900ms) == "");
  CHECK(m.lost(4s) == "b");
  m.at(30s);
  m.servers.data_seen({WorkerId(0), {{ServerId(0)}}});
  CHECK(m.lost(31s) == "");
}
