#include "core/job/checkpoints.h"

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

namespace {

Time at(Duration since) { return Time{} + since; }

/// Saves what is due before `epoch`: begun then, whole after `took`.
void save(Checkpoints& checkpoints, std::uint32_t epoch, Duration begun, Duration took) {
  REQUIRE(checkpoints.is_wanted(Epoch(epoch), at(begun)));
  checkpoints.begin(Epoch(epoch), Generation(epoch), at(begun));
  checkpoints.taken(Epoch(epoch));
  checkpoints.timed(at(begun), took, 100);
}

}  // namespace

TEST_CASE("checkpoints: by time, at the first boundary and then after a minute", "[checkpoints]") {
  Checkpoints checkpoints({0, 60s, 2});
  CHECK_FALSE(checkpoints.is_wanted(Epoch(1), at(1s)));  // no place is known yet
  CHECK(checkpoints.place_is("b does not see it"));
  CHECK_FALSE(checkpoints.place_is("b does not see it"));
  CHECK_FALSE(checkpoints.is_wanted(Epoch(1), at(1s)));
  CHECK(checkpoints.place_is(""));
  save(checkpoints, 2, 5s, 1s);
  CHECK_FALSE(checkpoints.is_wanted(Epoch(3), at(64s)));
  save(checkpoints, 3, 65s, 1s);
  CHECK(checkpoints.newest() == Epoch(3));
  CHECK(checkpoints.bytes() == 100);
}

TEST_CASE("checkpoints: by time they cost a twentieth of it at most", "[checkpoints]") {
  Checkpoints checkpoints({0, 60s, 2});
  (void)checkpoints.place_is("");
  save(checkpoints, 1, 0s, 10s);
  CHECK_FALSE(checkpoints.is_wanted(Epoch(2), at(199s)));
  CHECK(checkpoints.is_wanted(Epoch(2), at(200s)));
}

TEST_CASE("checkpoints: by time, one that was given up is tried again after the interval",
          "[checkpoints]") {
  Checkpoints checkpoints({0, 60s, 2});
  (void)checkpoints.place_is("");
  checkpoints.begin(Epoch(1), Generation(2), at(0s));
  checkpoints.give_up();
  CHECK_FALSE(checkpoints.is_wanted(Epoch(2), at(59s)));
  CHECK(checkpoints.is_wanted(Epoch(2), at(60s)));
  // An epoch that begins once more has had its own.
  checkpoints.roll_back(Epoch(2));
  CHECK_FALSE(checkpoints.is_wanted(Epoch(2), at(60s)));
}

TEST_CASE("checkpoints: by time, one that is late is told once, and by epochs each time",
          "[checkpoints]") {
  for (const std::uint32_t every : {0U, 1U}) {
    Checkpoints checkpoints({every, 60s, 2});
    (void)checkpoints.place_is("");
    checkpoints.begin(Epoch(1), Generation(2), at(0s));
    CHECK(checkpoints.is_late());
    CHECK(checkpoints.is_late() == (every == 1));
  }
}

TEST_CASE("checkpoints: by epochs neither time nor place matter", "[checkpoints]") {
  Checkpoints checkpoints({2, {}, 2});
  CHECK(checkpoints.is_wanted(Epoch(2), at(0s)));
  CHECK_FALSE(checkpoints.is_wanted(Epoch(3), at(1000s)));
  Checkpoints never({0, {}, 2});
  (void)never.place_is("");
  CHECK_FALSE(never.is_wanted(Epoch(2), at(1000s)));
}
