#include "core/job/take_over.h"

#include <catch2/catch.hpp>
#include <set>

#include "core/job/job.h"

using namespace dt;

namespace {

Host host(std::string name) { return Host{"", std::move(name), 0}; }

/// The hosts that a supervisor reaches by these records, and whether it starts anything there.
std::set<Host> reached(const std::vector<Record>& records) {
  JobOptions options;
  options.workers = {host("a")};
  Job job(options, records, {});
  std::set<Host> out;
  for (const Effect& effect : job.begin(Term(2'000'000), {})) {
    if (const auto* attach = std::get_if<Attach>(&effect)) {
      CHECK_FALSE(attach->start);
      out.insert(attach->host);
    }
    CHECK_FALSE(std::holds_alternative<StartWorker>(effect));
  }
  return out;
}

}  // namespace

TEST_CASE("take-over: every host is reached that the journal, the spec or host_worker names",
          "[take_over]") {
  const std::vector<Host> named = {host("a"), host("b")};
  CHECK(reached(records_to_end({}, named)) == std::set{host("a"), host("b")});
  const std::vector<Record> known = {
      JobBegan{{host("a")}, {}},
      TermBegan{Term(3)},
      AgentKnown{host("a"), "boot", 7},
      AgentKnown{host("c"), "boot", 8},
      AgentKnown{host("d"), "boot", 9},
      AgentKnown{host("d"), {}, 0},  // it was given up as lost, and may live
      AgentKnown{host("let-go"), "boot", 10},
      AgentKnown{host("let-go"), "boot", 0},  // its machine may be gone for good
      AgentKnown{host("b"), "boot", 11},
      AgentKnown{host("b"), "boot",
                 0},  // but it is named: this journal may end before it came back
  };
  const auto records = records_to_end(known, named);
  CHECK(reached(records) == std::set{host("a"), host("b"), host("c"), host("d")});
  const auto* term = std::get_if<TermBegan>(&records[records.size() - 2]);
  REQUIRE(term);
  CHECK(term->term > Term(3));
  // What the journal says of its end counts no more than the take-over's.
  std::vector<Record> ended = known;
  ended.emplace_back(JobEnding{0, "the job has finished"});
  ended.emplace_back(AgentKnown{host("e"), "boot", 1});
  CHECK(reached(records_to_end(ended, named)) == reached(records));
}
