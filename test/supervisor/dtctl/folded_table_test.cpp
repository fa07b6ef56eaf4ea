#include "supervisor/dtctl/folded_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "test/support/catch.h"

using namespace dt;
using namespace dt::supervisor;

namespace {

/// Workers 0 to count-1 on hosts n001 and up, in step 100 and up, but for those in `other`.
FoldedTable members(std::size_t count, std::vector<std::size_t> other = {}, bool is_whole = false) {
  FoldedTable table({{"WORKER", Column::kIds},
                     {"HOST", Column::kHosts},
                     {"STATE", Column::kSame},
                     {"STEP", Column::kAmount},
                     {"PID", Column::kOwn},
                     {"WHY", Column::kSame}},
                    is_whole);
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_other = std::find(other.begin(), other.end(), i) != other.end();
    const auto step = static_cast<double>(100 + i);
    table.add({{fmt::format("{}", i)},
               {fmt::format("n{:03}", i + 1)},
               {is_other ? "STARTING" : "MEMBER"},
               {is_other ? "-" : fmt::format("{} of 938", step), step},
               {fmt::format("{}", 4000 + i)},
               {is_other ? fmt::format("n{:03}: refused", i + 1) : "-", 0,
                is_other ? "HOST: refused" : ""}});
  }
  return table;
}

}  // namespace

TEST_CASE("folded table: rows that say the same are one, in the place of the first", "[status]") {
  CHECK(members(1000, {1}).text() ==
        "WORKER   HOST             STATE     STEP             PID   WHY\n"
        "0,2-999  n[001,003-1000]  MEMBER    100-1099 of 938  -     -\n"
        "1        n002             STARTING  -                4001  n002: refused\n");
}

TEST_CASE("folded table: what differs by the host's name alone is folded, too", "[status]") {
  CHECK(members(20, {3, 4, 5}).text() ==
        "WORKER    HOST                STATE     STEP            PID  WHY\n"
        "0-2,6-19  n[001-003,007-020]  MEMBER    100-119 of 938  -    -\n"
        "3-5       n[004-006]          STARTING  -               -    HOST: refused\n");
}

TEST_CASE("folded table: a short table, or a whole one, has all rows", "[status]") {
  const auto lines = [](const FoldedTable& table) {
    const std::string text = table.text();
    return std::count(text.begin(), text.end(), '\n') - 1;
  };
  CHECK(lines(members(16)) == 16);
  CHECK(lines(members(17)) == 1);
  CHECK(lines(members(17, {}, true)) == 17);
}

TEST_CASE("folded table: a list that would be long is a number", "[status]") {
  std::vector<std::size_t> odd;
  for (std::size_t i = 1; i < 100; i += 2) odd.push_back(i);
  const std::string text = members(100, odd).text();
  CHECK(text.find("\n50 ids  50 hosts  MEMBER    100-198 of 938") != std::string::npos);
  CHECK(text.find("\n50 ids  50 hosts  STARTING  -") != std::string::npos);
}

TEST_CASE("folded table: from the least amount to the most", "[status]") {
  CHECK(from_to("7", "7") == "7");
  CHECK(from_to("19.8", "20.1") == "19.8-20.1");
  CHECK(from_to("118 of 938", "120 of 938") == "118-120 of 938");
  CHECK(from_to("1 s ago", "3 s ago") == "1-3 s ago");
  CHECK(from_to("in 2 s", "in 5 s") == "in 2-5 s");
  CHECK(from_to("812 MB", "3.4 GB") == "812 MB - 3.4 GB");
  CHECK(from_to("59 s ago", "1 min 04 s ago") == "59 s ago - 1 min 04 s ago");
}

TEST_CASE("folded table: hosts as one would write them, other words as they are", "[status]") {
  CHECK(fold_host_names({"n2", "n1", "n3", "n1"}) == "n[1-3]");
  CHECK(fold_host_names({"what is this", "n1"}) == "what is this,n1");
}
