#include "launcher/cli/hosts_file.h"

#include "core/files/hosts.h"
#include "test/support/catch.h"

using namespace dt;

TEST_CASE("hosts file: words of a command line become lines of the hosts grammar", "[hosts]") {
  CHECK(launcher::lines_of_words("a") == "a\n");
  CHECK(launcher::lines_of_words("a,b[1,3-4],me@c:22") == "a\nb[1,3-4]\nme@c:22\n");
  const auto lines = parse_hosts(launcher::lines_of_words("a,b[1,3-4],[::1]:22"), "-w");
  REQUIRE(lines);
  CHECK(lines->size() == 5);
  CHECK_FALSE(parse_hosts(launcher::lines_of_words("a,b[1,3"), "-w"));
}
