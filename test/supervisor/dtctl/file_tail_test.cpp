#include "supervisor/dtctl/file_tail.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "test/supervisor/loop.h"

using namespace dt;
using namespace dt::supervisor;

TEST_CASE("file tail: a long file comes in pieces, and what is appended after it", "[file_tail]") {
  test::TempDir dir;
  const std::string path = dir / "worker-0.log";
  FileTail tail(path);
  CHECK(tail.more().empty());
  std::string written;
  for (int i = 0; i < 100'000; ++i) written += "line " + std::to_string(i) + "\n";
  std::ofstream(path) << written;
  std::string read;
  for (std::string piece = tail.more(); !piece.empty(); piece = tail.more()) {
    CHECK(piece.size() <= FileTail::kPiece);
    read += piece;
  }
  CHECK(read == written);
  std::ofstream(path, std::ios::app) << "more\n";
  CHECK(tail.more() == "more\n");
  // Rotated with an unread line at its end, which comes first.
  std::ofstream(path, std::ios::app) << "last\n";
  std::filesystem::rename(path, path + ".1");
  std::ofstream(path) << "new\n";
  CHECK(tail.more() == "last\n");
  CHECK(tail.more() == "new\n");
  CHECK(tail.more().empty());
}

TEST_CASE("file tail: a file of many gigabytes takes no more memory than a piece", "[file_tail]") {
  test::TempDir dir;
  const std::string path = dir / "worker-0.log";
  std::ofstream(path) << "begin\n";
  constexpr std::uintmax_t kHuge = std::uintmax_t{50} << 30;  // a hole
  std::filesystem::resize_file(path, kHuge);
  FileTail tail(path);
  for (int i = 0; i < 1000; ++i) REQUIRE(tail.more().size() == FileTail::kPiece);
}

TEST_CASE("screen text: nothing that a terminal obeys, whole characters, ends of lines",
          "[file_tail]") {
  CHECK(screen_text("a\x1b]0;title\x07\nb\r\n\x1b[2Jc\xc2\x9b"
                    "2J\n") == "a\\x1b]0;title\\x07\nb\n\\x1b[2Jc\\xc2\\x9b2J\n");
  const std::string text = "gr\xc3\xbc\xc3\x9f \xf0\x9f\x99\x82 \x1b[31mred\x1b[0m\n\x1b[2J";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    ScreenText screen;
    const std::string first = screen.feed(text.substr(0, cut));
    const std::string second = screen.feed(text.substr(cut));
    REQUIRE(first + second + screen.finish() == screen_text(text));
  }
}
