#include "core/job/start_failures.h"

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

namespace {

Time at(int seconds) { return Time{} + std::chrono::seconds(seconds); }

}  // namespace

TEST_CASE("start failures: hosts that failed for one reason share a line, most hosts first") {
  StartFailures failures(60s);
  const auto fails = [&](const std::string& name, std::uint16_t port, const std::string& why) {
    failures.failed(Host{"", name, port}, "reach", why, Time{});
  };
  fails("a", 0, "a: resolve: a: Name or service not known: is the name right?");
  CHECK(failures.text() == "a: resolve: a: Name or service not known: is the name right?");
  fails("b", 2222, "b:2222: connect to 10.0.0.2 port 2222: Connection refused: is sshd running?");
  fails("c", 2222, "c:2222: connect to fe80::3 port 2222: Connection refused: is sshd running?");
  fails("10.0.0.4", 2222,
        "10.0.0.4:2222: connect to 10.0.0.4 port 2222: Connection refused: is sshd running?");
  fails("d", 0, "d: resolve: d: Name or service not known: is the name right?");
  fails("e", 0, "e: host key: the server's ssh-ed25519 key SHA256:x is revoked");
  CHECK(
      failures.text() ==
      "6 hosts of the initial launch failed:\n"
      "  3 hosts (10.0.0.4:2222, b:2222, c:2222): connect to it port 2222: Connection refused: is "
      "sshd running?\n"
      "  2 hosts (a, d): resolve: it: Name or service not known: is the name right?\n"
      "  e: host key: the server's ssh-ed25519 key SHA256:x is revoked");
}

TEST_CASE("start failures: a host is late when it fails in one way for all of the time") {
  StartFailures failures(60s);
  const Host host{"", "a", 0};
  failures.failed(host, "reach", "down", at(10));
  CHECK_FALSE(failures.is_too_late(at(69)));
  CHECK(failures.is_too_late(at(70)));
  // Another try, and a way that was made good before, change nothing.
  failures.failed(host, "reach", "down", at(60));
  failures.made_good(host, "prepare", at(61));
  CHECK(failures.is_too_late(at(70)));
  // Now it is reached, and its data cannot be prepared.
  failures.failed(host, "prepare", "no data", at(65));
  CHECK_FALSE(failures.is_too_late(at(124)));
  CHECK(failures.is_too_late(at(125)));
}

TEST_CASE("start failures: what was made good counts again if it does not last") {
  StartFailures failures(60s);
  const Host a{"", "a", 0};
  failures.failed(a, "reach", "down", at(0));
  failures.failed(Host{"", "b", 0}, "reach", "down", at(0));
  failures.made_good(a, "reach", at(10));
  CHECK(failures.text() == "b: down");
  failures.made_good(Host{"", "b", 0}, "reach", at(20));
  CHECK_FALSE(failures.is_too_late(at(1000)));
  failures.failed(a, "reach", "down", at(69));
  CHECK(failures.text() == "a: down");
  CHECK(failures.is_too_late(at(69)));
  failures.made_good(a, "reach", at(70));
  failures.made_good(a, "reach", at(100));  // it has been fine since 70
  failures.failed(a, "reach", "down", at(130));
  CHECK_FALSE(failures.is_too_late(at(189)));
  CHECK(failures.is_too_late(at(190)));
}

TEST_CASE("start failures: failed data checks are counted by host") {
  StartFailures failures(60s);
  const Host a{"", "a", 0};
  CHECK(failures.prepares(a) == 0);
  failures.failed(a, "reach", "down", at(0));
  failures.failed(a, "prepare", "no data", at(1));
  failures.failed(a, "prepare", "no data", at(2));
  CHECK(failures.prepares(a) == 2);
  CHECK(failures.prepares(Host{"", "b", 0}) == 0);
}

TEST_CASE(
    "start failures: what waiting does not mend is hopeless when it has come twice in a row") {
  StartFailures failures(60s);
  const Host a{"", "a", 0};
  failures.failed(a, "reach", "refused", at(0), true);
  CHECK_FALSE(failures.is_hopeless(a));
  CHECK_FALSE(failures.has_spoken(a));
  failures.failed(a, "reach", "no answer", at(2), false);
  CHECK(failures.has_spoken(a));
  failures.failed(a, "reach", "refused", at(3), true);
  CHECK_FALSE(failures.is_hopeless(a));
  failures.made_good(a, "reach", at(4));
  CHECK_FALSE(failures.has_spoken(a));
  failures.failed(a, "reach", "refused", at(5), true);
  CHECK_FALSE(failures.hopeless_since());
  failures.failed(a, "reach", "refused", at(7), true);
  CHECK(failures.is_hopeless(a));
  CHECK(failures.has_spoken(a));
  CHECK(failures.hopeless_since() == at(7));
  CHECK(failures.left(a, at(15)) == Duration(45s));  // it was not fine for long
}
