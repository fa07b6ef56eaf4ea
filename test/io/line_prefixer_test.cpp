#include "io/line_prefixer.h"

#include <rapidcheck.h>

#include "io/log.h"
#include "test/support/catch.h"

using dt::io::LinePrefixer;

TEST_CASE("line prefixer: every line gets the prefix, an unfinished one waits", "[prefixer]") {
  LinePrefixer p("[w] ");
  CHECK(p.feed("one\ntwo\nthr") == "[w] one\n[w] two\n");
  CHECK(p.feed("e").empty());
  CHECK(p.feed("e\n\n") == "[w] three\n[w] \n");
  CHECK(p.finish().empty());
  CHECK(p.feed("end").empty());
  CHECK(p.finish() == "[w] end\n");
  CHECK(p.finish().empty());
}

TEST_CASE("line prefixer: CRLF ends a line once, however it is cut", "[prefixer]") {
  LinePrefixer p("> ");
  CHECK(p.feed("a\r\nb\r") == "> a\n");
  CHECK(p.feed("\nc\r\n") == "> b\n> c\n");
}

TEST_CASE("line prefixer: a progress bar shows its last state once its line ends", "[prefixer]") {
  LinePrefixer p("> ");
  CHECK(p.feed("10%\r20%\r").empty());
  CHECK(p.feed("100%\n") == "> 100%\n");
  CHECK(p.feed("10%\r20%\r\n") == "> 20%\n");
}

TEST_CASE("line prefixer: a progress bar can be asked how far it is, once per state",
          "[prefixer]") {
  LinePrefixer p("> ");
  CHECK(p.take_progress().empty());
  CHECK(p.feed("10%\r20%\r").empty());
  CHECK(p.take_progress() == "> 20%\n");
  CHECK(p.take_progress().empty());
  // tqdm writes "\r" first, so the newest state may be incomplete.
  CHECK(p.feed("\r30%\r4").empty());
  CHECK(p.take_progress() == "> 30%\n");
  CHECK(p.take_progress().empty());
  CHECK(p.feed("0%\n") == "> 40%\n");
  // An ordinary line that has not ended is no progress bar.
  CHECK(p.feed("half a li").empty());
  CHECK(p.take_progress().empty());
  CHECK(p.feed("ne\n") == "> half a line\n");
}

TEST_CASE("line prefixer: a line over the limit is cut and marked", "[prefixer]") {
  LinePrefixer p("> ", 8);
  CHECK(p.feed("abcdefgh\n") == "> abcdefgh\n");
  CHECK(p.feed("abcdefghij\nk\n") == "> abcdefgh ...\n> ... ij\n> k\n");
  CHECK(p.feed("aaaaaaaabbbbbbbbc") == "> aaaaaaaa ...\n> ... bbbbbbbb ...\n");
  CHECK(p.finish() == "> ... c\n");
}

TEST_CASE("line prefixer: a cut never tears a UTF-8 character", "[prefixer]") {
  LinePrefixer p("", 8);
  CHECK(p.feed("1234567\xc3\xa4x\n") == "1234567 ...\n... \xc3\xa4x\n");
  CHECK(p.feed("123456\xc3\xa4x\n") == "123456\xc3\xa4 ...\n... x\n");
  CHECK(p.feed("12345\xf0\x9f\x98\x80x\n") == "12345 ...\n... \xf0\x9f\x98\x80x\n");
}

TEST_CASE("line prefixer: bytes that confuse a terminal are shown, colours stay", "[prefixer]") {
  LinePrefixer p("");
  CHECK(p.feed("\x1b[31;1mred\x1b[0m\tx\n") == "\x1b[31;1mred\x1b[0m\tx\n");
  CHECK(p.feed(std::string_view("\0\x07\x1b]0;t\x1b[2J\x7f\n", 13)) ==
        "\\x00\\x07\\x1b]0;t\\x1b[2J\\x7f\n");
  CHECK(p.feed("\x1b\n\x1b[\n\x1b[3\n") == "\\x1b\n\\x1b[\n\\x1b[3\n");
  CHECK(p.feed("\x9b"
               "2J \xc2\x9b"
               "2J \xc3\x9f\xe2\x82\xac\xf0\x9f\x98\x80\x9b \xe4\n") ==
        "\\x9b"
        "2J \\xc2\\x9b"
        "2J \xc3\x9f\xe2\x82\xac\xf0\x9f\x98\x80\\x9b \xe4\n");
}

TEST_CASE("line prefixer: a 10 MB line comes out whole in pieces", "[prefixer]") {
  LinePrefixer p("[worker 1 10.0.0.7] ");
  const std::string block(10'000, 'x');
  std::size_t seen = 0;
  std::size_t longest = 0;
  const auto look = [&](const std::string& out) {
    std::size_t begin = 0;
    for (std::size_t end; (end = out.find('\n', begin)) != std::string::npos; begin = end + 1) {
      longest = std::max(longest, end - begin);
      seen += static_cast<std::size_t>(std::count(out.begin() + static_cast<long>(begin),
                                                  out.begin() + static_cast<long>(end), 'x'));
    }
    CHECK(begin == out.size());
  };
  for (int i = 0; i < 1000; ++i) look(p.feed(block));
  look(p.feed("\n"));
  CHECK(seen == 10'000'000);
  CHECK(longest < LinePrefixer::kLongestLine + 100);
}

TEST_CASE("line prefixer: where the stream is cut does not matter", "[prefixer][property]") {
  CHECK(rc::check([] {
    const auto text = *rc::gen::container<std::string>(
        rc::gen::elementOf(std::string("ab\n\r\x1b[1m\0\xc3\xa4", 11)));
    LinePrefixer whole("> ", 8);
    std::string expected = whole.feed(text);
    expected += whole.finish();
    LinePrefixer pieces("> ", 8);
    std::string got;
    for (std::size_t at = 0; at < text.size();) {
      const auto n = *rc::gen::inRange<std::size_t>(1, 6);
      got += pieces.feed(std::string_view(text).substr(at, n));
      at += n;
    }
    got += pieces.finish();
    RC_ASSERT(got == expected);
    RC_ASSERT(got.empty() || (got.starts_with("> ") && got.back() == '\n'));
  }));
}

TEST_CASE("log: a line has nothing in it that a terminal would obey", "[log]") {
  // An error may end with the words of a server somewhere.
  const std::string line = dt::io::console_line(dt::io::Level::kError,
                                                "ssh: \x1b]0;title\x07 \xc2\x9b"
                                                "2J \x7f f\xc3\xbcr\nnext");
  CHECK(
      line.ends_with("ERROR ssh: \\x1b]0;title\\x07 \\xc2\\x9b"
                     "2J \\x7f f\xc3\xbcr\nnext"));
}
