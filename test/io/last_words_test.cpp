#include "io/last_words.h"

#include "test/support/catch.h"

using namespace dt;

TEST_CASE("last words: one line, long ones with their beginning and their end", "[words]") {
  CHECK(io::on_one_line("") == "");
  CHECK(io::on_one_line("\r\n one\r\n\r\ntwo  \n") == "one two");
  CHECK(io::on_one_line("------\nmpirun has detected\n------\n") == "mpirun has detected");
  CHECK(io::on_one_line("- a dash is no rule\n") == "- a dash is no rule");
  CHECK(io::on_one_line("the cause" + std::string(500, '.') + "the end", 25) ==
        "the cause. ... ...the end");
  CHECK(io::on_one_line("\x1b[1;31merror\x1b[m: \x1b[2J\xc2\x9b"
                        "2J \x9b"
                        "2J gr\xc3\xbc\xc3\x9f") ==
        "error: \\x1b[2J\\xc2\\x9b2J \\x9b2J gr\xc3\xbc\xc3\x9f");
  CHECK(io::last_line("") == "");
  CHECK(io::last_line("one\n two \r\n \n\n") == "two");
  CHECK(io::last_line("\x1b]0;title\x07") == "\\x1b]0;title\\x07");
}

TEST_CASE("last words: a cut leaves no byte that a terminal takes for a sequence", "[words]") {
  std::string arrows;
  while (arrows.size() < 300) arrows += "\xe2\x86\x9b";
  for (std::size_t most = 5; most < 20; ++most)
    CHECK(io::on_one_line(arrows, most).find(" \x9b") == std::string::npos);
}
