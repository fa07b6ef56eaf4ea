#include "core/job/server_watch.h"

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

namespace {

constexpr ServerId kFirst(0);
constexpr ServerId kSecond(1);

/// Two servers that listen, have acknowledged and report; tests take something of that away.
class WatchedServers {
 public:
  ServerWatch watch{3s};
  std::vector<ServerWatch::Sight> sights{{kFirst, true, true, true, true},
                                         {kSecond, true, true, true, true}};
  std::vector<ServerId> report{kFirst, kSecond};
  std::vector<ServerId> give_data;
  Time now{100s};

  /// Ticks until something is found or the time is over; its words, with the seconds it took.
  std::string run(Duration length) {
    const Time begin = now;
    for (const Time end = now + length; now < end;) {
      now += 100ms;
      if (now.time_since_epoch() % 500ms == 0s) {
        for (const ServerId id : report) watch.reported(id, stuck, now);
        for (const ServerId id : give_data) watch.data_seen(id, now);
      }
      for (const auto& found : watch.tick(sights, now))
        return fmt::format("{:.1f} s: server {} {}{}", seconds(now - begin), found.id,
                           found.is_lost ? "is lost: " : "", found.why);
    }
    return "";
  }
  std::vector<StuckLoop> stuck;
};

}  // namespace

TEST_CASE("server watch: a server that reports is well for ever", "[server_watch]") {
  WatchedServers s;
  CHECK(s.run(1h).empty());
  CHECK(s.watch.all_well());
  CHECK_FALSE(s.watch.silent_since());
}

TEST_CASE("server watch: a silent server is lost after --server-dead-after", "[server_watch]") {
  WatchedServers s;
  s.run(10s);
  const Time last = s.now;
  s.report = {kSecond};
  CHECK(s.run(10s) ==
        "1.4 s: server 0 says nothing for 1.5 s: it is lost after 3.0 s (--server-dead-after), "
        "unless workers get data from it");
  s.watch.inspected(kFirst, "dtserver (pid 7): stopped (T)");
  CHECK(s.run(200ms).empty());
  CHECK_FALSE(s.watch.all_well());
  CHECK(s.run(10s) ==
        "1.3 s: server 0 is lost: says nothing for 3.0 s (--server-dead-after) (dtserver (pid 7): "
        "stopped (T))");
  CHECK(s.watch.silent_since() == last);
}

TEST_CASE("server watch: a server whose data flows is not lost for want of reports",
          "[server_watch]") {
  WatchedServers s;
  s.give_data = {kFirst, kSecond};
  s.run(10s);
  s.report = {kSecond};
  CHECK(s.run(1h).find("server 0 says nothing for 1.5 s") != std::string::npos);
  CHECK(s.run(1h).empty());
  CHECK_FALSE(s.watch.all_well());  // no worker may be blamed meanwhile
  s.give_data = {kSecond};
  CHECK(s.run(10s).find("server 0 is lost") != std::string::npos);
}

TEST_CASE("server watch: others that come and go do not prolong a silence", "[server_watch]") {
  WatchedServers s;
  s.sights[0].has_acked = false;
  for (int i = 0; i < 10; ++i) {
    s.sights[1].is_heard = false;
    REQUIRE(s.run(1s).empty());
    s.sights[1].is_heard = true;
    REQUIRE(s.run(1900ms).empty());
  }
  CHECK(s.run(10s) == "1.1 s: server 0 is lost: has not acknowledged a commit for 30.0 s");
}

TEST_CASE("server watch: an unheard host's silence is not its server's", "[server_watch]") {
  WatchedServers s;
  s.run(10s);
  s.report = {kSecond};
  s.sights[0].is_heard = false;
  CHECK(s.run(1h).empty());
  s.sights[0].is_heard = true;
  CHECK(s.run(1s).empty());  // it has a moment to report
}

TEST_CASE("server watch: a stuck loop is named, and lost after ten times as long",
          "[server_watch]") {
  WatchedServers s;
  s.stuck = {{2, 3100, "sleeping (D)"}};
  CHECK(s.run(1s) ==
        "0.5 s: server 0 hangs: its loop 2 has not turned for 3.1 s: sleeping (D); it is lost "
        "after 30 s");
  CHECK_FALSE(s.watch.all_well());
  s.stuck = {{2, 30000, "sleeping (D)"}};
  CHECK(s.run(1s).find("is lost: its loop 2 has not turned for 30.0 s") != std::string::npos);
}

TEST_CASE("server watch: who never listens is lost", "[server_watch]") {
  WatchedServers s;
  s.sights[0].listens = false;
  s.report = {kSecond};
  CHECK(s.run(1min) == "30.1 s: server 0 is lost: does not listen 30.0 s after its start");
}

TEST_CASE("server watch: the supervisor's own pause is nobody's silence", "[server_watch]") {
  WatchedServers s;
  s.run(10s);
  s.now += 1h;
  CHECK(s.watch.tick(s.sights, s.now).empty());
}

TEST_CASE("server watch: a host that serves is given up early only where data could be seen",
          "[server_watch]") {
  WatchedServers s;
  CHECK(s.watch.gives_up_after(kFirst) == 30s);
  s.watch.data_seen(kFirst, s.now);
  CHECK(s.watch.gives_data(kFirst, s.now + 1900ms));
  CHECK_FALSE(s.watch.gives_data(kFirst, s.now + 2s));
  CHECK(s.watch.gives_up_after(kFirst) == 3s);
}
