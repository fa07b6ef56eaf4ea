#include "core/job/agenda.h"

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

namespace {

const Host kHere{"", "a", 0}, kThere{"", "b", 0};
using Hosts = std::set<Host>;

Hosts hosts_of_pass(Agenda& agenda, Duration at) {
  agenda.begin_pass(Time{} + at);
  Hosts out = agenda.hosts();
  agenda.end_pass();
  return out;
}

}  // namespace

TEST_CASE("agenda: a host is looked at once for what changed there", "[agenda]") {
  Agenda agenda;
  agenda.add(kThere);
  agenda.add(kThere);
  CHECK(hosts_of_pass(agenda, 0s) == Hosts{kThere});
  CHECK(agenda.is_empty());
  CHECK(hosts_of_pass(agenda, 1s).empty());
}

TEST_CASE("agenda: what changes during a pass is for its later steps, and for the next pass",
          "[agenda]") {
  Agenda agenda;
  agenda.begin_pass(Time{});
  agenda.add(kHere);
  CHECK(agenda.hosts() == Hosts{kHere});
  agenda.end_pass();
  CHECK_FALSE(agenda.is_empty());
  CHECK(hosts_of_pass(agenda, 0s) == Hosts{kHere});
}

TEST_CASE("agenda: a time brings its host once", "[agenda]") {
  Agenda agenda;
  agenda.add_at(kHere, Time{} + 5s);
  agenda.add_at(kThere, Time{} + 3s);
  CHECK(hosts_of_pass(agenda, 2s).empty());
  CHECK(hosts_of_pass(agenda, 3s) == Hosts{kThere});
  CHECK(hosts_of_pass(agenda, 9s) == Hosts{kHere});
  CHECK(hosts_of_pass(agenda, 9s).empty());
}
