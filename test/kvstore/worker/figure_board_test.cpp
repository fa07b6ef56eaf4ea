#include "kvstore/worker/figure_board.h"

#include <limits>

#include "test/support/catch.h"

using namespace dt;
using namespace dt::kv;

TEST_CASE("figures: a step's samples count once, however many calls push its keys", "[figures]") {
  FigureBoard board;
  CHECK_FALSE(board.take());
  for (int step = 0; step < 3; ++step) {
    board.pushed("fc2.weight", 64);  // the first key that is pushed
    board.pushed("fc1.weight", 64);
  }
  REQUIRE(board.take().value().samples == 3 * 64);
  CHECK_FALSE(board.take());  // nothing is new
  board.pushed("fc2.weight", 10);
  CHECK(board.take().value().samples == 3 * 64 + 10);
}

TEST_CASE("figures: the latest value of each name, without those that are not finite",
          "[figures]") {
  FigureBoard board;
  CHECK(board.report("train_loss", 0.5));
  CHECK(board.report("train_loss", 0.25));
  CHECK(board.report("train_loss", std::numeric_limits<double>::quiet_NaN()));
  CHECK(board.report("steps_in_epoch", 938.0));
  const auto figures = board.take();
  REQUIRE(figures);
  CHECK(figures->values == std::vector<std::pair<std::string, double>>{{"train_loss", 0.25}});
  CHECK(figures->dropped == 1);
  CHECK(figures->steps_in_epoch == 938);
  CHECK(board.report("steps_in_epoch", -1.0));
  CHECK(board.take().value().steps_in_epoch == 0);
}

TEST_CASE("figures: a worker has 32 names, and is warned once of each other one", "[figures]") {
  FigureBoard board;
  for (int i = 0; i < 32; ++i) CHECK(board.report("f" + std::to_string(i), 1.0 * i));
  CHECK_FALSE(board.report("one_more", 1.0));
  CHECK(board.report("one_more", "2"));
  CHECK(board.report("f31", "a text in place of a number"));
  const auto figures = board.take();
  REQUIRE(figures);
  CHECK(figures->values.size() == 31);
  CHECK(figures->texts ==
        std::vector<std::pair<std::string, std::string>>{{"f31", "a text in place of a number"}});
  CHECK(board.report("steps_in_epoch", 7.0));
  CHECK(board.take().value().steps_in_epoch == 7);
}

TEST_CASE("figures: what the worker waits in is news once", "[figures]") {
  FigureBoard board;
  board.waits(nullptr);
  CHECK_FALSE(board.take());
  Request barrier;
  barrier.header.type = data::Type::kBarrier;
  board.waits(&barrier);
  const auto figures = board.take();
  REQUIRE(figures);
  CHECK(figures->waits_key == WaitingFor::kNoKey);
  CHECK(figures->waits_in == "barrier()");
  board.waits(&barrier);
  CHECK_FALSE(board.take());
}
