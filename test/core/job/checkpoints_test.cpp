#include "core/job/checkpoints.h"

#include "test/core/job/machines.h"

using namespace dt;
using namespace dt::test;

namespace {

/// In epoch 0 of a job with a checkpoint every so many epochs, or by time; 0 and no interval: none.
struct Saves {
  explicit Saves(std::uint32_t every = 2, Duration interval = {})
      : job(options(every, interval), [this](const Record& r) {
          std::visit([this](const auto& one) { apply_to(one, checkpoints, ignored); }, r);
        }) {
    at(0s);
    job.boundary.begin({WorkerId(0)});
    job.boundary.begin_epoch(Epoch(0));
  }
  static JobOptions options(std::uint32_t every, Duration interval) {
    JobOptions options;
    options.checkpoint_every = every;
    options.checkpoint_interval = interval;
    return options;
  }
  void at(Duration then) { job.begin({Time{} + then, then.count()}); }
  bool is_due(std::uint32_t epoch, Duration then) {
    at(then);
    return checkpoints.saves_at(Epoch(epoch));
  }
  void commit(std::uint32_t epoch, bool saves = true) {
    Committed c;
    c.generation = Generation(epoch);
    c.boundary = true;
    c.epoch = Epoch(epoch);
    c.saves = saves;
    checkpoints.apply(c);
  }
  void saved(std::uint32_t server, std::uint32_t epoch, const char* why = "") {
    Saved file;
    file.epoch = Epoch(epoch);
    file.generation = Generation(epoch);
    file.why = why;
    file.bytes = 50;
    checkpoints.saved({ServerId(server), file}, kHostA, 2);
  }
  /// Saves what is due before `epoch`: begun then, whole after `took`.
  void save(std::uint32_t epoch, Duration begun, Duration took) {
    REQUIRE(is_due(epoch, begun));
    commit(epoch);
    saved(0, epoch);
    saved(1, epoch);
    at(begun + took);
    checkpoints.sealed({Generation(epoch), ""});
  }
  std::size_t effects() { return job.take().size(); }

  struct Ignored {
    template <class R>
    void apply(const R&) {}
  } ignored;
  JobContext job;
  Checkpoints checkpoints{job};
};

}  // namespace

TEST_CASE("checkpoints: by time, at the first boundary and then after a minute", "[checkpoints]") {
  Saves s(0, 60s);
  CHECK_FALSE(s.is_due(1, 1s));  // no place is known yet
  s.checkpoints.place_seen({"b does not see it"}, {});
  CHECK_FALSE(s.is_due(1, 1s));
  s.checkpoints.place_seen({""}, {});
  s.save(2, 5s, 1s);
  CHECK_FALSE(s.is_due(3, 64s));
  s.save(3, 65s, 1s);
  CHECK(s.checkpoints.newest() == Epoch(3));
  CHECK(s.checkpoints.bytes() == 100);
}

TEST_CASE("checkpoints: by time they cost a twentieth of it at most", "[checkpoints]") {
  Saves s(0, 60s);
  s.checkpoints.place_seen({""}, {});
  s.save(1, 0s, 10s);
  CHECK_FALSE(s.is_due(2, 199s));
  CHECK(s.is_due(2, 200s));
}

TEST_CASE("checkpoints: by time, one that was given up is tried again after the interval",
          "[checkpoints]") {
  Saves s(0, 60s);
  s.checkpoints.place_seen({""}, {});
  s.commit(1);
  s.saved(0, 1, "no space left");
  CHECK_FALSE(s.is_due(2, 59s));
  CHECK(s.is_due(2, 60s));
  // An epoch that begins once more has had its own.
  RolledBack back;
  back.epoch = Epoch(2);
  s.checkpoints.apply(back);
  CHECK_FALSE(s.is_due(2, 60s));
}

TEST_CASE("checkpoints: by time, one that is late is told once, and by epochs each time",
          "[checkpoints]") {
  for (const std::uint32_t every : {0U, 1U}) {
    Saves s(every, 60s);
    s.checkpoints.place_seen({""}, {});
    s.commit(1);
    CHECK_FALSE(s.is_due(2, 60s));
    CHECK(s.effects() == 1);
    CHECK_FALSE(s.is_due(3, 120s));
    CHECK(s.effects() == every);
  }
}

TEST_CASE("checkpoints: by epochs neither time nor place matter", "[checkpoints]") {
  Saves s(2);
  CHECK(s.is_due(2, 0s));
  CHECK_FALSE(s.is_due(3, 1000s));
  Saves never(0);
  never.checkpoints.place_seen({""}, {});
  CHECK_FALSE(never.is_due(2, 1000s));
}

TEST_CASE("checkpoints: a boundary that is due passes while one is being written",
          "[checkpoints]") {
  Saves s;
  CHECK_FALSE(s.checkpoints.saves_at(Epoch(1)));
  CHECK(s.checkpoints.saves_at(Epoch(2)));
  s.commit(2);
  CHECK(s.checkpoints.commit_that_saves() == Generation(2));
  CHECK_FALSE(s.checkpoints.saves_at(Epoch(3)));
  CHECK(s.checkpoints.trouble().empty());
  s.commit(3, false);
  CHECK_FALSE(s.checkpoints.commit_that_saves());
  CHECK_FALSE(s.checkpoints.saves_at(Epoch(4)));
  CHECK_FALSE(s.checkpoints.trouble().empty());
}

TEST_CASE("checkpoints: one is sealed when every server's file is there, and counts then",
          "[checkpoints]") {
  Saves s;
  s.commit(2);
  s.saved(0, 2);
  s.saved(0, 2);
  CHECK(s.effects() == 0);
  s.saved(1, 2);
  CHECK(s.effects() == 1);
  CHECK_FALSE(s.checkpoints.newest());
  s.checkpoints.sealed({Generation(2), ""});
  CHECK(s.checkpoints.newest() == Epoch(2));
}

TEST_CASE("checkpoints: one file that is missing gives it up, until the next is whole",
          "[checkpoints]") {
  Saves s;
  s.commit(2);
  s.saved(0, 2);
  s.saved(1, 2, "no space left");
  s.checkpoints.sealed({Generation(2), ""});
  CHECK_FALSE(s.checkpoints.newest());
  CHECK(s.checkpoints.trouble().find("no space left") != std::string::npos);
  CHECK(s.checkpoints.saves_at(Epoch(4)));
  s.commit(4);
  s.saved(0, 4);
  s.saved(1, 4);
  s.checkpoints.sealed({Generation(4), ""});
  CHECK(s.checkpoints.newest() == Epoch(4));
  CHECK(s.checkpoints.trouble().empty());
}

TEST_CASE("checkpoints: a missing place is noted when it goes and when it comes", "[checkpoints]") {
  Saves s(0, 60s);
  const std::set<Host> servers{kHostA};
  s.checkpoints.place_seen({"no volume"}, servers);
  CHECK(s.effects() == 1);
  CHECK(s.checkpoints.no_checkpoints(servers) ==
        "no checkpoints (no volume): the loss of a ends the job");
  CHECK_FALSE(s.checkpoints.saves_at(Epoch(1)));
  s.checkpoints.place_seen({"no volume"}, servers);
  CHECK(s.effects() == 0);
  s.checkpoints.place_seen({""}, servers);
  CHECK(s.effects() == 1);
  CHECK(s.checkpoints.saves_at(Epoch(1)));
}

TEST_CASE("checkpoints: a wall clock that was set back does not put the next one off",
          "[checkpoints]") {
  Saves s(0, 60s);
  s.checkpoints.place_seen({""}, {});
  CheckpointTimed later;
  later.began_ns = Duration(24h).count();
  s.checkpoints.apply(later);
  CHECK_FALSE(s.is_due(1, 59s));
  CHECK(s.is_due(1, 60s));
}
