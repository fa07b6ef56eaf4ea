#include "core/job/liveness.h"

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

namespace {

const Host kSilentHost{"", "a", 0};
const WorkerId kWorker(4);

Time at(double seconds) { return Time{} + from_seconds(seconds); }

}  // namespace

TEST_CASE("liveness: with the link up silence of the data says nothing", "[liveness]") {
  Liveness l({});
  CHECK(l.life(kSilentHost, kWorker, at(1000)) == Life::kAlive);
  CHECK(l.life(kSilentHost, std::nullopt, at(1000)) == Life::kAlive);
}

TEST_CASE("liveness: no link and no data is suspect after 1 s and dead after 3 s", "[liveness]") {
  Liveness l({});
  l.traffic(kWorker, at(9));
  l.link_down(kSilentHost, at(10));
  CHECK(l.life(kSilentHost, kWorker, at(10.9)) == Life::kAlive);
  CHECK(l.life(kSilentHost, kWorker, at(11)) == Life::kSuspect);
  CHECK(l.life(kSilentHost, kWorker, at(12.9)) == Life::kSuspect);
  CHECK(l.life(kSilentHost, kWorker, at(13)) == Life::kDead);
  CHECK(l.life(kSilentHost, std::nullopt, at(13)) == Life::kDead);
}

TEST_CASE("liveness: the first break counts, and the link's return ends it", "[liveness]") {
  Liveness l({});
  l.link_down(kSilentHost, at(10));
  l.link_down(kSilentHost, at(12));  // attaching failed again
  CHECK(l.down_since(kSilentHost) == at(10));
  CHECK(l.life(kSilentHost, kWorker, at(13)) == Life::kDead);
  l.link_up(kSilentHost);
  CHECK_FALSE(l.is_down(kSilentHost));
  CHECK(l.life(kSilentHost, kWorker, at(14)) == Life::kAlive);
  l.link_down(kSilentHost, at(20));
  CHECK(l.life(kSilentHost, kWorker, at(20.5)) == Life::kAlive);
}

TEST_CASE("liveness: data that flows past a broken link is unsupervised until it stops",
          "[liveness]") {
  Liveness l({});
  l.link_down(kSilentHost, at(10));
  l.traffic(kWorker, at(10.5));
  CHECK(l.life(kSilentHost, kWorker, at(13)) == Life::kUnsupervised);
  CHECK(l.life(kSilentHost, WorkerId(5), at(13)) == Life::kDead);  // another one there is silent
  l.traffic(kWorker, at(60));
  CHECK(l.life(kSilentHost, kWorker, at(62.9)) == Life::kUnsupervised);
  CHECK(l.life(kSilentHost, kWorker, at(63)) == Life::kDead);
}

TEST_CASE("liveness: a break that is dated into the future leaves time to be reached",
          "[liveness]") {
  Liveness l({});
  l.link_down(kSilentHost, at(25));
  CHECK(l.life(kSilentHost, kWorker, at(10)) == Life::kAlive);
  CHECK(l.life(kSilentHost, kWorker, at(27.9)) == Life::kSuspect);
  CHECK(l.life(kSilentHost, kWorker, at(28)) == Life::kDead);
}
