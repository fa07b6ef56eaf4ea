#include "supervisor/hosts/checkpoint_place.h"

#include "test/support/catch.h"

using namespace dt;
using supervisor::CheckpointPlace;

namespace {

const Host kA{"", "a", 0};
const Host kB{"", "b", 0};
constexpr std::uint64_t kMuch = std::uint64_t{1} << 40;

}  // namespace

TEST_CASE("checkpoint place: every host has to see the file", "[checkpoint_place]") {
  CheckpointPlace place("/job/place.1", "word", {kA, kB}, false);
  CHECK_FALSE(place.ask(kA, 7, {}));  // it is not there yet
  place.written("");
  place.room(kMuch, 0);
  const auto a = place.ask(kA, 7, {});
  REQUIRE(a);
  CHECK(a->argv == std::vector<std::string>{"/bin/cat", "/job/place.1"});
  CHECK_FALSE(place.ask({"", "added", 0}, 8, {}));
  const auto b = place.ask(kB, 8, {});
  REQUIRE(b);
  CHECK_FALSE(place.why_not());
  place.output(a->process, "wo");
  place.output(a->process, "rd");
  CHECK(place.ended(a->process, {}, "") == kA);
  CHECK_FALSE(place.why_not());
  SECTION("it is a place") {
    place.output(b->process, "word");
    place.ended(b->process, {}, "");
    CHECK(place.why_not() == "");
    CHECK_FALSE(place.ask(kB, 9, {}));
    place.room(299, 300);
    REQUIRE(place.why_not());
    CHECK(place.why_not()->find("MB are free") != std::string::npos);
    place.room(kMuch, kMuch);
    CHECK(place.why_not() == "");
  }
  SECTION("another folder of that name") {
    place.output(b->process, "another word");
    place.ended(b->process, {}, "");
    CHECK(place.why_not() == "b does not see /job/place.1: another file of that name is there");
  }
  SECTION("no such folder") {
    place.output(b->process, "cat: /job/place.1: No such file or directory\n");
    place.ended(b->process, {1, 0}, "");
    CHECK(place.why_not() ==
          "b does not see /job/place.1: cat: /job/place.1: No such file or directory");
  }
  SECTION("a host that does not see it is asked again, and counts as it did until it has said") {
    place.output(b->process, "cat: /job/place.1: Input/output error\n");
    place.ended(b->process, {1, 0}, "");
    CHECK(place.why_not() != "");
    CHECK_FALSE(place.ask(kB, 9, {}));
    CHECK(place.look_again() == std::vector<Host>{kB});
    const auto again = place.ask(kB, 9, {});
    REQUIRE(again);
    CHECK(place.look_again().empty());
    CHECK_FALSE(place.ask(kA, 10, {}));
    REQUIRE(place.why_not());
    CHECK(place.why_not() != "");
    place.output(again->process, "word");
    place.ended(again->process, {}, "");
    CHECK(place.why_not() == "");
    CHECK(place.look_again().empty());
  }
  SECTION("the link is lost, and its agent does not know of it: asked once more") {
    ProcessReport known;
    known.process = b->process;
    CHECK_FALSE(place.ask(kB, 9, {known}));
    CHECK(place.ask(kB, 9, {}));
    CHECK_FALSE(place.is_ours(b->process));
  }
}

TEST_CASE("checkpoint place: on one machine only the room counts", "[checkpoint_place]") {
  CheckpointPlace place("/job/place.1", "word", {kA}, true);
  place.written("");
  CHECK_FALSE(place.ask(kA, 7, {}));
  CHECK_FALSE(place.why_not());
  place.room(CheckpointPlace::kLeastRoom - 1, 0);
  CHECK(place.why_not() != "");
  place.room(CheckpointPlace::kLeastRoom, 0);
  CHECK(place.why_not() == "");
}

TEST_CASE("checkpoint place: a folder that cannot be written to is none", "[checkpoint_place]") {
  CheckpointPlace place("/job/place.1", "word", {kA}, true);
  place.written("read-only");
  place.room(kMuch, 0);
  CHECK(place.why_not() == "read-only");
  CHECK_FALSE(place.is_written());
  place.written("");
  CHECK(place.is_written());
  CHECK(place.why_not() == "");
}
