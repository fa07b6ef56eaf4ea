#include "kvstore/server/report_pace.h"

#include "test/support/catch.h"

using namespace dt;
using dt::kv::ReportPace;

namespace {

using Ids = std::vector<WorkerId>;
constexpr WorkerId kSlow(1), kFast(2);

/// Both workers are alive; these owe a round, wait in one, sent requests.
Traffic look(Ids owing = {}, Ids waiting = {}, Ids busy = {}) {
  return {{kSlow, kFast}, {}, std::move(busy), std::move(owing), std::move(waiting), {}};
}

}  // namespace

TEST_CASE("report pace: a quiet training is reported at every second look", "[report_pace]") {
  ReportPace pace;
  int sent = 0;
  for (int i = 0; i < 20; ++i) sent += pace.take(look({}, {}, {kSlow, kFast})).has_value();
  CHECK(sent == 10);
}

TEST_CASE("report pace: rounds of workers that go on are no news", "[report_pace]") {
  ReportPace pace;
  CHECK(pace.take(look()));
  CHECK_FALSE(pace.take(look({kSlow}, {kFast}, {kSlow, kFast})));
  const auto beat = pace.take(look({kSlow}, {kFast}, {kSlow, kFast}));
  REQUIRE(beat);
  CHECK(beat->owing.empty());
  CHECK(beat->waiting.empty());
  CHECK(beat->busy == Ids{kSlow, kFast});
}

TEST_CASE("report pace: who keeps others waiting is reported at once, and so is its end",
          "[report_pace]") {
  ReportPace pace;
  CHECK(pace.take(look()));
  CHECK_FALSE(pace.take(look({kSlow}, {kFast}, {kFast})));
  const auto stalls = pace.take(look({kSlow}, {kFast}));
  REQUIRE(stalls);
  CHECK(stalls->owing == Ids{kSlow});
  CHECK(stalls->waiting == Ids{kFast});
  CHECK(stalls->busy == Ids{kFast});  // at the look that was not sent
  const auto over = pace.take(look({}, {}, {kSlow}));
  REQUIRE(over);
  CHECK(over->owing.empty());
}

TEST_CASE("report pace: a worker that disconnects is reported at once", "[report_pace]") {
  ReportPace pace;
  CHECK(pace.take(look()));
  Traffic gone = look();
  gone.alive = {kFast};
  gone.disconnected = {kSlow};
  const auto report = pace.take(gone);
  REQUIRE(report);
  CHECK(report->disconnected == Ids{kSlow});
}

TEST_CASE("report pace: for whom a worker waits is news", "[report_pace]") {
  ReportPace pace;
  CHECK(pace.take(look()));
  CHECK_FALSE(pace.take(look()));
  CHECK(pace.take(look()));
  Traffic waits = look();
  waits.waits = {{kFast, KeyId(1), kSlow, 0}};
  const auto told = pace.take(waits);
  REQUIRE(told);
  CHECK(told->waits == waits.waits);
}
