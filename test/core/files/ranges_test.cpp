#include "core/files/ranges.h"

#include <rapidcheck.h>

#include <algorithm>
#include <set>

#include "test/support/catch.h"

using namespace dt;

namespace {

std::vector<Host> hosts(std::string_view text) {
  std::vector<Host> out;
  const auto lines = parse_hosts(text, "hosts");
  REQUIRE(lines);
  for (const HostLine& line : *lines) out.push_back(line.host);
  return out;
}

std::string folded(std::string_view text) {
  return fmt::format("{}", fmt::join(fold_hosts(hosts(text)), " "));
}

/// Names that have much in common, so that there is something to fold.
rc::Gen<Host> similar_host() {
  const auto number = rc::gen::element<std::string>("0", "1", "2", "3", "9", "10", "11", "00", "01",
                                                    "02", "08", "09", "010", "1234567890");
  const auto text = rc::gen::element<std::string>("n", "n", "rack", "-", ".", "a.b");
  const auto name = rc::gen::map(
      rc::gen::tuple(rc::gen::element<std::string>("n", "n", "10.0.0.", "1"), number, text, number,
                     rc::gen::arbitrary<bool>()),
      [](const std::tuple<std::string, std::string, std::string, std::string, bool>& p) {
        const auto& [head, first, between, second, is_long] = p;
        return head + first + (is_long ? between + second : "");
      });
  return rc::gen::construct<Host>(
      rc::gen::element<std::string>("", "", "me"),
      rc::gen::oneOf(name, name, rc::gen::element<std::string>("::1", "fe80::2")),
      rc::gen::element<std::uint16_t>(0, 0, 22));
}

}  // namespace

TEST_CASE("ranges: hosts fold into the words that one would write", "[ranges]") {
  const auto [text, expected] = GENERATE(table<std::string, std::string>({
      {"", ""},
      {"a", "a"},
      {"n7", "n7"},
      {"n[1-3]", "n[1-3]"},
      {"n3\nn1\nn2\nn1", "n[1-3]"},
      {"n[1-2]\nn[4-7]\nn9", "n[1-2,4-7,9]"},
      {"n[8-12]", "n[8-12]"},
      {"n[008-012]", "n[008-012]"},
      {"n[098-102]", "n[098-102]"},
      {"n[08-09]\nn[10-11]", "n[08-11]"},
      {"n9\nn010\nn11", "n[9,010,11]"},
      {"n1\nn01", "n[1,01]"},
      {"10.0.0.[250-252]\n10.0.1.7", "10.0.0.[250-252] 10.0.1.7"},
      {"rack[0-1]n[01-16]", "rack0n[01-16] rack1n[01-16]"},
      {"n[1-3].rack2.example.com", "n[1-3].rack2.example.com"},
      {"[1-3]", "[1-3]"},
      {"me@n[1-3]:22\nn[1-2]", "n[1-2] me@n[1-3]:22"},
      {"a\nb\nc", "a b c"},
      {"[fe80::1]\n[fe80::2]:22", "[fe80::1] [fe80::2]:22"},
      {"n999999999\nn1000000000", "n1000000000 n999999999"},
  }));
  CHECK(folded(text) == expected);
}

TEST_CASE("ranges: what is folded expands to the same hosts, each once", "[ranges][property]") {
  CHECK(rc::check([] {
    const auto before = *rc::gen::container<std::vector<Host>>(similar_host());
    std::set<Host> wanted(before.begin(), before.end());
    // An address that is none cannot be read back, whoever wrote it.
    std::erase_if(wanted, [](const Host& host) { return !parse_hosts(to_string(host), "h"); });
    const auto words = fold_hosts({wanted.begin(), wanted.end()});
    const auto after = parse_hosts(fmt::format("{}", fmt::join(words, "\n")), "folded");
    if (!after) RC_FAIL(after.error().message);
    std::set<Host> found;
    for (const HostLine& line : *after) found.insert(line.host);
    RC_ASSERT(found == wanted);
    RC_ASSERT(after->size() == wanted.size());
    RC_ASSERT(words.size() <= wanted.size());
    // The order of the hosts does not matter.
    std::vector<Host> backwards(wanted.rbegin(), wanted.rend());
    RC_ASSERT(fold_hosts(backwards) == words);
  }));
}

TEST_CASE("ranges: numbers fold into ascending ranges", "[ranges]") {
  CHECK(fold_numbers({}).empty());
  CHECK(fold_numbers({7}) == "7");
  CHECK(fold_numbers({3, 1, 2, 2, 9, 8, 5}) == "1-3,5,8-9");
  CHECK(fold_numbers({0, 18446744073709551615U}) == "0,18446744073709551615");
}
