#include "core/job/checkpoint_saver.h"

#include "test/core/job/machines.h"

using namespace dt;
using namespace dt::test;

namespace {

/// A saver in epoch 0 of a job with a checkpoint every two epochs, or by time.
struct Saves {
  static JobOptions options(std::uint32_t every) {
    JobOptions options;
    options.checkpoint_every = every;
    options.checkpoint_interval = every > 0 ? 0s : 60s;
    return options;
  }
  explicit Saves(std::uint32_t every = 2)
      : job(options(every), [this](const Record& r) {
          if (const auto* taken = std::get_if<CheckpointTaken>(&r)) saver.apply(*taken);
        }) {
    at(0s);
    job.boundary.begin({WorkerId(0)});
    job.boundary.begin_epoch(Epoch(0));
  }
  void at(Duration then) { job.begin({Time{} + then, then.count()}); }
  void commit(std::uint32_t epoch, bool saves = true) {
    Committed c;
    c.generation = Generation(epoch);
    c.boundary = true;
    c.epoch = Epoch(epoch);
    c.saves = saves;
    saver.apply(c);
  }
  void saved(std::uint32_t server, std::uint32_t epoch, const char* why = "") {
    dt::Saved file;
    file.epoch = Epoch(epoch);
    file.generation = Generation(epoch);
    file.why = why;
    saver.saved({ServerId(server), file}, kHostA, 2);
  }
  std::size_t effects() { return job.take().size(); }

  JobContext job;
  CheckpointSaver saver{job};
};

}  // namespace

TEST_CASE("checkpoint saver: a boundary that is due passes while one is being written",
          "[checkpoint_saver]") {
  Saves s;
  CHECK_FALSE(s.saver.saves_at(Epoch(1)));
  CHECK(s.saver.saves_at(Epoch(2)));
  s.commit(2);
  CHECK(s.saver.commit_that_saves() == Generation(2));
  CHECK_FALSE(s.saver.saves_at(Epoch(3)));
  CHECK(s.saver.trouble().empty());
  s.commit(3, false);
  CHECK_FALSE(s.saver.commit_that_saves());
  CHECK_FALSE(s.saver.saves_at(Epoch(4)));
  CHECK_FALSE(s.saver.trouble().empty());
}

TEST_CASE("checkpoint saver: it is sealed when every server's file is there, and counts then",
          "[checkpoint_saver]") {
  Saves s;
  s.commit(2);
  s.saved(0, 2);
  s.saved(0, 2);
  CHECK(s.effects() == 0);
  s.saved(1, 2);
  CHECK(s.effects() == 1);
  CHECK_FALSE(s.saver.checkpoints().newest());
  s.saver.sealed({Generation(2), ""});
  CHECK(s.saver.checkpoints().newest() == Epoch(2));
}

TEST_CASE("checkpoint saver: one file that is missing gives it up, until the next is whole",
          "[checkpoint_saver]") {
  Saves s;
  s.commit(2);
  s.saved(0, 2);
  s.saved(1, 2, "no space left");
  s.saver.sealed({Generation(2), ""});
  CHECK_FALSE(s.saver.checkpoints().newest());
  CHECK(s.saver.trouble().find("no space left") != std::string::npos);
  CHECK(s.saver.saves_at(Epoch(4)));
  s.commit(4);
  s.saved(0, 4);
  s.saved(1, 4);
  s.saver.sealed({Generation(4), ""});
  CHECK(s.saver.checkpoints().newest() == Epoch(4));
  CHECK(s.saver.trouble().empty());
}

TEST_CASE("checkpoint saver: a missing place is noted when it goes and when it comes",
          "[checkpoint_saver]") {
  Saves s(0);
  const std::set<Host> servers{kHostA};
  s.saver.place_seen({"no volume"}, servers);
  CHECK(s.effects() == 1);
  CHECK(s.saver.no_checkpoints(servers) ==
        "no checkpoints (no volume): the loss of a ends the job");
  CHECK_FALSE(s.saver.saves_at(Epoch(1)));
  s.saver.place_seen({"no volume"}, servers);
  CHECK(s.effects() == 0);
  s.saver.place_seen({""}, servers);
  CHECK(s.effects() == 1);
  CHECK(s.saver.saves_at(Epoch(1)));
}

TEST_CASE("checkpoint saver: a wall clock that was set back does not put the next one off",
          "[checkpoint_saver]") {
  Saves s(0);
  s.saver.place_seen({""}, {});
  CheckpointTimed later;
  later.began_ns = Duration(24h).count();
  s.saver.apply(later);
  s.at(59s);
  CHECK_FALSE(s.saver.saves_at(Epoch(1)));
  s.at(60s);
  CHECK(s.saver.saves_at(Epoch(1)));
}
