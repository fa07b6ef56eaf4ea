#include "test/launcher/agent_fixture.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::test;
using namespace std::chrono_literals;

TEST_CASE("agent: a process starts, its output arrives whole and before its exit", "[agent]") {
  Site site;
  auto link = site.attach();
  REQUIRE(site.wait([&] { return link->states.size() == 1; }));
  CHECK(link->states[0].processes.empty());
  CHECK(link->states[0].cores > 0);
  link->send(shell(worker(1), "echo hello; echo oops >&2; exit 3"));
  REQUIRE(site.wait([&] { return link->exits.contains(worker(1)); }));
  CHECK(link->out[worker(1)] == "hello\n");
  CHECK(link->err[worker(1)] == "oops\n");
  CHECK(link->exits[worker(1)][0] == ExitStatus{3, 0});
  CHECK(link->started[worker(1)].size() == 1);
  CHECK_FALSE(link->output_after_exit);
}
