#include "launcher/agent/spool.h"

#include "test/support/catch.h"

using dt::launcher::Spool;

TEST_CASE("spool: small writes join, streams stay apart, order holds", "[launcher]") {
  Spool spool(1 << 20, 0);
  spool.push(false, "a");
  spool.push(false, "b");
  spool.push(true, "E");
  spool.push(false, "c");
  auto piece = spool.pop();
  CHECK(piece.bytes == "ab");
  CHECK_FALSE(piece.is_stderr);
  CHECK(spool.pop().is_stderr);
  piece = spool.pop();
  CHECK(piece.bytes == "c");
  CHECK(piece.offset == 3);
  CHECK(spool.empty());
  CHECK(spool.bytes() == 0);
}

TEST_CASE("spool: it is bounded, drops the oldest and counts what it dropped", "[launcher]") {
  Spool spool(300'000, 0);
  for (int i = 0; i < 100'000; ++i) spool.push(i % 2 == 0, "0123456789");
  CHECK(spool.bytes() <= 300'000);
  std::uint64_t seen = 0;
  std::uint64_t lost = 0;
  while (!spool.empty()) {
    const auto piece = spool.pop();
    lost += piece.lost_before;
    seen += piece.bytes.size();
  }
  CHECK(lost > 0);
  CHECK(seen + lost == 1'000'000);
}

TEST_CASE("spool: what was handed out comes again from the byte that is wanted", "[launcher]") {
  Spool spool(1 << 20, 1 << 20);
  spool.push(false, "hello");
  spool.push(true, "world");
  static_cast<void>(spool.pop());
  static_cast<void>(spool.pop());
  spool.push(false, "!");
  spool.rewind(3);
  auto piece = spool.pop();
  CHECK(piece.bytes == "lo");
  CHECK(piece.offset == 3);
  CHECK(piece.lost_before == 0);
  CHECK(spool.pop().bytes == "world");
  CHECK(spool.pop().bytes == "!");
  spool.rewind(11);  // all bytes were received
  CHECK(spool.empty());
  spool.rewind(99);  // more than was written cannot have been received
  CHECK(spool.empty());
}

TEST_CASE("spool: a piece can be cut, and what comes again takes no room from what is new",
          "[launcher]") {
  Spool spool(100'000, 100'000);
  spool.push(false, std::string(60'000, 'a'));
  CHECK(spool.pop(10).bytes == std::string(10, 'a'));
  auto piece = spool.pop();
  CHECK(piece.offset == 10);
  CHECK(piece.bytes.size() == 59'990);
  spool.push(true, std::string(90'000, 'b'), dt::OutputLoss::kVolume);
  spool.rewind(0);
  spool.push(true, std::string(9000, 'c'), dt::OutputLoss::kVolume);
  CHECK(spool.pop().bytes == std::string(10, 'a'));
  CHECK(spool.pop().bytes == std::string(59'990, 'a'));
  spool.push(true, std::string(90'000, 'd'), dt::OutputLoss::kVolume);
  piece = spool.pop();
  CHECK(piece.lost_before > 0);
  CHECK(piece.why_lost == dt::OutputLoss::kVolume);
}

TEST_CASE("spool: what is dropped is counted, with what was lost before", "[launcher]") {
  Spool spool(1000, 1000);
  spool.push(false, std::string(900, 'a'));
  CHECK(spool.pop(100).lost_before == 0);
  spool.push(true, std::string(900, 'b'));  // 800 of the others make room
  const auto end = spool.drop();
  CHECK(end.lost_before == 1700);
  CHECK(end.offset == 1800);
  CHECK(end.bytes.empty());
  CHECK(spool.empty());
  CHECK(spool.bytes() == 0);
  spool.push(false, "c");
  CHECK(spool.pop().lost_before == 0);
}

TEST_CASE("spool: what is no longer kept counts as lost", "[launcher]") {
  Spool spool(1 << 20, 100);
  spool.push(false, "first");
  static_cast<void>(spool.pop());
  spool.push(true, std::string(30, 'x'));
  static_cast<void>(spool.pop());
  spool.rewind(0);
  const auto piece = spool.pop();
  CHECK(piece.lost_before == 5);
  CHECK(piece.bytes == std::string(30, 'x'));
}
