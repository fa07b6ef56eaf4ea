#include "core/launch/lines.h"

#include <rapidcheck.h>

#include "test/support/catch.h"

namespace dt {
namespace {

std::string all_bytes(std::size_t size) {
  std::string out;
  for (std::size_t i = 0; i < size; ++i) out.push_back(static_cast<char>(i * 7 + i / 256));
  return out;
}

/// What comes out when `coded` arrives in pieces of `piece` bytes.
Result<std::string> decoded(std::string_view coded, std::size_t piece) {
  LineDecoder decoder;
  std::string out;
  for (; !coded.empty(); coded.remove_prefix(std::min(piece, coded.size())))
    if (const auto fed = decoder.feed(coded.substr(0, piece), out); !fed)
      return tl::unexpected(fed.error());
  return out;
}

TEST_CASE("lines: any bytes come out as they went in, and each piece ends a line", "[lines]") {
  for (const std::string& bytes :
       {std::string("x"), std::string(70'000, '\n'), all_bytes(64 << 10), all_bytes(1 << 20)}) {
    std::string coded;
    append_lines(coded, bytes);
    CHECK(coded.back() == '\n');
    for (const std::size_t piece : {std::size_t{1}, std::size_t{1000}, coded.size()})
      CHECK(decoded(coded, piece) == bytes);
  }
  std::string nothing;
  append_lines(nothing, "");
  CHECK(nothing.empty());
}

TEST_CASE("lines: the end is seen, and what follows it is ignored", "[lines]") {
  std::string coded;
  append_lines(coded, "last");
  append_end(coded);
  LineDecoder decoder;
  std::string out;
  REQUIRE(decoder.feed(coded.substr(0, coded.size() - 1), out));
  CHECK(decoder.has_ended());
  REQUIRE(decoder.feed("srun: something", out));
  CHECK(out == "last");
}

TEST_CASE("lines: text in between and impossible lengths are errors", "[lines]") {
  std::string coded;
  append_lines(coded, "bytes");
  CHECK_FALSE(decoded("srun: warning: printed into it\n", 100));
  CHECK_FALSE(decoded(coded.substr(0, coded.size() - 1) + "x", 100));
  CHECK_FALSE(decoded(std::string("\1\0\1\0", 4), 1));  // kMostInLine + 1
}

TEST_CASE("lines: any text in any pieces", "[lines]") {
  CHECK(rc::check([](const std::vector<std::string>& texts, std::uint8_t piece) {
    std::string coded;
    std::string all;
    for (const std::string& text : texts) {
      append_lines(coded, text);
      all += text;
    }
    RC_ASSERT(decoded(coded, piece + std::size_t{1}) == all);
  }));
}

}  // namespace
}  // namespace dt
