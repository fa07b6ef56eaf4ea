#include "core/job/host_table.h"

#include "test/core/job/machines.h"

using namespace dt;
using namespace dt::test;

TEST_CASE("host table: each failed try is followed by a longer wait, until a worker joins",
          "[host_table]") {
  Machines m;
  const auto fails = [&m] {
    m.hosts.reach(kHostA);
    CHECK(m.hosts.attach_failed(kHostA));
    m.hosts.failed(kHostA, "reach", "no route to host", false);
  };
  fails();
  CHECK_FALSE(m.hosts.usable(kHostA));
  m.at(1300ms);  // 1 s, give or take a quarter
  CHECK(m.hosts.usable(kHostA));
  fails();
  m.at(1300ms + 1400ms);  // 2 s, give or take a quarter
  CHECK_FALSE(m.hosts.usable(kHostA));
  m.at(1300ms + 2600ms);
  CHECK(m.hosts.usable(kHostA));
  m.hosts.member_joined(kHostA);
  fails();
  m.at(1300ms + 2600ms + 1300ms);
  CHECK(m.hosts.usable(kHostA));
}

TEST_CASE("host table: a host is given up after its budget, and healthy time refills that",
          "[host_table]") {
  Machines m;
  const auto dies = [&m](Duration then) { m.hosts.member_died(kHostA, Time{} + then, 2); };
  dies(1s);
  dies(2s);
  CHECK(m.hosts.usable(kHostA));
  dies(3s + m.job.options.restart_refill);
  CHECK(m.hosts.usable(kHostA));
  dies(4s + m.job.options.restart_refill);
  CHECK(m.hosts.is_given_up(kHostA));
  CHECK_FALSE(m.hosts.usable(kHostA));
  m.hosts.wanted_less(kHostA);
  CHECK(m.hosts.usable(kHostA));
}

TEST_CASE("host table: it cools longer while members die soon after their join", "[host_table]") {
  Machines m;
  const auto dies = [&m](Duration lived) {
    m.hosts.restart_later(kHostA, WorkerId(0), "crashed", 9, lived);
  };
  dies(1s);
  dies(1s);  // of the same cause
  m.at(1300ms);
  CHECK_FALSE(m.hosts.is_cooling(kHostA));
  dies(1s);
  m.at(1300ms + 1400ms);
  CHECK(m.hosts.is_cooling(kHostA));
  m.at(1300ms + 2600ms);
  CHECK_FALSE(m.hosts.is_cooling(kHostA));
  for (int i = 0; i < 8; ++i) dies(1min);  // with a host
  m.at(1300ms + 2600ms + 1300ms);
  CHECK_FALSE(m.hosts.is_cooling(kHostA));
}

TEST_CASE("host table: restarts that come back soon come soon", "[host_table]") {
  auto options = job_on({kHostA, kHostB});
  options.restart_refill = 1s;
  Machines m(options);
  for (int i = 1; i < 4; ++i) {
    m.hosts.restart_later(kHostA, WorkerId(0), "crashed", 9, 1s);
    m.at(i * 1300ms);
    CHECK_FALSE(m.hosts.is_cooling(kHostA));
  }
}

TEST_CASE("host table: a silent agent is suspect, once, until it is heard", "[host_table]") {
  Machines m;
  m.attach(kHostA);
  m.at(5s);
  m.hosts.silent({kHostA, Time{} + 4s});
  m.hosts.silent({kHostA, Time{} + 4s});
  CHECK(m.noted() == std::vector<std::string>{"host_suspect"});
  CHECK_FALSE(m.hosts.is_heard(kHostA));
  CHECK(m.hosts.is_up(kHostA));
  m.hosts.heard({kHostA});
  m.hosts.heard({kHostA});
  CHECK(m.noted() == std::vector<std::string>{"host_heard"});
  CHECK(m.hosts.is_heard(kHostA));
}

TEST_CASE("host table: an agent is another one by its incarnation or its host's boot",
          "[host_table]") {
  Machines m;
  m.attach(kHostA);
  CHECK(m.took<Append>().size() == 2);  // JobBegan and AgentKnown
  m.hosts.attached({kHostA, "boot", 1, {}});
  CHECK(m.took<Append>().empty());
  CHECK_FALSE(m.hosts.is_replaced({kHostA, "boot", 1, {}}));
  CHECK(m.hosts.is_replaced({kHostA, "boot", 2, {}}));
  CHECK(m.hosts.is_replaced({kHostA, "later boot", 1, {}}));
  m.hosts.forget_agent(kHostA);
  CHECK_FALSE(m.hosts.is_replaced({kHostA, "boot", 2, {}}));
}

TEST_CASE("host table: the journal tells a host that was let go from one that was given up",
          "[host_table]") {
  Machines m;
  const auto last_known = [&m] { return std::get<AgentKnown>(m.took<Append>().back().record); };
  m.attach(kHostA);
  CHECK_FALSE(last_known().is_let_go());
  m.hosts.forget_agent(kHostA);
  CHECK_FALSE(last_known().is_let_go());
  m.attach(kHostA);
  m.hosts.let_go(kHostA);
  CHECK(last_known().is_let_go());
  CHECK_FALSE(m.hosts.at(kHostA).has_agent());
}

TEST_CASE("host table: a start that fails for too long ends the job with every host's reason",
          "[host_table]") {
  Machines m;
  m.hosts.failed(kHostA, "reach", "no route to host", true);
  m.at(m.job.options.start_timeout / 2);
  m.hosts.failed(kHostB, "reach", "refused", true);
  CHECK(m.code() == -1);
  m.at(m.job.options.start_timeout);
  CHECK(m.hosts.start_has_failed());
  m.hosts.failed(kHostA, "reach", "no route to host", true);
  CHECK(m.code() == 65);
  for (const char* line : {"\n  a: no route to host", "\n  b: refused"})
    CHECK(m.job.ending->message.find(line) != std::string::npos);
}

TEST_CASE("host table: the third failed data check ends the start", "[host_table]") {
  Machines m;
  m.hosts.failed(kHostA, "prepare", "no data", true);
  m.hosts.failed(kHostA, "prepare", "no data", true);
  CHECK(m.code() == -1);
  m.hosts.failed(kHostA, "prepare", "no data", true);
  CHECK(m.code() == 65);
}

TEST_CASE("host table: a host is reached as the last accepted file says", "[host_table]") {
  Machines m;
  const auto reached = [&m](const Host& host) {
    const auto asked = m.took<Attach>();
    return asked.size() == 1 && asked[0].host == host ? asked[0].host.via : std::nullopt;
  };
  const auto take = [&m](std::vector<HostSlots> lines) {
    m.job.record(FileTaken{Edit(1), std::move(lines)});
    (void)m.took<Append>();
  };
  const Host by_slurm{"", "n7", 0, StarterKind::kSlurm};
  take({{by_slurm, 1}});
  // Whoever asks need not know the way.
  m.hosts.reach({"", "n7", 0});
  CHECK(reached(by_slurm) == StarterKind::kSlurm);
  CHECK(m.hosts.attach_failed(by_slurm));
  m.hosts.failed(by_slurm, "reach", "no such node", false);
  CHECK_FALSE(m.hosts.usable(by_slurm));
  // Another way is tried at once.
  take({{{"", "n7", 0, StarterKind::kSsh}, 1}});
  CHECK(m.hosts.usable(by_slurm));
  m.hosts.reach(by_slurm);
  CHECK(reached(by_slurm) == StarterKind::kSsh);
  take({{{"", "n7", 0}, 1}});
  CHECK_FALSE(m.hosts.as_given(by_slurm).via);
  // A host whose GPUs were refused is tried at once with others.
  CHECK(m.hosts.attach_failed(by_slurm));
  m.hosts.failed(by_slurm, "start", "gpus=9: this host has GPUs 0-7", false);
  CHECK_FALSE(m.hosts.usable(by_slurm));
  take({{{"", "n7", 0, {}, "1"}, 1}});
  CHECK(m.hosts.usable(by_slurm));
  CHECK(m.hosts.as_given(by_slurm).gpus == "1");
}
