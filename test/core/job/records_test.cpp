#include "core/job/records.h"

#include <rapidcheck.h>

#include "test/support/catch.h"

using namespace dt;

namespace {

const Host kHost{"me", "10.0.0.7", 2222};

/// One of each, every field set.
std::vector<Record> one_of_each() {
  return {
      JobBegan{{kHost, {"", "b", 0}, {"", "n7", 0, StarterKind::kSlurm}}, {kHost}},
      TermBegan{Term(7)},
      FileTaken{Edit(3), {{kHost, 2}}},
      WorkerAllotted{WorkerId(9), kHost, Edit(3)},
      HostPrepared{kHost},
      Committed{Generation(4),
                true,
                Epoch(2),
                {WorkerId(0), WorkerId(9)},
                {WorkerId(9)},
                {WorkerId(1)},
                {LogLine{5, true, kHost, 1'763'664'000'123'456'789}},
                true},
      EpochBegan{Epoch(3)},
      WorkerGone{WorkerId(9), ExitStatus{0, 9}, "no sign of life", {LogLine{6, false, kHost, 8}}},
      AgentKnown{kHost, "boot", 0xffffffffffffffffU},
      JobEnding{-1, "interrupted"},
      CheckpointTaken{Epoch(2), Generation(4)},
      RolledBack{Generation(5),
                 Epoch(2),
                 true,
                 ServerId(3),
                 {kHost, {"", "b", 0}},
                 "server 0 ended",
                 Epoch(3)},
      MemberLeft{WorkerId(4), kHost, true, {LogLine{7, false, kHost, 9}}},
      PlacesWanted{kHost, 2},
      BaseReplaced{kHost, {"", "b", 0}},
      AgentPlaced{kHost, {"/run/user/1/dtlaunch/j/agent-0.sock", 16384, 32767}},
      CheckpointTimed{Epoch(2), 1'763'664'000'123'456'789, 5000, 1'000'000},
      TimeSpent{90'000'000'000, {{"boundary", 1'000'000'000}, {"death", 2}}},
      Snapshot{7, {LogLine{0, true, kHost, 5}, LogLine{1, false, kHost, 6}}},
      GroupStops{"worker 1 died", 2},
      GroupBegan{Generation(6),
                 WorkerId(10),
                 {kHost, kHost},
                 {LogLine{8, true, kHost, 10}},
                 {WorkerId(11)},
                 1'763'664'000'123'456'789},
      NoticeTaken{kHost, 1'763'664'000'123'456'789, "spot reclaimed", 30'000'000'000},
      NoticeOver{kHost, true},
  };
}

template <class R>
std::string bytes(const R& record) {
  return wire::body_of(record);
}

std::string bytes_of(const Record& record) {
  return std::visit([](const auto& r) { return bytes(r); }, record);
}

}  // namespace

TEST_CASE("job records: a host's way is kept, and a record without one is as it always was",
          "[job_records]") {
  const auto back =
      record_from(to_frame(FileTaken{Edit(3), {{{"u", "n7", 0, StarterKind::kSsh, "0-3"}, 2}}}));
  REQUIRE(back);
  CHECK(std::get<FileTaken>(*back).hosts.at(0).host.via == StarterKind::kSsh);
  CHECK(std::get<FileTaken>(*back).hosts.at(0).host.gpus == "0-3");
  // u32 length and "me", u32 length and "10.0.0.7", u16 port.
  CHECK(bytes(HostPrepared{kHost}) == std::string("\x02\0\0\0me\x08\0\0\0"
                                                  "10.0.0.7"
                                                  "\xae\x08",
                                                  20));
}

TEST_CASE("job records: each comes back from the journal as it was written", "[job_records]") {
  const auto records = one_of_each();
  REQUIRE(records.size() == std::variant_size_v<Record>);
  for (const Record& record : records) {
    const wire::Frame frame = to_frame(record);
    CAPTURE(frame.type);
    const auto back = record_from(frame);
    REQUIRE(back);
    CHECK(back->index() == record.index());
    CHECK(bytes_of(*back) == bytes_of(record));
  }
}

TEST_CASE("job records: an unknown type, a missing byte or one too many is an error",
          "[job_records]") {
  CHECK(record_from({999, ""}).error().kind == ErrorKind::kProtocol);
  for (const Record& record : one_of_each()) {
    wire::Frame frame = to_frame(record);
    CAPTURE(frame.type);
    wire::Frame longer = frame;
    longer.body += '\0';
    CHECK_FALSE(record_from(longer));
    frame.body.pop_back();
    CHECK_FALSE(record_from(frame));
  }
}

TEST_CASE("job records: the log's lines are those of commits, ends and cuts, by number",
          "[job_records]") {
  const auto lines = log_lines(one_of_each());
  REQUIRE(lines.size() == 6);
  CHECK(lines[0].seq == 0);
  CHECK(lines[1].seq == 1);
  CHECK(lines[2].seq == 5);
  CHECK(lines[2].added);
  CHECK(lines[3].seq == 6);
  CHECK_FALSE(lines[3].added);
  CHECK(lines[4].seq == 7);
  CHECK(lines[5].seq == 8);
}

TEST_CASE("job records: any bytes give a record or an error", "[job_records][property]") {
  CHECK(rc::check("no crash, and what is read is written the same", [] {
    wire::Frame frame;
    frame.type = *rc::gen::inRange<std::uint16_t>(0, 12);
    frame.body = *rc::gen::arbitrary<std::string>();
    if (const auto record = record_from(frame)) RC_ASSERT(bytes_of(*record) == frame.body);
  }));
}
